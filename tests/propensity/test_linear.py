"""The product against all labels: the loss, the lots, and whether it learns what a linear model would."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from merit.core.errors import TrainingError
from merit.core.ragged import Ragged
from merit.propensity.features import States, UserFeatures
from merit.propensity.linear import FactorsConfig, LabelSampler, SampledLabels, factors_loss, fit_factors
from merit.propensity.ridge import RidgeConfig
from merit.propensity.states_model import Propensity, PropensityConfig
from merit.propensity.training import user_vectors
from merit.propensity.trends import Trends

LABELS, TEXT = 12, 5
CONFIG = PropensityConfig(labels=1, width=8, heads=2, layers=1, hidden=8, second=4, own=6)
TEXTS = np.random.default_rng(1).normal(size=(LABELS, TEXT)).astype(np.float32)


def _model(config=CONFIG):
    torch.manual_seed(0)
    model = Propensity(config, 4, TEXT, torch.arange(LABELS) != 3)
    with torch.no_grad():
        for value in (model.of_text, model.repeat, model.repeat_own, model.lately):
            value.normal_()
    return model


def _known(histories, times):
    states = States(np.zeros((len(histories), 1, 4), np.float16), np.ones(len(histories), np.int32))
    return UserFeatures(states, Ragged.of(histories), np.array(times, np.int32))


def test_the_loss_is_that_of_every_pair_one_by_one():
    trends = np.random.default_rng(2).normal(size=(3, LABELS - 1)).astype(np.float16)  # the last is newer than they
    lately = Trends(np.array([2, 0, 1]), trends)
    known = replace(_known([[0, 3, 7], [], [5, 1]], [2, 1, 4, 1, 1]), lately=lately)
    gold, model, rows = Ragged.of([[1, 7], [4], [5, 3]]), _model(), np.array([2, 0, 1])
    met = SampledLabels(np.array([1, 2, 3, 4, 5, 7, 11]), np.array([1, 0.5, 2, 1, 0, 3, 1], np.float32))
    table = model.labels(torch.from_numpy(TEXTS), torch.arange(LABELS))
    users = user_vectors(model, known.take(rows), TEXTS)
    slow = 0.0
    for place, row in enumerate(rows.tolist()):
        own, often = (
            known.history[row].tolist(),
            known.times[known.history.offsets[row] : known.history.offsets[row + 1]],
        )
        for label, weight in zip(met.labels.tolist(), met.weights.tolist(), strict=True):
            score = model.last.bias[0] + users[place][8:] @ model.label_factors(table)[label]
            if label < LABELS - 1:
                score = score + model.lately[0] * float(trends[lately.weeks[row], label])
            if label in own:
                times = torch.tensor(float(often[own.index(label)]))
                score = score + model.repeats(times, times / float(often.sum()), model.label_repeats(table)[label])
            wanted = label in gold[row].tolist()
            slow = slow + (
                torch.nn.functional.softplus(-score) if wanted else weight * torch.nn.functional.softplus(score)
            )
    torch.testing.assert_close(factors_loss(model, known, gold, TEXTS, rows, met), slow / 3, rtol=1e-4, atol=1e-5)


def test_every_label_counts_once_on_average_however_it_is_drawn():
    chances = np.array([0.6, 0.2, 0.1, 0.05, 0.05])
    lots, rng = LabelSampler(np.array([2, 4, 6, 8, 10]), chances, 4), np.random.default_rng(0)
    total = np.zeros(11)
    for _ in range(8_000):
        met = lots.draw(np.array([8]), rng)
        assert 8 in met.labels  # gold is always there
        total[met.labels] += met.weights
    np.testing.assert_allclose(total[lots.live] / 8_000, 1, atol=0.08)


def test_a_small_space_is_met_whole():
    met = LabelSampler(np.array([2, 4, 6]), np.full(3, 1 / 3), 4).draw(np.array([4]), np.random.default_rng(0))
    assert met.labels.tolist() == [2, 4, 6] and met.weights.tolist() == [1, 1, 1]


def _follows(users=2_000):
    """Whoever had label c wants c + 1 mostly, and sometimes anything else."""
    rng = np.random.default_rng(0)
    had = rng.integers(LABELS, size=users)
    wanted = np.where(rng.random(users) < 0.7, (had + 1) % LABELS, rng.integers(LABELS, size=users))
    return (
        _known([[each] for each in had.tolist()], np.ones(users)),
        Ragged.of([[each] for each in wanted.tolist()]),
        had,
    )


@pytest.mark.parametrize("labels", [100, 6], ids=["all labels", "six of them"])
def test_it_finds_the_chances_of_a_linear_world(labels):
    known, gold, had = _follows()
    torch.manual_seed(0)
    model = Propensity(CONFIG.model_copy(update={"own": 16}), 4, TEXT, torch.ones(LABELS, dtype=torch.bool))
    config = FactorsConfig(epochs=20, learning_rate=2e-2, weight_decay=0.01, labels=labels, dropped=0.0, dropout=0.0)
    losses = fit_factors(model, known, gold, np.arange(LABELS), TEXTS, config, 1)
    assert losses[-1] < losses[0]
    with torch.inference_mode():
        table = model.labels(torch.from_numpy(TEXTS), torch.arange(LABELS))
        users = user_vectors(model, known.take(np.arange(len(known))), TEXTS)
        chance = torch.sigmoid(users[:, 8:] @ model.label_factors(table).T + model.last.bias).numpy()
    everyone = np.arange(len(known))
    follow = chance[everyone, (had + 1) % LABELS]
    assert abs(follow.mean() - (0.7 + 0.3 / LABELS)) < 0.06
    other = chance[everyone, (had + 5) % LABELS]
    assert abs(other.mean() - 0.3 / LABELS) < 0.02


def test_without_factors_nothing_is_trained():
    known, gold, _ = _follows(100)
    model = Propensity(CONFIG.model_copy(update={"own": 0}), 4, TEXT, torch.ones(LABELS, dtype=torch.bool))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    assert fit_factors(model, known, gold, np.arange(LABELS), TEXTS, FactorsConfig(), 1) == []
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_loss_that_is_not_a_number_stops_the_training():
    known, gold, _ = _follows(100)
    broken = TEXTS.copy()
    broken[0] = np.nan
    with pytest.raises(TrainingError, match=r"factors\.learning_rate"):
        fit_factors(_model(), known, gold, np.arange(LABELS), broken, FactorsConfig(), 1)


def test_a_longer_training_decays_no_more_as_a_whole():
    """What a label says that nobody had is moved by decay alone."""
    left = []
    for users in (200, 1_600):
        known, gold = _known([[each % 5] for each in range(users)], np.ones(users)), Ragged.of([[7]] * users)
        model = _model()
        before = model.says[9].detach().clone()
        config = FactorsConfig(batch_size=4, learning_rate=1e-2, ridge=RidgeConfig(weight=0))
        fit_factors(model, known, gold, np.arange(LABELS), TEXTS, config, 1)
        left.append(float((model.says[9] / before).detach().mean()))
    assert 0.2 < left[0] < 0.6 and abs(left[1] - left[0]) < 0.02
