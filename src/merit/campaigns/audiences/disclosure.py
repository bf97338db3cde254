"""What a preview may show: figures with noise, so that two previews cannot be subtracted to learn about one user.

Without it, an audience with a user and one without differ by that user's score, or by 1 where a rule or a cut knows the
user. Every count gets Laplace noise of three users, every sum of scores that of three users with the highest score.
The noise follows from the set of users that a figure counts, and from a secret of the model: the same users get the
same noise, so that asking again tells nothing new, and a set that differs by one user gets unrelated noise. Cuts and
refusals depend on counts too, and keep a random distance from the exact number.

docs/security.md says what remains possible: many different sets, averaged.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from merit.campaigns.audiences.eligibility import WaterfallStep
from merit.campaigns.audiences.forecast import EDGES, Forecast, SizeForecast
from merit.campaigns.audiences.request import ProbabilitySize
from merit.core.seeds import stream
from merit.privacy.floor import SMALLEST

if TYPE_CHECKING:
    from merit.campaigns.audiences.audience import AudienceSummary
    from merit.campaigns.audiences.diagnosis import Diagnosis

USERS = 3.0  # scale of the noise, in users: one user more or less changes the odds of any figure by e^(1/3) at most
STEP = 10  # counts are multiples of it, as no digit behind it means anything
MARGIN = 10  # how far a refusal may stay away from the exact number of users
FIGURES = 3  # significant ones, of a sum


@dataclass(frozen=True)
class Noise:
    """The noise of one set of users; another set, another noise."""

    secret: str
    rows: NDArray[np.int64]

    @cached_property
    def _digest(self) -> str:
        return sha256(self.rows.tobytes()).hexdigest()

    def _stream(self, what: str) -> np.random.Generator:
        return stream(0, "preview", self.secret, self._digest, what)

    def count(self, what: str, users: int) -> int:
        """Roughly so many users."""
        return max(0, STEP * round((users + self._stream(what).laplace(0, USERS)) / STEP))

    def total(self, what: str, value: float, unit: float) -> float:
        """Roughly this sum of scores, none of which is above `unit`."""
        return significant(max(0.0, value + float(self._stream(what).laplace(0, USERS * unit))))

    def margin(self) -> int:
        """How many users fewer than there are a refusal assumes."""
        return int(self._stream("margin").integers(MARGIN))

    def share(self, what: str, value: float) -> float:
        """Roughly this share of these users, in steps of a percent."""
        noisy = value + float(self._stream(what).laplace(0, USERS)) / len(self.rows)
        return round(min(1.0, max(0.0, noisy)), 2)

    def shares(self, table: pl.DataFrame) -> pl.DataFrame:
        """interest, share, base, index: shares of these users in steps of a percent, with noise."""
        users = len(self.rows)
        noise = [float(self._stream(f"share of {text}").laplace(0, USERS)) / users for text in table["interest"]]
        share = (pl.col("share") + pl.Series(noise, dtype=pl.Float64)).clip(0, 1).round(2)
        noisy = table.with_columns(share=share).with_columns(index=pl.col("share") / pl.col("base"))
        return noisy.sort("index", "interest", descending=[True, False])


@dataclass(frozen=True)
class AudienceNoise:
    """The noise of an audience's figures, by the users whom each of them counts."""

    eligible: Noise
    members: Noise
    contacted: Noise


def published(figures: AudienceSummary, noise: AudienceNoise) -> AudienceSummary:
    """The figures as a preview shows them."""
    eligible, steps = _waterfall(figures, noise.eligible)
    bars = [noise.eligible.count(f"bin {place}", users) for place, users in enumerate(figures.eligible_histogram)]
    exact = zip(figures.member_histogram, figures.eligible_histogram, bars, strict=True)
    inside = [  # a bin that lies in the audience as a whole has one number, not two to take the mean of
        shown if users == all_users else noise.members.count(f"bin {place}", users)
        for place, (users, all_users, shown) in enumerate(exact)
    ]
    members = _members(figures, eligible, noise.members)
    arms = _arms(figures, members, noise.contacted)
    unit = _highest(figures.eligible_histogram)
    changes: dict[str, Any] = {
        "waterfall": steps,
        "eligible": eligible,
        "members": members,
        "arms": arms,
        "lowest": _lowest(bars, members, figures),
        "forecast": figures.forecast and _forecast(figures, figures.forecast, arms["treatment"], unit, noise.contacted),
        "sizes": tuple(_size(size, figures, eligible, bars, unit, noise.eligible) for size in figures.sizes),
        "eligible_histogram": tuple(bars),
        "member_histogram": tuple(inside),
        "seeds": None if figures.seeds is None else noise.eligible.count("seeds", figures.seeds),
        "diagnosis": figures.diagnosis and _diagnosis(figures.diagnosis, noise.members),
        "separation": None if figures.separation is None else round(figures.separation, 2),
    }
    return figures.model_copy(update=changes)


def _waterfall(figures: AudienceSummary, noise: Noise) -> tuple[int, tuple[WaterfallStep, ...]]:
    """The eligible users, and the steps to them. How many users the model has is no secret."""
    left, steps = figures.origin.users, []
    for place, step in enumerate(figures.waterfall):
        after = max(SMALLEST, min(left, noise.count(f"step {place}", step.left)))
        steps.append(step.model_copy(update={"removed": left - after, "left": after}))
        left = after
    seeds = (figures.waterfall[-1].left if figures.waterfall else figures.origin.users) - figures.eligible
    return max(SMALLEST, left - noise.count("seeds left out", seeds)) if seeds else left, tuple(steps)


def _members(figures: AudienceSummary, eligible: int, noise: Noise) -> int:
    """A count of the request is known, and a share of the eligible follows from them."""
    size = figures.request.size
    match size.by:
        case "count":
            return size.users
        case "percentile":
            return max(SMALLEST, math.floor(eligible * size.percent / 100))
        case _:
            return max(SMALLEST, min(eligible, noise.count("members", figures.members)))


def _arms(figures: AudienceSummary, members: int, noise: Noise) -> dict[str, int]:
    left, arms = members, {}
    for name, users in figures.arms.items():  # the treatment comes last
        drawn = getattr(figures.request, name, None)
        arms[name] = left if name == "treatment" else min(left, noise.count(name, users)) if drawn else 0
        left -= arms[name]
    return arms


def _forecast(figures: AudienceSummary, exact: Forecast, users: int, unit: float, noise: Noise) -> Forecast:
    conversions = noise.total("conversions", exact.conversions, unit)
    shift = conversions - exact.conversions
    low, high = (max(0.0, float(round(value + shift))) for value in (exact.low, exact.high))
    least, most = (
        conversions if value == exact.conversions else noise.total(name, value, unit)
        for name, value in (("least", exact.least), ("most", exact.most))
    )
    money, economics = {}, figures.request.economics
    if economics:
        money["cost"] = economics.cost_per_contact * users
    if economics and economics.value_per_conversion:
        value = economics.value_per_conversion * economics.caused
        ends = {"value": conversions, "value_low": low, "value_high": high}
        money |= {name: significant(bought * value - money["cost"]) for name, bought in ends.items()}
    return Forecast(
        users=users,
        conversions=conversions,
        low=low,
        high=min(float(users), high),
        least=min(least, conversions),
        most=max(most, conversions),
        doubt=round(exact.doubt, 2),
        **money,
    )


def _diagnosis(exact: Diagnosis, noise: Noise) -> Diagnosis:
    """Sums and shares of the members, with noise."""
    changes: dict[str, float] = {
        "bought_before": noise.share("bought before", exact.bought_before),
        "new_to_category": noise.share("new to the category", exact.new_to_category),
    }
    for name in ("expected", "added"):
        if (value := getattr(exact, name)) is not None:
            changes[name] = noise.total(name, value, 1.0)
    return exact.model_copy(update=changes)


def _size(
    size: SizeForecast, figures: AudienceSummary, eligible: int, bars: Sequence[int], unit: float, noise: Noise
) -> SizeForecast:
    economics, users = figures.request.economics, math.floor(eligible * size.percent / 100)
    conversions = noise.total(f"best {size.percent}", size.conversions, unit)
    brings = economics.caused * (economics.value_per_conversion or 0) if economics else 0
    gain = significant(conversions * brings - economics.cost_per_contact * users) if economics else None
    lowest = _edge_above(bars, users)
    return SizeForecast(percent=size.percent, users=users, lowest=lowest, conversions=conversions, gain=gain)


def _lowest(bars: Sequence[int], members: int, figures: AudienceSummary) -> float | None:
    """The lower end of the bin in which the audience ends; one user's likeness would be a score."""
    if not bars:
        return None
    size = figures.request.size
    return size.at_least if isinstance(size, ProbabilitySize) else _edge_above(bars, members)


def _edge_above(bars: Sequence[int], users: int) -> float:
    """Where so many users end, counted from the likeliest bin."""
    above = list(accumulate(reversed(bars)))
    place = next((len(bars) - 1 - at for at, total in enumerate(above) if total >= users), 0)
    return EDGES[place] if place else 0.0


def _highest(histogram: Sequence[int]) -> float:
    """A bound of all scores: the upper end of the likeliest bin that has a user."""
    return EDGES[1 + max((place for place, users in enumerate(histogram) if users), default=len(EDGES) - 2)]


def significant(value: float) -> float:
    """Three figures: noise has taken the others."""
    return float(f"{value:.{FIGURES}g}")
