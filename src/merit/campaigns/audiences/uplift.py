"""What a contact adds to a user's chance to buy, learnt from a past campaign with a random control.

One logistic regression with what was known of users on its first day, and the same once more for those who were
contacted, held towards one effect for all: without evidence of more, the treatment shifts all log-odds alike. The
uplift of a user is the chance with the contact less that without.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from functools import partial

import numpy as np
import polars as pl

from merit.campaigns import tables
from merit.campaigns.audiences.audience import ScoredUsers
from merit.campaigns.audiences.forecast import CombinedScores, Reals
from merit.campaigns.audiences.request import PastTest
from merit.core.errors import DataError
from merit.core.types import Ints
from merit.data.schema import FILE, ROW
from merit.privacy import pseudonyms
from merit.propensity.purchases import Mask
from merit.retrieval.model import Model

LEAST_USERS, LEAST_BUYERS = 500, 50  # of each arm: with fewer, differences between users are chance
RIDGE, HELD = 1.0, 10.0  # of main effects, and of how the effect differs between users
STEPS = 50


def of_users(model: Model, test: PastTest, wanted: Mask, days: int) -> Reals:
    """(stored users,): what a contact is expected to add to the chance of a purchase of these products."""
    windows = model.windows
    rows, treated, bought = _outcomes(model, test)
    cut = (windows.end - test.start).days
    if cut > windows.learnt.span // 2:
        raise DataError(
            f"The campaign of {test.table} began {test.start}, and the model's data ends {windows.end - timedelta(1)}: "
            "too little of what users did before it is known. Use a model whose data ends nearer to its start."
        )
    then, now = (_standing(windows.known(wanted, days, max(0, before))) for before in (cut, 0))
    mean, scale = then[rows].mean(0), then[rows].std(0) + 1e-9
    known, today = (np.column_stack([np.ones(len(part)), (part - mean) / scale]) for part in (then, now))
    beta = fit(known[rows], treated, bought)
    return effect(today, beta)


def ranked(scored: ScoredUsers, added: Reals) -> ScoredUsers:
    """Users by what a contact adds; their chances to buy are kept for what is said of members."""
    assert scored.before is not None
    before = replace(scored.before, chances=scored.scores.score)
    return replace(scored, scores=CombinedScores(added, added, added), reliability=None, before=before)


def fit(known: Reals, treated: Mask, bought: Mask) -> Reals:
    """(2 x features,): the chance without the contact, and what the contact changes, by Newton's method."""
    design = np.hstack([known, known * treated[:, None]])
    width = known.shape[1]
    held = np.repeat([RIDGE, HELD], width)
    held[[0, width]] = 1e-6
    beta = np.zeros(2 * width)
    for _ in range(STEPS):
        chance = _logistic(design @ beta)
        slope = design.T @ (bought - chance) - held * beta
        curvature = (design * (chance * (1 - chance))[:, None]).T @ design + np.diag(held)
        step = np.linalg.solve(curvature, slope)
        beta += step * min(1.0, 5 / max(np.abs(step).max(), 1e-12))
        if np.abs(step).max() < 1e-8:
            break
    return beta


def effect(known: Reals, beta: Reals) -> Reals:
    """(users,): the chance with the contact less that without."""
    width = known.shape[1]
    without = known @ beta[:width]
    return np.round(_logistic(without + known @ beta[width:]) - _logistic(without), 10)


def _standing(features: dict[str, Reals]) -> Reals:
    """(users, 8): chance in log-odds and how it curves, how they shop, and how they stand to these products."""
    odds = np.clip(features["log_odds"], -10, 10)
    columns = [features[name] for name in ("shops 56", "shops last", "overdue", "new", "had", "had last")]
    return np.column_stack([odds, odds**2, *columns])


def _logistic(values: Reals) -> Reals:
    chances: Reals = 1 / (1 + np.exp(-np.clip(values, -30, 30)))
    return chances


def _outcomes(model: Model, test: PastTest) -> tuple[Ints, Mask, Mask]:
    """The rows of known users of both arms, whether each was contacted, and whether each bought."""
    with tables.scanning(
        test.table, "uplift.table =", [test.user, test.arm, test.outcome], partial(_columns, test)
    ) as frame:
        listed = frame.collect(engine="streaming")
    twice = listed.filter(pl.col("user_id").is_duplicated())
    unread = listed.filter(pl.col("bought").is_null())
    for bad, what in ((twice, "comes more than once"), (unread, f"has no '{test.outcome}' that can be read")):
        if len(bad):
            raise DataError(
                f"{bad[FILE][0]}, row {bad[ROW][0]}: the user '{bad['user_id'][0]}' {what}. Give one row to each user."
            )
    known = listed.join(model.stored_users().select("user_id", "row"), on="user_id").sort("row")
    arms = known.filter(pl.col("arm").is_in([test.treated, test.control]))
    treated, bought = (arms["arm"] == test.treated).to_numpy(), (arms["bought"] > 0).to_numpy()
    for name, inside in ((test.treated, treated), (test.control, ~treated)):
        users, buyers = int(inside.sum()), int(bought[inside].sum())
        if users < LEAST_USERS or buyers < LEAST_BUYERS:
            raise DataError(
                f"What a contact adds cannot be learnt from {test.table}: arm '{name}' has fewer than {LEAST_USERS} "
                f"users known to the model, or fewer than {LEAST_BUYERS} buyers. It needs a campaign with a random "
                "control (docs/experiments.md). Leave uplift out to rank by who buys, or set new_to = 'category' for "
                "users who do not buy such products by themselves."
            )
    return arms["row"].to_numpy().astype(np.int64), treated, bought


def _columns(test: PastTest, frame: pl.LazyFrame, file: str) -> pl.LazyFrame:
    return frame.select(
        pseudonyms.column(test.user).alias("user_id"),
        pl.col(test.arm).cast(pl.String).alias("arm"),
        tables.numbers(frame, test.outcome, file).alias("bought"),
        pl.col(FILE),
        pl.col(ROW),
    )
