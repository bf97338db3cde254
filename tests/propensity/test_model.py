import numpy as np
import torch

from merit.data.ragged import Ragged
from merit.propensity.fit import user_vectors
from merit.propensity.model import Propensity, PropensityConfig
from merit.propensity.states import Known, States

CONFIG = PropensityConfig(labels=3, width=16, layers=2, heads=2, hidden=24, second=8, own=4)


def _model(trained=(True, True, False, True)):
    torch.manual_seed(0)
    model = Propensity(CONFIG, 10, 6, torch.tensor(trained))
    return model.eval()


def test_the_split_first_layer_is_the_layer_over_the_concatenation():
    """The slow twin concatenates [user; label vector] and applies three ordinary layers."""
    model = _model()
    users, vectors = torch.randn(5, 16), model.labels(torch.randn(4, 6), torch.arange(4))
    weight = torch.cat([model.of_user.weight, model.of_label.weight], dim=1)
    split = model.score(model.user_halves(users)[:, None], model.label_halves(vectors))
    for row in range(5):
        for column in range(4):
            first = torch.relu(weight @ torch.cat([users[row], vectors[column]]) + model.of_user.bias)
            second = torch.relu(model.second.weight @ first + model.second.bias)
            whole = model.last.weight @ second + model.last.bias
            torch.testing.assert_close(split[row, column], whole[0], rtol=1e-5, atol=1e-5)


def test_what_stands_behind_the_last_label_changes_nothing():
    model = _model()
    states = torch.randn(2, 3, 10)
    other = states.clone()
    other[:, 2] = 99.0
    counts, histories = torch.tensor([2, 2]), torch.randn(2, 10)
    torch.testing.assert_close(model.users(states, counts, histories), model.users(other, counts, histories))


def test_a_user_without_labels_still_has_a_vector():
    vector = _model().users(torch.zeros(1, 3, 10), torch.tensor([0]), torch.zeros(1, 10))
    assert torch.isfinite(vector).all()


def test_only_labels_that_were_trained_on_have_numbers_of_their_own():
    texts = torch.randn(6, 6)
    vectors = _model().labels(texts, torch.tensor([0, 1, 2, 3, 4, -1]))  # 4 is newer than the model
    assert torch.equal(vectors[:, :6], texts)
    assert (vectors[:, 6:] != 0).any(1).tolist() == [True, True, False, True, False, False]


def test_the_vectors_of_one_user_do_not_depend_on_the_company():
    model = _model()
    inputs = torch.randn(7, 3, 10), torch.tensor([3, 3, 2, 1, 3, 2, 3]), torch.randn(7, 10)
    alone = torch.cat([model.users(*(each[row : row + 1] for each in inputs)) for row in range(7)])
    np.testing.assert_allclose(model.users(*inputs).detach(), alone.detach(), atol=1e-5)


def test_a_history_is_the_mean_of_its_label_vectors_by_how_often_they_occur():
    """The slow twin adds them up one by one."""
    model = _model()
    history = Ragged.of([[0, 2], [], [1, 2, 3]])
    times = np.array([1, 5, 2, 2, 9], np.int32)
    states = States(np.random.default_rng(0).normal(size=(3, 3, 10)).astype(np.float16), np.array([3, 1, 2], np.int32))
    texts = np.random.default_rng(1).normal(size=(4, 6)).astype(np.float32)
    rows = np.array([2, 0, 1])
    found = user_vectors(model, Known(states, history, times).take(rows), texts)
    table = model.labels(torch.from_numpy(texts), torch.arange(4))
    for place, row in enumerate(rows.tolist()):
        own = np.log1p(times[history.offsets[row] : history.offsets[row + 1]])
        mean = sum((w / own.sum() * table[label] for w, label in zip(own, history[row], strict=True)), torch.zeros(10))
        values = torch.from_numpy(states.values[row].astype(np.float32))
        slow = model.users(values[None], torch.tensor([int(states.counts[row])]), mean[None].float())
        torch.testing.assert_close(found[place], slow[0], rtol=1e-4, atol=1e-5)
