import numpy as np
import torch

from merit.propensity.model import Propensity, PropensityConfig

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
    counts = torch.tensor([2, 2])
    torch.testing.assert_close(model.users(states, counts), model.users(other, counts))


def test_a_user_without_labels_still_has_a_vector():
    vector = _model().users(torch.zeros(1, 3, 10), torch.tensor([0]))
    assert torch.isfinite(vector).all()


def test_only_labels_that_were_trained_on_have_numbers_of_their_own():
    texts = torch.randn(6, 6)
    vectors = _model().labels(texts, torch.tensor([0, 1, 2, 3, 4, -1]))  # 4 is newer than the model
    assert torch.equal(vectors[:, :6], texts)
    assert (vectors[:, 6:] != 0).any(1).tolist() == [True, True, False, True, False, False]


def test_the_vectors_of_one_user_do_not_depend_on_the_company():
    model = _model()
    states, counts = torch.randn(7, 3, 10), torch.tensor([3, 3, 2, 1, 3, 2, 3])
    alone = torch.cat([model.users(states[row : row + 1], counts[row : row + 1]) for row in range(7)])
    np.testing.assert_allclose(model.users(states, counts).detach(), alone.detach(), atol=1e-5)
