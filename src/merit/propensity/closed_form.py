"""The factor model without gradients: a regression in closed form, and a logistic regression of a few weights.

The regression of low rank (`ridge`) tells how much more likely than usual each label is after a history; a logistic
regression then finds what that is worth in log-odds, beside popularity, repeats and trends. It is fitted on scores that
half of the users get from the regression of the other half, so that what was learnt by heart counts for nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from scipy.optimize import minimize

from merit.core import console
from merit.core.config import Frozen
from merit.core.ragged import Ragged, owners, pair_keys
from merit.core.seeds import stream
from merit.core.types import Floats, Ints
from merit.propensity.factor_scorer import Doubles, FactorWeights, summed_history
from merit.propensity.features import UserFeatures
from merit.propensity.ridge import Equations, equations, low_rank, most_bought, solve

HALVES = 2
Factors = tuple[Floats, Floats]
POWERS = (0.0, 0.25, 0.5)  # of a label's popularity: by these what the regression says is divided, each with a weight
WEIGHTS = (*(f"scale_{power:g}" for power in POWERS), "popularity", "first", "often", "share", "again", "trend", "bias")
RAREST = float(np.log(1e-3))  # no label's part of the regression is raised by more than this popularity asks for
BLOCK = 65_536  # pairs at a time
SHRINK = 1e-3  # of the few weights, per purchase; three of them speak of nearly the same


class ClosedFormConfig(Frozen):
    """How the factor model of the quick preset is fitted."""

    factors: int = Field(128, ge=2)
    """Of a label; the last is its popularity."""
    strength: float = Field(100.0, gt=0)
    """Of the regularisation of the regression. Histories are rows of length one, so one number fits every data set."""
    labels: int = Field(4_096, ge=1)
    """So many of the most popular labels are solved for, in memory of their square; the others have what their text
    and their popularity tell."""
    text_strength: float = Field(10.0, gt=0)
    """Of the regression from text vectors to factors, for labels that training never saw."""
    purchases: int = Field(4_096, ge=1)
    """The few weights are fitted on so many of them."""
    sampled: int = Field(64, ge=1)
    """Labels drawn for each of these, beside those bought and those of the history."""


@dataclass(frozen=True)
class _Pairs:
    """Users and labels for the logistic regression."""

    owner: Ints
    labels: Ints
    truth: NDArray[np.bool_]
    weights: Doubles
    """How many pairs each stands for."""


def fit_closed_form(
    features: UserFeatures,
    gold: Ragged,
    half: Ints,
    live: NDArray[np.bool_],
    texts: Floats,
    config: ClosedFormConfig,
    seed: int,
) -> tuple[FactorWeights, dict[str, float]]:
    """The weights of the factor model, and the few of the logistic regression by name. `half` is that of each user."""
    labels = most_bought(gold, len(live), config.labels)
    with console.spinner("solving the factor model"):
        whole, first = _regressions(features, gold, half, labels, len(live), config, seed)
    second = np.flatnonzero(half == HALVES - 1)
    chosen = np.sort(stream(seed, "closed-form").permutation(second)[: config.purchases])
    pairs = _sampled(features.history, gold, chosen, live, config.sampled, seed)
    log_odds = _log_odds(gold, live)
    with console.spinner("fitting what it is worth beside popularity, repeats and trends"):
        columns = _columns(features.gather(chosen), pairs, first, log_odds, live)
        weights = _logistic(columns, pairs)
    few = dict(zip(WEIGHTS, weights.tolist(), strict=True))
    return _weights(whole, labels, few, log_odds, live, texts, config.text_strength), few


def _regressions(
    features: UserFeatures, gold: Ragged, half: Ints, labels: Ints, n_labels: int, config: ClosedFormConfig, seed: int
) -> tuple[Factors, Factors]:
    """History and label factors (C, R - 1) of all users, and of the first half of them."""
    parts: list[Equations] = []
    for number in range(HALVES):
        rows = np.flatnonzero(half == number)
        part = features.gather(rows)
        parts.append(equations(part.history, part.times, gold.gather(rows), n_labels, labels))
    whole = (parts[0][0] + parts[1][0], parts[0][1] + parts[1][1])
    solved = []
    for sums, strength in ((whole, config.strength), (parts[0], config.strength / HALVES)):
        both = np.zeros((2, n_labels, config.factors - 1), np.float32)
        factors = low_rank(solve(sums, strength), config.factors - 1, seed)
        for table, values in zip(both, factors, strict=True):
            table[labels, : values.shape[1]] = values
        solved.append((both[0], both[1]))
    return solved[0], solved[1]


def _log_odds(gold: Ragged, live: NDArray[np.bool_]) -> Floats:
    """(C,): the logarithm of the share of purchases that each label is in; that of the average one where it is dead."""
    bought = np.log(np.maximum(np.bincount(gold.values, minlength=len(live)), 0.5) / len(gold))
    return np.where(live, bought, bought[live].mean()).astype(np.float32)


def _sampled(history: Ragged, gold: Ragged, chosen: Ints, live: NDArray[np.bool_], sampled: int, seed: int) -> _Pairs:
    """All golds and all labels of the history of each purchase, and some others, which stand for all others."""
    n_labels, rng = len(live), stream(seed, "closed-form", "labels")
    wanted, had = gold.gather(chosen), history.gather(chosen)
    drawn = rng.choice(np.flatnonzero(live), (len(chosen), sampled))
    gold_keys, had_keys = np.unique(pair_keys(wanted, n_labels)), pair_keys(had, n_labels)
    certain = np.union1d(gold_keys, had_keys)
    others = np.setdiff1d((np.arange(len(chosen))[:, None] * n_labels + drawn).ravel(), certain)
    certain = certain[live[certain % n_labels]]
    left = live.sum() - np.bincount(certain // n_labels, minlength=len(chosen))
    owner = others // n_labels
    weights = (left / np.maximum(np.bincount(owner, minlength=len(chosen)), 1))[owner]
    keys = np.concatenate([certain, others])
    return _Pairs(
        keys // n_labels, keys % n_labels, np.isin(keys, gold_keys), np.concatenate([np.ones(len(certain)), weights])
    )


def _columns(part: UserFeatures, pairs: _Pairs, factors: Factors, log_odds: Floats, live: NDArray[np.bool_]) -> Floats:
    """(pairs, WEIGHTS): what each weight is multiplied by, with the regression of other users."""
    columns = np.zeros((len(pairs.owner), len(WEIGHTS)), np.float32)
    history, label = factors
    users = summed_history(part, history, live).astype(np.float32)
    for at in range(0, len(columns), BLOCK):
        block = slice(at, at + BLOCK)
        products = (users[pairs.owner[block]] * label[pairs.labels[block]]).sum(axis=1)
        columns[block, : len(POWERS)] = products[:, None] * _scales(log_odds[pairs.labels[block]])
    counts, shares = _counts(part, pairs, len(live))
    had, popularity = counts > 0, log_odds[pairs.labels]
    columns[:, len(POWERS) :] = np.stack(
        [
            popularity,
            had,
            np.log1p(counts),
            np.where(had, np.log(np.maximum(shares, 1e-9)), 0),
            had * (popularity - log_odds[live].mean()),
            part.trends.table[part.trends.weeks[pairs.owner], pairs.labels] if part.trends else 0 * popularity,
            np.ones(len(had)),
        ],
        axis=1,
    )
    return columns


def _scales(log_odds: Floats) -> Floats:
    """(n, POWERS): what a regression of probabilities is multiplied by, to be one of log-odds."""
    scales: Floats = np.exp(-np.maximum(log_odds, RAREST)[:, None] * np.array(POWERS, np.float32))
    return scales


def _counts(part: UserFeatures, pairs: _Pairs, n_labels: int) -> tuple[Doubles, Doubles]:
    """How often the label of each pair is in the history of its user, and the share."""
    keys, owner = pair_keys(part.history, n_labels), owners(part.history)
    place = np.searchsorted(keys, wanted := pairs.owner * n_labels + pairs.labels)
    present = keys[np.minimum(place, len(keys) - 1)] == wanted if len(keys) else np.zeros(len(wanted), bool)
    times = np.zeros(len(wanted))
    times[present] = part.times[place[present]]
    totals = np.maximum(np.bincount(owner, weights=part.times, minlength=len(part)), 1)
    return times, times / totals[pairs.owner]


def _logistic(columns: Floats, pairs: _Pairs) -> Doubles:
    """The weights of the columns by weighted logistic regression, slightly shrunk; columns are brought to one scale."""
    scale = np.append(np.maximum(columns[:, :-1].std(axis=0), 1e-6), 1.0)
    wide, truth, weights = columns / scale, pairs.truth.astype(np.float64), pairs.weights
    total = (weights * truth).sum()

    def loss(solution: Doubles) -> tuple[float, Doubles]:
        scores = wide @ solution
        losses = weights * (np.logaddexp(0, scores) - truth * scores)
        errors = weights * (1 / (1 + np.exp(-scores)) - truth)
        return (
            float(losses.sum() / total + SHRINK * solution[:-1] @ solution[:-1]),
            wide.T @ errors / total + 2 * SHRINK * np.append(solution[:-1], 0),
        )

    start = scale * np.array([float(name == "popularity") for name in WEIGHTS])
    solution: Doubles = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 200}).x / scale
    return solution


def _weights(
    whole: Factors,
    labels: Ints,
    few: dict[str, float],
    log_odds: Floats,
    live: NDArray[np.bool_],
    texts: Floats,
    text_strength: float,
) -> FactorWeights:
    """The regression of all users with the few weights in it, and the text vectors' part of the factors."""
    history, label = whole
    average, slope = float(log_odds[live].mean()), few["popularity"]
    scaled = label * (_scales(log_odds) @ np.array([few[name] for name in WEIGHTS[: len(POWERS)]], np.float32))[:, None]
    seen = labels[live[labels]]
    gram = texts[seen].T @ texts[seen] + text_strength * np.eye(texts.shape[1], dtype=np.float32)
    of_text = np.linalg.solve(gram, texts[seen].T @ scaled[seen]).T
    own_factors = np.zeros((len(live), label.shape[1] + 1), np.float32)
    own_factors[seen, :-1] = scaled[seen] - texts[seen] @ of_text.T
    own_factors[:, -1] = slope * (log_odds - average)
    repeat_bias = np.zeros(own_factors.shape[1], np.float32)
    repeat_bias[-1] = few["again"] / slope if slope else 0.0
    single = {name: np.array([value], np.float32) for name, value in few.items()}
    return FactorWeights(
        label_factors=own_factors,
        history_factors=history,
        of_text=np.concatenate([of_text, np.zeros((1, texts.shape[1]), np.float32)]).astype(np.float32),
        repeat=np.concatenate([single[name] for name in ("first", "often", "share")]),
        repeat_bias=repeat_bias,
        trend_weight=single["trend"],
        bias=single["bias"] + np.float32(slope * average),
        trained=live,
    )
