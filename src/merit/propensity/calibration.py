"""From scores to probabilities: the share of pairs with this score that came true, among users held out from training.

Scores are counted in narrow bins as they come, so any number of pairs fits in memory. The curve through the bins is
made monotone (isotonic regression, each bin with its weight). To each bin one pair is added with the probability that
the score itself gives, so that the curve rises everywhere, and probabilities rank as scores do.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from merit.core.errors import DataError
from merit.core.types import Floats

EDGES = np.linspace(-20, 20, 801)  # log-odds in steps of 0.05
CENTRES = (EDGES[:-1] + EDGES[1:]) / 2
SLOPE = 1e-3  # of the curve, at least, in log-odds per log-odds


@dataclass
class ScoreTally:
    """Pairs and hits by score."""

    pairs: NDArray[np.float64] = field(default_factory=lambda: np.zeros(len(CENTRES)))
    hits: NDArray[np.float64] = field(default_factory=lambda: np.zeros(len(CENTRES)))

    def add(self, scores: NDArray[np.floating], truth: NDArray[np.bool_], weights: NDArray[Any] | None = None) -> None:
        """Count pairs by their scores in log-odds, those beyond ±20 in the last bins. NaN and infinity are refused."""
        if not np.isfinite(scores).all():
            raise DataError("Some scores are not numbers; the propensity model cannot be calibrated. Train it again.")
        bins = np.clip(np.searchsorted(EDGES, scores, side="right") - 1, 0, len(CENTRES) - 1)
        self.pairs += np.bincount(bins, weights, len(CENTRES))
        self.hits += np.bincount(bins[truth], None if weights is None else weights[truth], len(CENTRES))


@dataclass(frozen=True)
class CalibrationCurve:
    """A rising, piecewise linear curve from scores to calibrated log-odds."""

    scores: tuple[float, ...]
    log_odds: tuple[float, ...]

    def probability(self, scores: NDArray[np.floating]) -> NDArray[np.float64]:
        """Calibrated probabilities of scores in any shape. Beyond its ends the curve has slope one."""
        raw = np.asarray(scores, dtype=np.float64)
        inside = np.interp(raw, self.scores, self.log_odds)
        beyond = np.minimum(raw - self.scores[0], 0) + np.maximum(raw - self.scores[-1], 0)
        return _probability(inside + beyond)


def fit_curve(blocks: Iterable[tuple[Floats, NDArray[np.bool_]]]) -> CalibrationCurve:
    """The curve through scores of held-out users, of which it is known whether they came true."""
    tally = ScoreTally()
    for scores, truth in blocks:
        tally.add(scores.ravel(), truth.ravel())
    return calibrate(tally)


def calibrate(tally: ScoreTally) -> CalibrationCurve:
    """The curve through a tally of held-out users."""
    from scipy.optimize import isotonic_regression  # only training needs it

    if not tally.hits.sum():
        raise DataError("No user held out for calibration bought anything: hold out more (prepare.split.validation).")
    model = _probability(CENTRES)
    weights = tally.pairs + 1
    share = (tally.hits + model) / weights
    rising = isotonic_regression(share, weights=weights).x
    log_odds = np.log(rising) - np.log1p(-rising)
    log_odds = np.maximum.accumulate(log_odds - SLOPE * CENTRES) + SLOPE * CENTRES
    filled = np.flatnonzero(tally.pairs)
    used = slice(int(filled[0]), int(filled[-1]) + 1)
    return CalibrationCurve(tuple(CENTRES[used].tolist()), tuple(log_odds[used].tolist()))


def _probability(log_odds: NDArray[np.float64]) -> NDArray[np.float64]:
    return 1 / (1 + np.exp(-log_odds))
