"""The route of designs: what is to be agreed before launch in, the file to keep and what the test can see out."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from hashlib import sha256

from merit.campaigns.experiments import power
from merit.campaigns.experiments.design import ExperimentDesign
from merit.core.errors import DataError
from merit.service import schemas

MOST_USERS = 10**15  # of a test: nobody has them, and beyond it numbers lose their last digits
BEYOND = (
    "This design leads beyond what numbers can hold. Check the smallest effect, the outlook, the prior and the days "
    "for slips of units."
)


def design(asked: ExperimentDesign) -> schemas.DesignTold:
    """The file to keep, how many users the test needs and how long that takes. The service keeps nothing."""
    try:
        smallest = power.users_needed(power.SIZES[0] * asked.minimum_effect, asked.outlook, asked.rule)
        daily = asked.outlook.users_per_day or 0
        if max(smallest, asked.outlook.users or 0, daily * asked.days, daily * 7 * max(power.WEEKS)) > MOST_USERS:
            raise DataError(BEYOND)
        return told(asked)
    except (ArithmeticError, ValueError):
        raise DataError(BEYOND) from None


def told(asked: ExperimentDesign) -> schemas.DesignTold:
    """What `design` answers once it knows that no number gets too large; frozen on today's date, in UTC."""
    file = asked.model_dump_json(indent=1) + "\n"
    lifts = power.by_lift(asked.minimum_effect, asked.outlook, asked.rule)
    weeks = power.by_week(asked.outlook, asked.rule)
    return schemas.DesignTold(
        file=file,
        sha256=sha256(file.encode()).hexdigest(),
        frozen=datetime.now(UTC).date(),
        end=asked.end,
        users_needed=power.users_needed(asked.minimum_effect, asked.outlook, asked.rule),
        expected=_expected(asked),
        by_lift=[schemas.PowerByLift.model_validate(row) for row in lifts.to_dicts()],
        by_week=[
            schemas.PowerByWeek(weeks=week, users=users, lift=_finite(lift)) for week, users, lift in weeks.iter_rows()
        ],
    )


def _expected(asked: ExperimentDesign) -> schemas.Expected | None:
    """What the users of the agreed window can show, where the outlook says how many they are."""
    outlook, rule = asked.outlook, asked.rule
    daily = [outlook.users_per_day * asked.days] if outlook.users_per_day else []
    total = [outlook.users] if outlook.users else []
    if not daily + total:
        return None
    users = min(daily + total)
    return schemas.Expected(
        users=users,
        lift=_finite(power.smallest_lift(outlook, rule, users)),
        chance=power.chance_to_ship(asked.minimum_effect, outlook, rule, users),
        luck=power.chance_to_ship(0.0, outlook, rule, users),
    )


def _finite(lift: float) -> float | None:
    """A handful of users against a firm prior would need an endless lift: JSON has no number for that."""
    return lift if math.isfinite(lift) else None
