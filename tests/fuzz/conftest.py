"""How many cases were tried, at the end: `make fuzz` tries many more than `make test`."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest

TRIED = re.compile(r"(\d+) (passing|failing|invalid)")
counted: Counter[str] = Counter()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: Any) -> None:
    for number, outcome in TRIED.findall(getattr(item, "hypothesis_statistics", "")):
        counted[outcome] += int(number)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if counted:
        told = ", ".join(f"{number:,} {outcome}" for outcome, number in counted.items())
        terminalreporter.write_line(f"cases tried by tests/fuzz: {told}")
