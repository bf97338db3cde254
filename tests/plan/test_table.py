from __future__ import annotations

import pytest

from merit.plan.table import Measured, Plan, Row, compare, count, duration, size


def row(stage: str, seconds: float, memory: float = 1e9) -> Row:
    return Row(stage=stage, tokens=10, seconds=seconds, memory=memory, disk=100, basis="measured")


PLAN = Plan(rows=(row("a", 10), row("b", 30, 2e9), row("c", 5)), facts={}, notes=())


def test_times_and_disk_add_up_and_memory_is_the_largest() -> None:
    total = PLAN.total
    assert (total.seconds, total.disk, total.memory, total.tokens) == (45, 300, 2e9, 30)


def test_only_stages_with_a_record_are_compared_and_totals_are_of_those() -> None:
    told = compare(
        PLAN, {"a": Measured(seconds=20, memory=5e8, disk=50), "b": Measured(seconds=30, memory=1e9, disk=1)}
    )
    assert [each["stage"] for each in told] == ["a", "b", "total"]
    assert [each["seconds"]["ratio"] for each in told] == [0.5, 1.0, 0.8]
    assert told[2]["memory"] == {"planned": 2e9, "measured": 1e9, "ratio": 2.0}


@pytest.mark.parametrize(
    ("told", "words"),
    [
        (duration(59.96), "60.0 s"),
        (duration(150), "2.5 min"),
        (duration(36_000), "10.0 h"),
        (size(3 * 2**19), "1.5 MiB"),
        (size(80 * 2**30), "80.0 GiB"),
        (size(3 * 2**40), "3.0 TiB"),
        (count(3_821_079_552), "3.82 bn"),
        (count(1234), "1,234"),
        (count(0), "–"),
    ],
)
def test_figures_for_people(told: str, words: str) -> None:
    assert told == words
