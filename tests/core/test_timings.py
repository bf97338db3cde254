"""What stages took is written beside their artifacts and is no part of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from merit.core import artifacts, timings
from merit.core.artifacts import Artifact
from merit.core.config import Frozen
from merit.core.errors import DamagedArtifact
from merit.core.stage import make_unless_current


def make(out: Path) -> Artifact:
    held = np.ones(256 << 20, np.uint8)
    time.sleep(0.05)
    with artifacts.writing(out, "thing") as draft:
        (draft.path / "size.txt").write_text(str(held.sum()))
    return artifacts.load(out)


def timed(make: Callable[[Path], Artifact], out: Path) -> Artifact:
    return make_unless_current(out, out.name, "thing", Frozen(), 7, {}, make)


def test_time_and_memory_of_a_stage_are_noted_with_what_it_made(tmp_path: Path) -> None:
    timings.reset_peak()
    before = timings.peak()
    made = timed(make, tmp_path / "first")
    timed(make, tmp_path / "second")
    told = timings.read(tmp_path)
    assert list(told) == ["first", "second"]
    assert told["first"].hash == made.manifest.hash
    assert 0.05 <= told["first"].seconds < 5
    assert told["first"].peak >= before + (64 << 20)  # a busy system takes some of the rest back meanwhile
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    assert artifacts.load(tmp_path / "first").manifest.summary == {}


def test_nothing_is_noted_of_a_stage_that_failed(tmp_path: Path) -> None:
    def fails(out: Path) -> Artifact:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        timed(fails, tmp_path / "first")
    assert timings.read(tmp_path) == {}


def test_a_line_that_was_cut_short_takes_no_other_along(tmp_path: Path) -> None:
    timed(make, tmp_path / "first")
    whole = (tmp_path / timings.FILE).read_text()
    for end in range(len(whole)):
        (tmp_path / timings.FILE).write_text(whole[:end])
        timings.note(tmp_path, timings.Timing(stage="second", hash="x", seconds=1, peak=1))
        assert "second" in timings.read(tmp_path)
        assert set(timings.read(tmp_path)) <= {"first", "second"}


def test_the_last_record_of_a_stage_counts(tmp_path: Path) -> None:
    for seconds in (1.0, 2.0):
        timings.note(tmp_path, timings.Timing(stage="first", hash="x", seconds=seconds, peak=1))
    assert timings.read(tmp_path)["first"].seconds == 2.0


def test_a_record_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    (tmp_path / timings.FILE).write_bytes(b"\xff\xfe")
    with pytest.raises(DamagedArtifact, match="nothing needs it"):
        timings.read(tmp_path)
