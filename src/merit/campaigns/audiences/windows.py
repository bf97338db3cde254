"""The scores of an audience within a window, and what should be known of its members beside them.

`any` of several interests and lists is one set of products, scored as such: how they go together in one user is then
part of the score, and no assumption. `all` and `weighted` combine the scores of each.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import NamedTuple

import numpy as np

from merit.campaigns.audiences import products, uplift
from merit.campaigns.audiences.audience import ScoredUsers
from merit.campaigns.audiences.diagnosis import BoughtBefore, ResolvedWindow
from merit.campaigns.audiences.eligibility import WaterfallStep
from merit.campaigns.audiences.forecast import Reals, ReliabilityBins, combined
from merit.campaigns.audiences.request import AudienceRequest, Within
from merit.core.types import Ints
from merit.propensity.purchases import Mask
from merit.propensity.windows import WindowModel
from merit.retrieval.model import Model
from merit.retrieval.query import Interest
from merit.retrieval.windows import WindowQuery, WindowScorer

Scores = Callable[[WindowQuery], Reals]
NEW = {"products": "new to these products", "category": "new to the category"}


class Wanted(NamedTuple):
    """What is to be bought, part by part, and together."""

    parts: list[Mask]
    weights: list[float]
    together: Mask
    category: Mask
    resolved: tuple[products.ResolvedProducts, ...]


def wanted_products(model: Model, request: AudienceRequest, interests: list[Interest]) -> Wanted:
    """The products of all interests, lists and rules of a request."""
    of_interests = [products.products_of_interest(model, interest) for interest in interests]
    lists = [products.resolve(model, part) for part in request.products]
    parts = [*of_interests, *(mask for mask, _ in lists)]
    weights = [interest.weight for interest in request.interests] + [1.0] * len(lists)
    category = np.logical_or.reduce(parts)
    for mask, _ in lists:
        category = category | products.category_of(model.windows.item_labels, mask)
    return Wanted(parts, weights, np.logical_or.reduce(parts), category, tuple(resolved for _, resolved in lists))


def window_scores(
    model: Model, request: AudienceRequest, rows: Ints, interests: list[Interest], scores: Scores
) -> ScoredUsers:
    """The scores of these stored users, and who of them bought before."""
    within, windows = request.within, model.windows
    assert within is not None
    wanted, window = wanted_products(model, request, interests), windows.window(within.days, within.start)

    def of(mask: Mask) -> Reals:
        return scores(query_of(mask, within, windows))[rows]

    if request.combine == "any":
        chances = combined([(of(wanted.together), 1.0)], "any")
    else:
        chances = combined(
            ((of(mask), weight) for mask, weight in zip(wanted.parts, wanted.weights, strict=True)), request.combine
        )
    scored = ScoredUsers(
        chances,
        reliability=reliability_of(windows.learnt),
        window=ResolvedWindow(start=windows.first_day(window), days=within.days, products=wanted.resolved),
        before=BoughtBefore(windows.bought(wanted.together)[rows], windows.bought(wanted.category)[rows]),
    )
    if request.uplift is None:
        return scored
    added = uplift.of_users(model, request.uplift, wanted.together, within.days)[rows]
    return uplift.ranked(scored, added)


def reliability_of(learnt: WindowModel) -> ReliabilityBins:
    """How far probabilities of windows were off among test users."""
    low, predicted, observed = np.array([(part.low, part.predicted, part.observed) for part in learnt.bins]).T
    return ReliabilityBins(low, predicted, observed, learnt.spread)


def query_of(mask: Mask, within: Within, windows: WindowScorer) -> WindowQuery:
    """A set of products and a window, named by their contents: equal ones have equal scores."""
    window = windows.window(within.days, within.start)
    name = blake2b(np.packbits(mask).tobytes(), digest_size=16).hexdigest()
    return WindowQuery(f"products {name}, {window.days} days from {window.gap}", mask, window)


def only_new(request: AudienceRequest, scored: ScoredUsers, eligible: Mask) -> tuple[Mask, tuple[WaterfallStep, ...]]:
    """Eligible users without those who bought before, as the request has it, and the step of the waterfall."""
    if request.new_to is None:
        return eligible, ()
    assert scored.before is not None
    left = eligible & ~(scored.before.products if request.new_to == "products" else scored.before.category)
    step = WaterfallStep(rule=NEW[request.new_to], removed=int(eligible.sum() - left.sum()), left=int(left.sum()))
    return left, (step,)
