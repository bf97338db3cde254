"""How often a refresh asks for a new training: by chance alone, and when something has drifted.

    python -m benchmarks.drift            # 200 seeds of eight weekly refreshes without drift, 40 of each planted one
    python -m benchmarks.drift --quick

A shop's users have rates and tastes of their own, a purchase has a label, its parent and its shelf, and probabilities
are those that purchases are drawn by. Its figures go through the functions that judge a refresh.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks import harness
from merit.core.console import show_table
from merit.core.seeds import stream
from merit.refresh import drift
from merit.refresh.drift import Drift, WatchConfig

LABELS, PARENTS, SHELVES = 120, 30, 8
WEEKS = 8
SIZES = (150, 400, 1_000)  # users: small shops have more chance in their figures


@dataclass(frozen=True)
class Planted:
    """What drifts; nothing by default."""

    moved: float = 0.0
    """Share of purchases that go to labels of another shop's taste."""
    rate: float = 1.0
    """Events of a user, times this."""
    scores: float = 0.0
    """Standard deviations by which scores move."""
    unknown: float = 0.0
    """Share of events with unknown items."""
    promised: float = 1.0
    """Probabilities, times this."""


NOTHING = Planted()
DRIFTS = {
    "labels bought": Planted(moved=0.5),
    "events per user": Planted(rate=0.3),
    "scores": Planted(scores=1.0),
    "unknown items": Planted(unknown=0.2),
    "probabilities": Planted(promised=2.0),
}


class Users(NamedTuple):
    """Users of a simulated shop."""

    rates: NDArray[np.float64]  # events a week
    tastes: NDArray[np.float64]  # (users, labels): of a purchase
    other: NDArray[np.float64]  # (labels,): what is bought where taste has moved
    scores: NDArray[np.float64]


def users(size: int, rng: np.random.Generator) -> Users:
    """Some users, a few of them busy."""
    popular = rng.dirichlet(1 / np.arange(1, LABELS + 1))
    tastes = rng.dirichlet(3 * LABELS * popular / popular.sum() * 0.05 + 0.01, size)
    return Users(rng.gamma(0.8, 5.0, size), tastes, rng.permutation(popular), rng.normal(0, 1, size))


def weekly(made: Users, planted: Planted, rng: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """Events of each user in a week, how often labels were bought in a purchase of each buyer, and the buyers."""
    events = rng.poisson(made.rates * planted.rate)
    buyers = np.flatnonzero(events)
    drawn = (made.tastes[buyers].cumsum(1) > rng.random(len(buyers))[:, None]).argmax(1)
    moved = rng.random(len(buyers)) < planted.moved
    drawn[moved] = rng.choice(LABELS, int(moved.sum()), p=made.other)
    bought = np.concatenate([drawn, LABELS + drawn % PARENTS, LABELS + PARENTS + drawn % SHELVES])
    return events, np.bincount(bought, minlength=LABELS + PARENTS + SHELVES), len(buyers)


def alarms(size: int, planted: Planted, seed: int, weeks: int = WEEKS) -> list[str]:
    """Why a simulated shop would be trained anew, of any of its weekly refreshes."""
    rng = stream(seed, "drift", size)
    made, config = users(size, rng), WatchConfig()
    events, labels, buyers = weekly(made, NOTHING, rng)
    edges, raised = np.quantile(made.scores, np.linspace(0, 1, 11)[1:-1]), list[str]()
    for _ in range(weeks):
        now, bought, came = weekly(made, planted, rng)
        scores = made.scores + planted.scores + rng.normal(0, 0.2, size)
        tenths = np.bincount(np.searchsorted(edges, scores), minlength=10)
        drifts: dict[str, Drift] = {
            "events": drift.psi(drift.per_user(events), drift.per_user(now)),
            "labels": drift.labels(labels, bought, (buyers, came)),
            "scores": drift.psi(np.full(10, size / 10), tenths),
        }
        unknown = float(rng.binomial(max(1, int(now.sum())), planted.unknown) / max(1, int(now.sum())))
        raised += drift.reasons(drifts, unknown, _kept(made, planted, rng), config)
    return raised


def _kept(made: Users, planted: Planted, rng: np.random.Generator) -> drift.Kept:
    chances = np.minimum(3 * made.tastes[: len(made.tastes) // 2], 0.9)
    bought, none = rng.random(chances.shape) < chances, np.zeros(len(chances))
    expected = planted.promised * rng.uniform(0.8, 1.2) * chances.sum(1)  # a curve is not exact, and seasons pass
    return drift.kept(expected, bought.sum(1), none, none)


def rate(planted: Planted, seeds: range, weeks: int = WEEKS) -> float:
    """The share of shops, of all sizes in turn, that are to be trained anew."""
    return float(np.mean([bool(alarms(SIZES[seed % len(SIZES)], planted, seed, weeks)) for seed in seeds]))


def main() -> None:
    given = harness.parser(__doc__).parse_args()
    seeds, few = range(200), range(9 if given.quick else 42)
    rows: list[tuple[Any, ...]] = [("nothing", rate(NOTHING, seeds), len(seeds))]
    rows += [(name, rate(planted, few), len(few)) for name, planted in DRIFTS.items()]
    show_table("A new training is asked for", ["drift of", "share", "seeds"], rows)
    figures = {"false_alarms": rows[0][1], **{name.replace(" ", "_"): share for name, share, _ in rows[1:]}}
    harness.finish("drift", figures, given.seed)


if __name__ == "__main__":
    harness.run(main)
