"""What a killed writer leaves behind, who may write at a time, and what names a result."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from pathlib import Path

import pytest

from merit import artifacts, files
from merit.errors import StorageError

FRESH = multiprocessing.get_context("spawn")


def write(folder: Path, page: str = "now", seconds: float = 0.0) -> None:
    with artifacts.writing(folder, "toy") as draft:
        (draft.path / "a.txt").write_text("hello")
        (draft.path / "index.html").write_text(page)
        (draft.path / "log").mkdir()
        (draft.path / "log" / f"events.{page}").write_text(page)
        (folder.parent / "begun").touch()
        time.sleep(seconds)


def test_a_second_writer_is_refused_and_a_killed_one_leaves_neither_lock_nor_draft(tmp_path: Path) -> None:
    folder = tmp_path / "made"
    first = FRESH.Process(target=write, args=(folder, "first", 60.0))
    first.start()
    while not (tmp_path / "begun").exists():
        time.sleep(0.02)
    with pytest.raises(StorageError, match="Another run is making"):
        write(folder)
    os.kill(first.pid or 0, signal.SIGKILL)
    first.join()
    assert any(each.name.startswith(".made.tmp-") for each in tmp_path.iterdir())
    write(folder)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["begun", "made"]


def test_a_version_that_had_stepped_aside_is_removed_by_the_next_writer(tmp_path: Path) -> None:
    write(tmp_path / "made")
    (tmp_path / "made").rename(tmp_path / ".made.tmp-123456-old")  # killed between two renames
    write(tmp_path / "made")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["begun", "made"]


def test_the_hash_does_not_tell_when(tmp_path: Path) -> None:
    for page in ("monday", "tuesday"):
        write(tmp_path / page, page)
    monday, tuesday = (artifacts.load(tmp_path / page).manifest for page in ("monday", "tuesday"))
    assert monday.hash == tuesday.hash
    assert monday.files["index.html"] != tuesday.files["index.html"]  # and yet every byte is checked
    (tmp_path / "monday" / "index.html").write_text("friday")
    with pytest.raises(artifacts.DamagedArtifact):
        artifacts.load(tmp_path / "monday")


def test_a_fleeting_lock_leaves_no_file_and_who_waits_for_it_gets_a_new_one(tmp_path: Path) -> None:
    place = tmp_path / ".lock"
    waiting = FRESH.Process(target=hold, args=(place, tmp_path / "held"))
    with files.locked(place, fleeting=True):
        waiting.start()
        time.sleep(1.0)
        assert not (tmp_path / "held").exists()
    waiting.join(60)
    assert waiting.exitcode == 0 and (tmp_path / "held").exists()
    assert not place.exists()


def hold(place: Path, mark: Path) -> None:
    with files.locked(place, fleeting=True):
        assert place.exists()
        mark.touch()
