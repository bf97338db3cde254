import numpy as np
import torch

from merit.core.ragged import Ragged
from merit.data.title_words import WordCounts
from merit.propensity.features import States, UserFeatures
from merit.propensity.states_model import Propensity, PropensityConfig
from merit.propensity.train import user_vectors

CONFIG = PropensityConfig(labels=3, width=16, layers=2, heads=2, hidden=24, second=8, factors=4)


def _model(trained=(True, True, False, True)):
    torch.manual_seed(0)
    model = Propensity(CONFIG, 10, 6, torch.tensor(trained))
    return model.eval()


def test_a_score_is_the_mlp_over_the_concatenation_and_the_product_of_factors():
    """The slow twin concatenates [user; label vector], applies three ordinary layers, and adds the product.

    The last number of a label is the product's alone.
    """
    model = _model()
    with torch.no_grad():
        model.of_text.normal_()
    users, vectors = torch.randn(5, 20), model.labels(torch.randn(4, 6), torch.arange(4))
    weight = torch.cat([model.of_user.weight, model.of_label.weight], dim=1)
    split = model.pair_score(model.user_projections(users)[:, None], model.label_projections(vectors))
    for row in range(5):
        for column in range(4):
            first = torch.relu(weight @ torch.cat([users[row], vectors[column][:-1]]) + model.of_user.bias)
            second = torch.relu(model.second.weight @ first + model.second.bias)
            whole = model.last.weight @ second + model.last.bias + model.bias
            text, own = vectors[column][:6], vectors[column][6:]
            product = sum(users[row][16 + each] * (own[each] + model.of_text[each] @ text) for each in range(4))
            torch.testing.assert_close(split[row, column], whole[0] + product, rtol=1e-5, atol=1e-5)


def test_what_stands_behind_the_last_label_changes_nothing():
    model = _model()
    states = torch.randn(2, 3, 10)
    other = states.clone()
    other[:, 2] = 99.0
    rest = torch.tensor([2, 2]), torch.randn(2, 10), torch.randn(2, 3)
    torch.testing.assert_close(model.users(states, *rest), model.users(other, *rest))


def test_a_user_without_labels_still_has_a_vector():
    vector = _model().users(torch.zeros(1, 3, 10), torch.tensor([0]), torch.zeros(1, 10), torch.zeros(1, 3))
    assert torch.isfinite(vector).all()


def test_only_labels_that_were_trained_on_have_numbers_of_their_own():
    texts = torch.randn(6, 6)
    vectors = _model().labels(texts, torch.tensor([0, 1, 2, 3, 4, -1]))  # 4 is newer than the model
    assert torch.equal(vectors[:, :6], texts)
    assert (vectors[:, 6:] != 0).any(1).tolist() == [True, True, False, True, False, False]


def test_dropped_labels_have_nothing_of_their_own():
    torch.manual_seed(0)
    vectors = _model((True,) * 1000).labels(torch.zeros(1000, 6), torch.arange(1000), dropped=0.3)
    assert 0.25 < (vectors[:, 6:] == 0).all(1).float().mean() < 0.35


def test_without_numbers_of_their_own_there_is_no_product():
    config = CONFIG.model_copy(update={"factors": 0})
    model = Propensity(config, 10, 6, torch.ones(4, dtype=torch.bool)).eval()
    users = model.users(torch.randn(2, 3, 10), torch.tensor([3, 3]), torch.randn(2, 6), torch.zeros(2, 0))
    assert users.shape == (2, 16)
    assert model.user_projections(users).shape == model.label_projections(torch.randn(2, 6)).shape == (2, 24)


def test_the_vectors_of_one_user_do_not_depend_on_the_company():
    model = _model()
    inputs = torch.randn(7, 3, 10), torch.tensor([3, 3, 2, 1, 3, 2, 3]), torch.randn(7, 10), torch.randn(7, 3)
    alone = torch.cat([model.users(*(each[row : row + 1] for each in inputs)) for row in range(7)])
    np.testing.assert_allclose(model.users(*inputs).detach(), alone.detach(), atol=1e-5)


def test_a_history_is_the_mean_of_its_label_vectors_and_the_sum_of_what_they_and_its_words_say():
    """The slow twin adds them up one by one."""
    torch.manual_seed(0)
    model = Propensity(CONFIG, 10, 6, torch.tensor((True, True, False, True)), words=3).eval()
    words = WordCounts(Ragged.of([[1], [0, 2], []]), np.array([4, 1, 2], np.int32))
    history = Ragged.of([[0, 2], [], [1, 2, 3]])
    times = np.array([1, 5, 2, 2, 9], np.int32)
    states = States(np.random.default_rng(0).normal(size=(3, 3, 10)).astype(np.float16), np.array([3, 1, 2], np.int32))
    texts = np.random.default_rng(1).normal(size=(4, 6)).astype(np.float32)
    rows = np.array([2, 0, 1])
    found = user_vectors(model, UserFeatures(states, history, times, words).gather(rows), texts)
    table = model.labels(torch.from_numpy(texts), torch.arange(4))
    for place, row in enumerate(rows.tolist()):
        often = np.log1p(times[history.offsets[row] : history.offsets[row + 1]])
        mean, said = torch.zeros(10), torch.zeros(3)
        for weight, label in zip(often.tolist(), history[row].tolist(), strict=True):
            mean += weight / often.sum() * table[label].detach()
            said += weight / np.sqrt((often**2).sum()) * model.history_factors[label].detach() * model.trained[label]
        often = np.log1p(words.times[words.words.offsets[row] : words.words.offsets[row + 1]])
        for weight, word in zip(often.tolist(), words.words[row].tolist(), strict=True):
            said += weight / np.sqrt((often**2).sum()) * model.word_factors[word].detach()
        values = torch.from_numpy(states.values[row].astype(np.float32))
        slow = model.users(values[None], torch.tensor([int(states.counts[row])]), mean[None], said[None])
        torch.testing.assert_close(found[place], slow[0], rtol=1e-4, atol=1e-5)
