"""From scores and rules to an audience: members with their arms, and everything that can be said of them in figures.

Only arrays come in, so that any scorer can stand behind it. What goes out is the same to the last byte for the same
arrays and the same request.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from merit.campaigns.audiences.combine import CombinedScores, Reals
from merit.campaigns.audiences.eligibility import WaterfallStep
from merit.campaigns.audiences.forecast import Forecast, ReliabilityBins, SizeForecast, forecast, histogram, sizes
from merit.campaigns.audiences.overlap import TREATED
from merit.campaigns.audiences.request import SMALLEST, ArmShare, AudienceRequest
from merit.campaigns.audiences.sizing import Rows, cut, members, ranking
from merit.campaigns.experiments.assign import arm_of
from merit.core.config import Frozen
from merit.core.errors import PolicyError

HOLDOUT, CONTROL = "holdout", "control"
ARMS = (HOLDOUT, CONTROL, TREATED)
DOUBTFUL = 0.5  # share by which probabilities may be off, from which a person is told
TELLING = 0.6  # chance that a seed ranks above another user, below which the seeds have little in common


class ResolvedInterest(Frozen):
    """An interest as the model understood it."""

    text: str
    label: int
    """Its number in the label space; -1 for a phrase that is no label."""
    nearest: str
    similarity: float
    far: bool
    weight: float


class AudienceProvenance(Frozen):
    """What an audience was made from, in hashes: equal ones give equal bytes."""

    model: str
    label_version: int
    users: int
    """Users the model knows."""
    tables: dict[str, dict[str, str]] = {}
    """Table as named in the request → its files → sha256."""


class AudienceSummary(Frozen):
    """An audience without its people."""

    request: AudienceRequest
    origin: AudienceProvenance
    interests: tuple[ResolvedInterest, ...]
    waterfall: tuple[WaterfallStep, ...]
    eligible: int
    members: int
    arms: dict[str, int]
    lowest: float
    """The lowest score that is in."""
    forecast: Forecast | None
    """None for a lookalike: likeness is no probability."""
    sizes: tuple[SizeForecast, ...]
    eligible_histogram: tuple[int, ...]
    member_histogram: tuple[int, ...]
    seeds: int | None = None
    separation: float | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Audience:
    """What `compose` gives: figures, and the people behind them."""

    figures: AudienceSummary
    rows: Rows
    """Where its members are among the users that were given, ascending."""
    _ranked: Callable[[], pl.DataFrame]

    @cached_property
    def members(self) -> pl.DataFrame:
        """user_id, rank, score, arm: best first. Made when it is asked for: figures need nobody's name nor rank."""
        return self._ranked()


@dataclass(frozen=True)
class ScoredUsers:
    """Everybody's score, and what is known of it."""

    found: CombinedScores
    interests: tuple[ResolvedInterest, ...] = ()
    kept: ReliabilityBins | None = None
    """None for a lookalike."""
    seeds: NDArray[np.bool_] | None = None
    separation: float | None = None


def compose(
    request: AudienceRequest,
    users: pl.Series,
    scored: ScoredUsers,
    eligible: NDArray[np.bool_],
    steps: tuple[WaterfallStep, ...],
    origin: AudienceProvenance,
) -> Audience:
    """Cut those who may be addressed, draw holdout and control, and count."""
    require_enough(int(eligible.sum()), steps)
    places = np.flatnonzero(eligible)
    scores = scored.found.score[places]
    falling = np.sort(scores)[::-1]

    def arms(rows: Rows) -> pl.Series:
        return arms_of(users.gather(places[rows]), request.holdout, request.control)

    def contacted(rows: Rows) -> NDArray[np.bool_]:
        return (arms(rows) == TREATED).to_numpy()

    part = cut(request.size, scores, falling, contacted, request.economics)
    count = part.stop - part.start
    require_enough(count, steps)
    inside = members(scores, falling, part)
    chosen = np.flatnonzero(inside)
    drawn = arms(chosen)
    contacts = places[chosen[(drawn == TREATED).to_numpy()]]

    def ranked() -> pl.DataFrame:
        order = ranking(scores, inside)
        ids = users.gather(places[order])
        return pl.DataFrame(
            {"user_id": ids, "rank": np.arange(1, count + 1), "score": scores[order], "arm": arms(order)}
        )

    figures = AudienceSummary(
        request=request,
        origin=origin,
        interests=scored.interests,
        waterfall=steps,
        eligible=len(places),
        members=count,
        arms={name: int((drawn == name).sum()) for name in ARMS},
        lowest=float(falling[part.stop - 1]),
        seeds=None if scored.seeds is None else int(scored.seeds.sum()),
        separation=scored.separation,
        **_ahead(request, scored, contacts, falling, part),
    )
    return Audience(figures.model_copy(update={"notes": tuple(_notes(figures))}), places[chosen], ranked)


def _ahead(
    request: AudienceRequest, scored: ScoredUsers, contacts: Rows, falling: Reals, part: slice
) -> dict[str, Any]:
    """What probabilities promise; nothing for a lookalike."""
    if scored.kept is None:
        return {"forecast": None, "sizes": (), "eligible_histogram": (), "member_histogram": ()}
    own = CombinedScores(*(each[contacts] for each in scored.found))
    return {
        "forecast": forecast(own, scored.kept, request.economics),
        "sizes": sizes(falling, request.economics),
        "eligible_histogram": histogram(falling),
        "member_histogram": histogram(falling[part]),
    }


def arms_of(users: pl.Series, holdout: ArmShare | None, control: ArmShare | None) -> pl.Series:
    """holdout, control or treatment: two lots that know nothing of each other, and the holdout goes first."""
    arms = np.full(len(users), ARMS.index(TREATED), dtype=np.uint8)
    for name, lot in ((CONTROL, control), (HOLDOUT, holdout)):
        if lot:
            drawn = arm_of(users, {name: lot.share, "others": 1 - lot.share}, lot.salt) == name
            arms[drawn.to_numpy()] = ARMS.index(name)
    return pl.Series("arm", arms).cat.to(pl.Enum(ARMS))


def require_enough(users: int, steps: tuple[WaterfallStep, ...]) -> None:
    """So few could be recognised, whatever the reason for them."""
    if users >= SMALLEST:
        return
    hungry = max(steps, key=lambda step: step.removed, default=None)
    told = f" The rule that takes most is '{hungry.rule}'." if hungry and hungry.removed else ""
    raise PolicyError(
        f"Fewer than {SMALLEST} users are left: that would be a list of people, not an audience.{told} Ask for more "
        "users, or ease a rule."
    )


def _notes(figures: AudienceSummary) -> list[str]:
    """What a person should know before anything is sent."""
    far = [each.text for each in figures.interests if each.far]
    told = [f"'{text}' is far from every interest the model knows: take its probabilities as a guess." for text in far]
    ahead = figures.forecast
    if ahead and ahead.high < 1:
        told.append("Hardly anyone is expected to convert. Ask for another interest.")
    if ahead and ahead.doubt > DOUBTFUL:
        told.append(
            f"Probabilities like these were off by about {100 * ahead.doubt:.0f} % among test users: rely on the "
            "order, not on the number of conversions."
        )
    if figures.separation is not None and figures.separation < TELLING:
        told.append(
            f"The seeds have little in common: half of them finds the other half {100 * figures.separation:.0f} times "
            "in 100, where chance finds 50."
        )
    if figures.arms[TREATED] < SMALLEST:
        told.append(f"Fewer than {SMALLEST} users would be contacted; such a list cannot be exported.")
    if figures.request.economics and figures.request.economics.caused == 1 and ahead and ahead.value is not None:
        told.append(
            "The value counts everybody who buys, also those who would have bought without the contact. Set "
            "economics.caused from an experiment."
        )
    return told
