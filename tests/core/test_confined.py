"""A child that may take little: what it returns, what it refuses, and what becomes of one that takes too much."""

from __future__ import annotations

import time

import pytest

from merit.core import confined
from merit.core.errors import ConfigError, DataError

LITTLE, LONG = 64 * 2**20, 60.0


def add(one: int, other: int) -> int:
    return one + other


def refuse(reason: str) -> None:
    raise ConfigError(reason)


def take(size: int) -> int:
    return len(bytearray(size))


def wait(seconds: float) -> None:
    time.sleep(seconds)


def test_what_it_returns_and_what_it_refuses() -> None:
    assert confined.call(add, 2, 3, memory=LITTLE, seconds=LONG) == 5
    with pytest.raises(ConfigError, match="a reason"):
        confined.call(refuse, "a reason", memory=LITTLE, seconds=LONG)


def test_more_memory_than_was_given_ends_the_child_alone() -> None:
    with pytest.raises(DataError, match="64 MiB once it is unpacked"):
        confined.call(take, 2**30, memory=LITTLE, seconds=LONG)


def test_more_time_than_was_given_ends_the_child() -> None:
    with pytest.raises(DataError, match=r"longer than 0\.1 s"):
        confined.call(wait, 60.0, memory=LITTLE, seconds=0.1)
