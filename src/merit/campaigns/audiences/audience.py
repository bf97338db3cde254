"""From scores and rules to an audience: its members with their arms, and a summary in figures.

Only arrays come in, so that any scorer fits. The same arrays and the same request give the same result to the last
byte. Users are not ranked to be chosen: sorted scores say how many are above any of them, and the last score that is in
says who is in. That is a fraction of the time of sorting users.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import Field

from merit.campaigns.audiences import disclosure
from merit.campaigns.audiences.diagnosis import BoughtBefore, Diagnosis, ResolvedWindow, diagnose, window_notes
from merit.campaigns.audiences.disclosure import AudienceNoise, Noise
from merit.campaigns.audiences.eligibility import Mask, WaterfallStep
from merit.campaigns.audiences.forecast import (
    CombinedScores,
    Forecast,
    Reals,
    ReliabilityBins,
    SizeForecast,
    forecast,
    gain,
    histogram,
    sizes,
)
from merit.campaigns.audiences.request import ArmShare, AudienceRequest, BudgetSize, Economics, Size, unset
from merit.campaigns.experiments.assign import arm_of
from merit.core.config import Frozen
from merit.core.errors import DataError, PolicyError
from merit.privacy.floor import SMALLEST
from merit.report.page import summary_html

Rows = NDArray[np.int64]
Contacted = Callable[[Rows], Mask]  # which of these rows are neither in the holdout nor in the control
HOLDOUT, CONTROL, TREATED = ARMS = ("holdout", "control", "treatment")
DOUBTFUL = 0.5  # share by which probabilities may be off, from which a note says so
TELLING = 0.6  # AUC of seeds against other users, below which the seeds have little in common
ROUNDING = 1e-9  # 0.3 / 0.1 is not quite 3
FIRST = 65_536  # users who are checked at first whether they are contacted


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
    """An audience in figures, without its members."""

    request: AudienceRequest
    origin: AudienceProvenance
    interests: tuple[ResolvedInterest, ...]
    waterfall: tuple[WaterfallStep, ...]
    eligible: int
    members: int
    arms: dict[str, int]
    lowest: float | None
    """The lowest score that is in; in a preview the lower end of its bin, and None for a lookalike."""
    forecast: Forecast | None = None
    """None for a lookalike, like all that comes of probabilities: likeness is none."""
    sizes: tuple[SizeForecast, ...] = ()
    eligible_histogram: tuple[int, ...] = ()
    member_histogram: tuple[int, ...] = ()
    seeds: int | None = None
    separation: float | None = None
    window: ResolvedWindow | None = Field(None, exclude_if=unset)
    """Within which a purchase counts; without one it is the next purchase, whenever it comes."""
    diagnosis: Diagnosis | None = Field(None, exclude_if=unset)
    """Of an audience within a window."""
    notes: tuple[str, ...] = ()

    def _repr_html_(self) -> str:
        from merit.campaigns.audiences.report import audience_page  # it imports this module

        return summary_html(audience_page(self))


@dataclass(frozen=True)
class Audience:
    """What `compose` returns: figures, and the users behind them."""

    figures: AudienceSummary
    rows: Rows
    """Rows of the members among the given users, ascending."""
    noise: AudienceNoise
    _ranked: Callable[[], pl.DataFrame]

    def _repr_html_(self) -> str:
        return self.figures._repr_html_()

    @cached_property
    def published(self) -> AudienceSummary:
        """The figures with noise, for whoever may not see the members."""
        figures = disclosure.published(self.figures, self.noise)
        return figures.model_copy(update={"notes": tuple(_notes(figures))})

    @cached_property
    def members(self) -> pl.DataFrame:
        """user_id, rank, score, arm: best first. Made on first use: figures need no id and no rank."""
        return self._ranked()


@dataclass(frozen=True)
class ScoredUsers:
    """The scores of all users, and where they come from."""

    scores: CombinedScores
    interests: tuple[ResolvedInterest, ...] = ()
    reliability: ReliabilityBins | None = None
    """None for a lookalike."""
    seeds: Mask | None = None
    separation: float | None = None
    secret: str = ""
    """Of the model: it decides the noise of what is published."""
    window: ResolvedWindow | None = None
    before: BoughtBefore | None = None
    """Of a window."""


def compose(
    request: AudienceRequest,
    users: pl.Series,
    scored: ScoredUsers,
    eligible: Mask,
    steps: tuple[WaterfallStep, ...],
    origin: AudienceProvenance,
) -> Audience:
    """Choose members among the eligible users, draw holdout and control, and count."""
    candidates, noise_of = np.flatnonzero(eligible), partial(Noise, scored.secret)
    available = len(candidates) - (noise_of(candidates).margin() if steps else 0)  # without a rule, no secret
    require_enough(available, steps)
    if request.size.by == "count" and request.size.users > available:
        raise DataError(
            f"About {available:,} users are eligible, and {request.size.users:,} are asked for. Ask for fewer, or "
            "ease a rule (`merit audience preview` shows what each of them takes)."
        )
    scores = scored.scores.score[candidates]
    falling = np.sort(scores)[::-1]

    def arms(rows: Rows) -> pl.Series:
        return arms_of(users.gather(candidates[rows]), request.holdout, request.control)

    def contacted(rows: Rows) -> Mask:
        return (arms(rows) == TREATED).to_numpy()

    part = cut(request.size, scores, falling, contacted, request.economics)
    count, inside = part.stop - part.start, members(scores, falling, part)
    chosen = np.flatnonzero(inside)
    of_members = noise_of(candidates[chosen])
    require_enough(count if request.size.by == "count" else count - of_members.margin(), steps)
    drawn = arms(chosen)
    contacts = candidates[chosen[(drawn == TREATED).to_numpy()]]

    def ranked() -> pl.DataFrame:
        order = ranking(scores, inside)
        ids, ranks = users.gather(candidates[order]), np.arange(1, count + 1)
        return pl.DataFrame({"user_id": ids, "rank": ranks, "score": scores[order], "arm": arms(order)})

    figures = AudienceSummary(
        request=request,
        origin=origin,
        interests=scored.interests,
        waterfall=steps,
        eligible=len(candidates),
        members=count,
        arms={name: int((drawn == name).sum()) for name in ARMS},
        lowest=float(falling[part.stop - 1]),
        seeds=None if scored.seeds is None else int(scored.seeds.sum()),
        separation=scored.separation,
        window=scored.window,
        diagnosis=scored.before and diagnose(request, scored.before, scored.scores.score, candidates[chosen]),
        **_forecasts(request, scored, contacts, falling, part),
    )
    noise = AudienceNoise(noise_of(candidates), of_members, noise_of(contacts))
    return Audience(figures.model_copy(update={"notes": tuple(_notes(figures))}), candidates[chosen], noise, ranked)


def _forecasts(
    request: AudienceRequest, scored: ScoredUsers, contacts: Rows, falling: Reals, part: slice
) -> dict[str, Any]:
    """What probabilities promise; nothing for a lookalike."""
    if scored.reliability is None:
        return {}
    scores = CombinedScores(*(values[contacts] for values in scored.scores))
    return {
        "forecast": forecast(scores, scored.reliability, request.economics),
        "sizes": sizes(falling, request.economics),
        "eligible_histogram": histogram(falling),
        "member_histogram": histogram(falling[part]),
    }


def arms_of(users: pl.Series, holdout: ArmShare | None, control: ArmShare | None) -> pl.Series:
    """holdout, control or treatment: two independent draws, and the holdout goes first."""
    arms = np.full(len(users), ARMS.index(TREATED), dtype=np.uint8)
    for name, part in ((CONTROL, control), (HOLDOUT, holdout)):
        if part:
            drawn = arm_of(users, {name: part.share, "others": 1 - part.share}, part.salt) == name
            arms[drawn.to_numpy()] = ARMS.index(name)
    return pl.Series("arm", arms).cat.to(pl.Enum(ARMS))


def require_enough(users: int, steps: tuple[WaterfallStep, ...]) -> None:
    """Refuse audiences so small that users could be recognised."""
    if users >= SMALLEST:
        return
    largest = max(steps, key=lambda step: step.removed, default=None)
    rule = f" The rule that takes most is '{largest.rule}'." if largest and largest.removed else ""
    raise PolicyError(
        f"Fewer than {SMALLEST} users are left: that would be a list of people, not an audience.{rule} Ask for more "
        "users, or ease a rule."
    )


def _notes(figures: AudienceSummary) -> list[str]:
    """What a person should know before anything is sent."""
    far = [interest.text for interest in figures.interests if interest.far]
    notes = [f"'{text}' is far from every interest the model knows: take its probabilities as a guess." for text in far]
    forecast, economics = figures.forecast, figures.request.economics
    if forecast and forecast.high < 1:
        notes.append("Hardly any user is expected to convert. Choose another interest.")
    if forecast and forecast.doubt > DOUBTFUL:
        notes.append(
            f"Probabilities like these were off by about {100 * forecast.doubt:.0f} % among test users: rely on the "
            "order, not on the number of conversions."
        )
    if figures.separation is not None and figures.separation < TELLING:
        notes.append(
            f"The seeds have little in common: half of them finds the other half {100 * figures.separation:.0f} times "
            "in 100, where chance finds 50."
        )
    notes += window_notes(figures.window, figures.diagnosis)
    if figures.arms[TREATED] < SMALLEST:
        notes.append(f"Fewer than {SMALLEST} users would be contacted; such a list cannot be exported.")
    if economics and economics.caused == 1 and forecast and forecast.value is not None:
        notes.append(
            "The value counts all who buy, also those who would have bought without the contact. Set "
            "economics.caused from an experiment."
        )
    return notes


# --- size ------------------------------------------------------------------------------------------------------------


def cut(size: Size, scores: Reals, falling: Reals, contacted: Contacted, economics: Economics | None) -> slice:
    """The ranks that the audience takes; `falling` are the scores best first."""
    match size.by:
        case "budget":
            return slice(0, _affordable(size, scores, falling, contacted, economics))
        case "count":
            return slice(0, size.users)
        case "percentile":
            return slice(0, math.floor(len(falling) * size.percent / 100 + ROUNDING))
        case "probability":
            return slice(int((falling > size.at_most).sum()), int((falling >= size.at_least).sum()))
        case "value":
            assert economics is not None
            return slice(0, int((gain(falling, economics) > 0).sum()))


def _affordable(
    size: BudgetSize, scores: Reals, falling: Reals, contacted: Contacted, economics: Economics | None
) -> int:
    """How many ranks the budget pays for. Only arms of users up to there are drawn."""
    assert economics is not None
    most = math.floor(min(size.budget / economics.cost_per_contact, len(falling)) + ROUNDING)
    users = min(len(falling), max(FIRST, most))
    while True:
        contacts = np.cumsum(contacted(ranking(scores, members(scores, falling, slice(0, users)))))
        if users == len(falling) or contacts[-1] > most:
            return int((contacts <= most).sum())
        users = min(len(falling), 2 * users)


def members(scores: Reals, falling: Reals, part: slice) -> Mask:
    """Which users have these ranks, without ranking all of them."""
    mask = np.zeros(len(scores), dtype=bool)
    if part.start < part.stop:
        first, last = falling[part.start], falling[part.stop - 1]
        mask[(scores < first) & (scores > last)] = True
        for score in {first, last}:  # equal scores go to the lower row
            above = int((falling > score).sum())
            mask[np.flatnonzero(scores == score)[max(0, part.start - above) : part.stop - above]] = True
    return mask


def ranking(scores: Reals, eligible: Mask) -> Rows:
    """Eligible rows, best first; equal scores go to the lower row."""
    rows = np.flatnonzero(eligible)
    return rows[np.argsort(-scores[rows], kind="stable")]
