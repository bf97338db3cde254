"""A short part of `python -m benchmarks.faults`: the first stages of a run, struck, and held against untouched ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.faults import limited, revoked, strike
from benchmarks.faults_bytes import corruption, parts_corruption
from benchmarks.faults_run import FRESH, HEAVY, Place, Toll, compare, undisturbed
from merit.core.seeds import stream


@pytest.mark.slow
def test_whatever_strikes_the_same_command_ends_with_the_same_bytes(tmp_path: Path) -> None:
    FRESH.set_forkserver_preload(list(HEAVY))
    place, rng, toll = Place(tmp_path, until="mined-1"), stream(7, "tests.faults"), Toll()
    right, out = undisturbed(place), tmp_path / "struck"
    assert limited(place, out, 20_000, toll)
    for stage, how in (("labels", "SIGKILL"), ("stage-1", "SIGSTOP, SIGCONT")):
        strike(place, out, stage, how, 0.3 * float(rng.uniform(0, right.seconds[stage])), toll)
    assert revoked(place, out, "mined-1", 0.0, toll)
    strike(place, out, "mined-1", "SIGSTOP, SIGKILL", 0.3 * float(rng.uniform(0, right.seconds["mined-1"])), toll)
    compare(place, out, right, toll, faults=5)
    assert toll.runs == 1 and sum(toll.tried.values()) >= 4 and len(toll.struck) >= 3  # not all in one stage
    assert (toll.failed, toll.different, toll.untold) == ([], [], [])
    assert (toll.lost, toll.duplicated, toll.half_written, toll.too_much) == (0, 0, 0, 0)
    damage = corruption(tmp_path / "right", place.stages, 200, rng)
    damage["parts"] = parts_corruption(tmp_path / "parts", b"PAR1" + bytes(500) + b"PAR1", 40, rng)
    assert all(flipped == found and cut == lost for flipped, found, cut, lost in damage.values())
    assert sum(each[0] for each in damage.values()) > 150
