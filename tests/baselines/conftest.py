"""The small planted world, made once for all tests of the methods."""

from __future__ import annotations

import pytest

from merit.baselines.world import World
from merit.core.ragged import Ragged
from tests.baselines.small import make_small


@pytest.fixture(scope="session")
def world_and_gold(tmp_path_factory: pytest.TempPathFactory) -> tuple[World, Ragged]:
    return make_small(tmp_path_factory.mktemp("shop"))


@pytest.fixture(scope="session")
def world(world_and_gold: tuple[World, Ragged]) -> World:
    return world_and_gold[0]
