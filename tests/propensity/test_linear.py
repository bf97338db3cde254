"""The factor model: its loss, the sampled labels, where it starts, and whether it learns what a linear model would."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from merit.core.errors import TrainingError
from merit.core.ragged import Ragged
from merit.data.trends import Trends
from merit.propensity.features import States, UserFeatures
from merit.propensity.linear import FactorsConfig, RidgeConfig, factors_loss, fit_factors, ridge_factors
from merit.propensity.negatives import LabelSampler
from merit.propensity.states_model import Propensity, PropensityConfig
from merit.propensity.train import user_vectors

LABELS, TEXT = 12, 5
CONFIG = PropensityConfig(labels=1, width=8, heads=2, layers=1, hidden=8, second=4, factors=6)
TEXTS = np.random.default_rng(1).normal(size=(LABELS, TEXT)).astype(np.float32)


def _model(config=CONFIG):
    torch.manual_seed(0)
    model = Propensity(config, 4, TEXT, torch.arange(LABELS) != 3)
    with torch.no_grad():
        for value in (model.of_text, model.repeat, model.repeat_bias, model.trend_weight):
            value.normal_()
    return model


def _features(histories, times):
    states = States(np.zeros((len(histories), 1, 4), np.float16), np.ones(len(histories), np.int32))
    return UserFeatures(states, Ragged.of(histories), np.array(times, np.int32))


def test_the_loss_is_that_of_every_pair_one_by_one():
    table = np.random.default_rng(2).normal(size=(3, LABELS - 1)).astype(np.float16)  # the last is newer than they
    trends = Trends(np.array([2, 0, 1]), table)
    features = replace(_features([[0, 3, 7], [], [5, 1]], [2, 1, 4, 1, 1]), trends=trends)
    gold, model, rows = Ragged.of([[1, 7], [4], [5, 3]]), _model(), np.array([2, 0, 1])
    sampled = np.array([1, 2, 3, 4, 5, 7, 11]), np.array([1, 0.5, 2, 1, 0, 3, 1], np.float32)
    vectors = model.labels(torch.from_numpy(TEXTS), torch.arange(LABELS))
    users = user_vectors(model, features.gather(rows), TEXTS)
    slow = 0.0
    for place, row in enumerate(rows.tolist()):
        own, often = (
            features.history[row].tolist(),
            features.times[features.history.offsets[row] : features.history.offsets[row + 1]],
        )
        for label, weight in zip(*(side.tolist() for side in sampled), strict=True):
            score = model.bias[0] + users[place][8:] @ model.full_label_factors(vectors)[label]
            if label < LABELS - 1:
                score = score + model.trend_weight[0] * float(table[trends.weeks[row], label])
            if label in own:
                times = torch.tensor(float(often[own.index(label)]))
                score = score + model.repeat_score(
                    times, times / float(often.sum()), model.label_repeats(vectors)[label]
                )
            wanted = label in gold[row].tolist()
            slow = slow + (
                torch.nn.functional.softplus(-score) if wanted else weight * torch.nn.functional.softplus(score)
            )
    torch.testing.assert_close(
        factors_loss(model, features, gold, TEXTS, rows, sampled), slow / 3, rtol=1e-4, atol=1e-5
    )


def test_every_label_counts_once_on_average_however_it_is_drawn():
    chances = np.array([0.6, 0.2, 0.1, 0.05, 0.05])
    sampler, rng = LabelSampler(np.array([2, 4, 6, 8, 10]), chances, 4), np.random.default_rng(0)
    total = np.zeros(11)
    for _ in range(8_000):
        labels, weights = sampler.draw(np.array([8]), rng)
        assert 8 in labels  # gold is always there
        total[labels] += weights
    np.testing.assert_allclose(total[sampler.live] / 8_000, 1, atol=0.08)


def test_a_small_space_is_sampled_whole():
    sampler = LabelSampler(np.array([2, 4, 6]), np.full(3, 1 / 3), 4)
    labels, weights = sampler.draw(np.array([4]), np.random.default_rng(0))
    assert labels.tolist() == [2, 4, 6] and weights.tolist() == [1, 1, 1]


def _follows(users=2_000):
    """Whoever had label c wants c + 1 mostly, and sometimes anything else."""
    rng = np.random.default_rng(0)
    had = rng.integers(LABELS, size=users)
    wanted = np.where(rng.random(users) < 0.7, (had + 1) % LABELS, rng.integers(LABELS, size=users))
    return (
        _features([[each] for each in had.tolist()], np.ones(users)),
        Ragged.of([[each] for each in wanted.tolist()]),
        had,
    )


@pytest.mark.parametrize("labels", [100, 6], ids=["all labels", "six of them"])
def test_it_finds_the_chances_of_a_linear_world(labels):
    features, gold, had = _follows()
    torch.manual_seed(0)
    model = Propensity(CONFIG.model_copy(update={"factors": 16}), 4, TEXT, torch.ones(LABELS, dtype=torch.bool))
    config = FactorsConfig(epochs=20, learning_rate=2e-2, weight_decay=0.01, labels=labels, dropped=0.0, dropout=0.0)
    losses = fit_factors(model, features, gold, np.arange(LABELS), TEXTS, config, 1)
    assert losses[-1] < losses[0]
    with torch.inference_mode():
        table = model.labels(torch.from_numpy(TEXTS), torch.arange(LABELS))
        users = user_vectors(model, features, TEXTS)
        chance = torch.sigmoid(users[:, 8:] @ model.full_label_factors(table).T + model.bias).numpy()
    everyone = np.arange(len(features))
    follow = chance[everyone, (had + 1) % LABELS]
    assert abs(follow.mean() - (0.7 + 0.3 / LABELS)) < 0.06
    other = chance[everyone, (had + 5) % LABELS]
    assert abs(other.mean() - 0.3 / LABELS) < 0.02


def test_without_factors_nothing_is_trained():
    features, gold, _ = _follows(100)
    model = Propensity(CONFIG.model_copy(update={"factors": 0}), 4, TEXT, torch.ones(LABELS, dtype=torch.bool))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    assert fit_factors(model, features, gold, np.arange(LABELS), TEXTS, FactorsConfig(), 1) == []
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_loss_that_is_not_a_number_stops_the_training():
    features, gold, _ = _follows(100)
    broken = TEXTS.copy()
    broken[0] = np.nan
    with pytest.raises(TrainingError, match=r"Halve propensity\.factors\.learning_rate"):
        fit_factors(_model(), features, gold, np.arange(LABELS), broken, FactorsConfig(), 1)


def test_a_longer_training_decays_no_more_as_a_whole():
    """What a label says that nobody had is moved by decay alone."""
    left = []
    for users in (200, 600):
        features, gold = _features([[each % 5] for each in range(users)], np.ones(users)), Ragged.of([[7]] * users)
        model = _model()
        before = model.history_factors[9].detach().clone()
        config = FactorsConfig(batch_size=4, learning_rate=1e-2, ridge=RidgeConfig(weight=0))
        fit_factors(model, features, gold, np.arange(LABELS), TEXTS, config, 1)
        left.append(float((model.history_factors[9] / before).detach().mean()))
    assert 0.2 < left[0] < 0.6 and abs(left[1] - left[0]) < 0.02


# --- where training starts ------------------------------------------------------------------------------------------

FEW = 7  # labels


def textbook(histories: list[list[int]], times: list[list[int]], gold: list[list[int]], strength: float) -> np.ndarray:
    """One row after the other, with the bias among the columns, by the textbook."""
    rows, wanted = np.zeros((len(histories), FEW + 1)), np.zeros((len(gold), FEW))
    for row, (labels, counts, bought) in enumerate(zip(histories, times, gold, strict=True)):
        for label, count in zip(labels, counts, strict=True):
            rows[row, label] = np.log(1 + count)
        rows[row] /= max(np.sqrt((rows[row] ** 2).sum()), 1e-9)
        rows[row, -1] = 1
        wanted[row, bought] = 1
    return np.linalg.inv(rows.T @ rows + strength * np.eye(FEW + 1)) @ rows.T @ wanted


lists = st.lists(st.integers(0, FEW - 1), max_size=4, unique=True)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), users=st.integers(2, 8), strength=st.sampled_from([0.5, 3.0, 100.0]))
def test_factors_of_full_rank_multiply_to_what_the_textbook_solves(
    data: st.DataObject, users: int, strength: float
) -> None:
    histories, gold = ([data.draw(lists) for _ in range(users)] for _ in range(2))
    times = [[data.draw(st.integers(1, 5)) for _ in labels] for labels in histories]
    counts = np.array([count for row in times for count in row], np.int32)
    config = RidgeConfig(weight=2.0, strength=strength)
    labels, history, label = ridge_factors(Ragged.of(histories), counts, Ragged.of(gold), FEW, FEW, config, seed=1)
    product = np.zeros((FEW, FEW))
    product[np.ix_(labels, labels)] = history @ label.T
    np.testing.assert_allclose(product, 2 * textbook(histories, times, gold, strength)[:-1], atol=2e-4)


def test_a_low_rank_is_the_best_of_that_rank() -> None:
    rng = np.random.default_rng(0)
    histories, gold = ([rng.choice(FEW, 2, replace=False).tolist() for _ in range(200)] for _ in range(2))
    counts = np.ones(400, np.int32)
    config = RidgeConfig(weight=1.0, strength=1.0)
    whole = textbook(histories, [[1, 1]] * 200, gold, 1.0)[:-1]
    _, history, label = ridge_factors(Ragged.of(histories), counts, Ragged.of(gold), FEW, 3, config, seed=1)
    left, sizes, right = np.linalg.svd(whole)
    np.testing.assert_allclose(history @ label.T, (left[:, :3] * sizes[:3]) @ right[:3], atol=1e-4)


def test_only_the_most_popular_labels_are_solved_for() -> None:
    histories, gold = Ragged.of([[0, 1], [2], [1]]), Ragged.of([[5], [5, 2], [6, 2]])
    labels, history, label = ridge_factors(histories, np.ones(4, np.int32), gold, FEW, 4, RidgeConfig(labels=2), seed=1)
    assert labels.tolist() == [2, 5] and history.shape == label.shape == (2, 2)


def next_label(users: int = 400) -> tuple[UserFeatures, Ragged]:
    """Who had a label buys the next one."""
    had = np.random.default_rng(3).integers(0, FEW, users)
    states = States(np.zeros((users, 1, 4), np.float16), np.ones(users, np.int32))
    features = UserFeatures(states, Ragged.of([[label] for label in had.tolist()]), np.ones(users, np.int32))
    return features, Ragged.of([[(label + 1) % FEW] for label in had.tolist()])


def test_the_factors_start_there() -> None:
    features, gold = next_label()
    vectors = np.zeros((FEW, 5), np.float32)
    config = CONFIG.model_copy(update={"factors": FEW + 1})

    def first_loss(weight: float) -> float:
        torch.manual_seed(0)
        model = Propensity(config, 4, 5, torch.ones(FEW, dtype=torch.bool))
        how = FactorsConfig(epochs=1, learning_rate=1e-9, dropout=0, ridge=RidgeConfig(weight=weight, strength=1))
        return fit_factors(model, features, gold, np.arange(FEW), vectors, how, seed=1)[0]

    assert first_loss(5.0) < 0.6 * first_loss(0.0)
