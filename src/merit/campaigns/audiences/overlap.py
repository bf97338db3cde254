"""Whom audiences share, two at a time: who gets two campaigns, and whose control the other one spoils."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

import polars as pl

from merit.campaigns.words import FEW
from merit.core.config import Frozen

TREATED = "treatment"


class Overlap(Frozen):
    """Two audiences in exact counts of users; people see them through `lines`, which hides small parts."""

    first: str
    second: str
    first_users: int
    second_users: int
    both: int
    spoiled: int
    """Users whom one contacts and the other holds back."""

    @property
    def told(self) -> bool:
        """Whether exact figures may be shown: with the sizes known, each part gives the other two away."""
        parts = (self.both, self.first_users - self.both, self.second_users - self.both)
        return all(part == 0 or part >= FEW for part in parts)


def overlaps(audiences: Mapping[str, pl.DataFrame]) -> list[Overlap]:
    """`audiences`: name → user_id, arm."""
    return [_overlap(*pair) for pair in combinations(audiences.items(), 2)]


def _overlap(one: tuple[str, pl.DataFrame], two: tuple[str, pl.DataFrame]) -> Overlap:
    shared = one[1].select("user_id", "arm").join(two[1].select("user_id", "arm"), on="user_id", suffix="_second")
    spoiled = (shared["arm"] == TREATED) != (shared["arm_second"] == TREATED)
    return Overlap(
        first=one[0],
        second=two[0],
        first_users=len(one[1]),
        second_users=len(two[1]),
        both=len(shared),
        spoiled=int(spoiled.sum()),
    )


def lines(found: list[Overlap]) -> pl.DataFrame:
    """For people: nothing exact about fewer than 50 users."""
    return pl.DataFrame(
        [
            {
                "first": each.first,
                "users": f"{each.first_users:,}",
                "second": each.second,
                "users of it": f"{each.second_users:,}",
                "in both": f"{each.both:,}" if each.told else _roughly(each),
                "of the first": _share(each, each.first_users),
                "of the second": _share(each, each.second_users),
                "arms at odds": f"{each.spoiled:,}" if each.spoiled >= FEW else f"<{FEW}",
            }
            for each in found
        ]
    )


def _roughly(each: Overlap) -> str:
    return f"<{FEW}" if each.both < FEW else f"all but <{FEW} of the smaller"


def _share(each: Overlap, users: int) -> str:
    return f"{100 * each.both / users:.1f} %" if each.told else "–"
