"""A shop whose probabilities are known: does training on sampled negatives find them?"""

from dataclasses import replace

import numpy as np
import pytest
import torch

from merit.core.errors import TrainingError
from merit.core.ragged import Ragged
from merit.propensity.features import States, UserFeatures
from merit.propensity.negatives import NegativesConfig, make_sampler
from merit.propensity.states_model import Propensity, PropensityConfig
from merit.propensity.train import PropensityFitConfig, fit, user_vectors

USERS, LABELS = 3000, 30


def _shop(seed=0):
    """Two kinds of users; label c is wanted with probability P[kind, c], popular ones fifty times more than rare."""
    rng = np.random.default_rng(seed)
    chance = np.geomspace(0.4, 0.008, LABELS)
    truth = np.stack([chance, chance[::-1]])
    kind = rng.integers(2, size=USERS)
    states = rng.normal(scale=0.1, size=(USERS, 2, 4)).astype(np.float32)
    states[:, :, 0] += np.where(kind == 0, 1.0, -1.0)[:, None]
    wanted = rng.random((USERS, LABELS)) < truth[kind]
    gold = Ragged.of([np.flatnonzero(row).tolist() for row in wanted])
    nothing = Ragged(np.zeros(USERS + 1, np.int64), np.zeros(0, np.int32))
    kept = UserFeatures(States(states.astype(np.float16), np.full(USERS, 2, np.int32)), nothing, np.zeros(0, np.int32))
    return kept, kind, gold, truth


def _fitted(negatives, epochs=12):
    kept, kind, gold, truth = _shop()
    # What a generator says: the popular labels of the user's kind, right or wrong.
    said = [np.arange(5) if each == 0 else np.arange(LABELS - 5, LABELS) for each in kind]
    mined = Ragged.of([np.setdiff1d(each, gold[row]).tolist() for row, each in enumerate(said)])
    hits = np.concatenate([np.isin(gold[row], said[row]) for row in range(USERS)]).astype(np.int32)
    counts = np.ones(len(mined.values), np.int32)
    vectors = np.eye(LABELS, dtype=np.float32)
    sampler = make_sampler(gold, hits, mined, counts, np.ones(LABELS, bool), negatives)
    torch.manual_seed(0)
    config = PropensityConfig(labels=2, width=16, layers=1, heads=2, hidden=64, second=16, dropout=0.0, factors=0)
    model = Propensity(config, 4, LABELS, torch.ones(LABELS, dtype=torch.bool))
    losses = fit(
        model, kept, sampler, vectors, PropensityFitConfig(epochs=epochs, learning_rate=5e-3, batch_size=128), 1
    )
    with torch.inference_mode():
        users = model.user_projections(user_vectors(model, kept, vectors))
        scores = model.pair_score(
            users[:, None], model.label_projections(model.labels(torch.eye(LABELS), torch.arange(LABELS)))
        )
    probability = torch.sigmoid(scores).numpy()
    return np.stack([probability[kind == 0].mean(0), probability[kind == 1].mean(0)]), truth, losses


@pytest.mark.parametrize(
    "negatives",
    [NegativesConfig(mined=0, popular=0, random=8), NegativesConfig(mined=4, popular=8, random=4)],
    ids=["random alone", "mined, popular and random"],
)
def test_scores_are_log_odds_at_natural_prevalence_whatever_the_shares(negatives):
    found, truth, losses = _fitted(negatives)
    assert losses[-1] < losses[0]
    error = np.abs(np.log(found) - np.log(truth))
    assert error.mean() < 0.25, f"off by a factor {np.exp(error.mean()):.2f} on average"


def test_a_loss_that_is_not_a_number_stops_the_training():
    with pytest.raises(TrainingError, match=r"Halve propensity\.fit\.learning_rate"):
        kept, _, gold, _ = _shop()
        broken = replace(kept, states=States(np.full_like(kept.states.values, np.nan), kept.states.counts))
        vectors = np.eye(LABELS, dtype=np.float32)
        nothing = Ragged(np.zeros(USERS + 1, np.int64), np.zeros(0, np.int32))
        hits, counts = np.zeros(len(gold.values), np.int32), np.zeros(0, np.int32)
        sampler = make_sampler(gold, hits, nothing, counts, np.ones(LABELS, bool), NegativesConfig())
        config = PropensityConfig(labels=2, width=8, heads=2)
        model = Propensity(config, 4, LABELS, torch.ones(LABELS, dtype=torch.bool))
        fit(model, broken, sampler, vectors, PropensityFitConfig(epochs=1), 1)
