"""What stages took is written beside their artifacts and is no part of them."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from merit import artifacts
from merit.artifacts import Artifact
from merit.errors import DamagedArtifact
from merit.stages import timings


def make(out: Path) -> Artifact:
    held = np.ones(256 << 20, np.uint8)
    time.sleep(0.05)
    with artifacts.writing(out, "thing") as draft:
        (draft.path / "size.txt").write_text(str(held.sum()))
    return artifacts.load(out)


def test_time_and_memory_of_a_stage_are_noted_with_what_it_made(tmp_path: Path) -> None:
    timings.reset_peak()
    before = timings.peak()
    made = timings.timed(make, tmp_path, "first")(tmp_path / "first")
    timings.timed(make, tmp_path, "second")(tmp_path / "second")
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
        timings.timed(fails, tmp_path, "first")(tmp_path / "first")
    assert timings.read(tmp_path) == {}


@pytest.mark.parametrize("text", ["{", '{"first": 3}', "[]"])
def test_a_damaged_record_is_told(tmp_path: Path, text: str) -> None:
    (tmp_path / timings.FILE).write_text(text)
    with pytest.raises(DamagedArtifact, match="nothing needs it"):
        timings.read(tmp_path)
