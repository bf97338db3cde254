"""An audience within a window: which question its order answers, and how much of what it promises would come anyway."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta

from merit.campaigns.audiences.forecast import Reals
from merit.campaigns.audiences.products import ResolvedProducts
from merit.campaigns.audiences.request import AudienceRequest
from merit.core.config import Frozen
from merit.core.types import Ints
from merit.propensity.purchases import Mask

MOSTLY = 0.5  # of the members, who bought before
UNKNOWN = 0.1  # of a list of products, from which a note says how many the model does not know
QUESTIONS = {
    "buyers": "Who will buy these products in these days, contacted or not?",
    "new": "Who will buy these products in these days for the first time, contacted or not?",
    "uplift": "Whom does a contact make buy these products, who would not have done so without?",
}


class ResolvedWindow(Frozen):
    """The window of an audience, and its lists and rules of products."""

    start: date
    days: int
    products: tuple[ResolvedProducts, ...] = ()

    @property
    def last(self) -> date:
        """The last day of it."""
        return self.start + timedelta(days=self.days - 1)


class Diagnosis(Frozen):
    """What ranks high, and how much of it would come without a contact."""

    question: str
    """The one that the order of users answers."""
    bought_before: float
    """The share of members who bought one of these products in the model's data."""
    new_to_category: float
    """The share of members who bought nothing of their categories there."""
    expected: float | None = None
    """Where users are ranked by uplift: buyers expected among the members, contacted or not; else the forecast says."""
    added: float | None = None
    """And buyers that contacting all members is expected to add."""


@dataclass(frozen=True)
class BoughtBefore:
    """Of all users, in the order of their scores."""

    products: Mask
    """Who bought one of these products."""
    category: Mask
    """Who bought anything of their categories."""
    chances: Reals | None = None
    """To buy, where users are ranked by what a contact adds."""


def diagnose(request: AudienceRequest, before: BoughtBefore, scores: Reals, members: Ints) -> Diagnosis:
    """What is known of these users, by the scores of all."""
    scores = scores[members]
    question = "uplift" if before.chances is not None else "new" if request.new_to else "buyers"
    return Diagnosis(
        question=QUESTIONS[question],
        bought_before=float(before.products[members].mean()),
        new_to_category=float(1 - before.category[members].mean()),
        expected=None if before.chances is None else float(before.chances[members].sum()),
        added=None if before.chances is None else float(scores.sum()),
    )


def window_notes(window: ResolvedWindow | None, diagnosis: Diagnosis | None) -> list[str]:
    """What a person should know of a window before anything is sent."""
    notes = []
    for part in window.products if window else ():
        if part.unknown > UNKNOWN * (part.unknown + part.products):
            notes.append(
                f"{part.name}: {part.unknown:,} of {part.unknown + part.products:,} products are unknown to the model, "
                f"such as {', '.join(part.examples)}; the audience is about the other {part.products:,}."
            )
        if part.blocked:
            notes.append(
                f"{part.name}: {part.blocked:,} products carry labels that the policy blocks and are left out."
            )
    if diagnosis and diagnosis.added is None and diagnosis.bought_before > MOSTLY:
        notes.append(
            f"{100 * diagnosis.bought_before:.0f} % of the members bought these products before, and many of them will "
            "again without a contact. To win buyers, set new_to = 'category', or rank by uplift, learnt from a past "
            "campaign with a random control."
        )
    if diagnosis and diagnosis.added is not None and diagnosis.added <= 0:
        notes.append("The past test gives no reason to expect that a contact adds buyers.")
    return notes
