"""What a killed writer leaves behind, who may write at a time, and what names a result."""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from safetensors.numpy import save_file
from tokenizers import Tokenizer
from tokenizers.models import BPE

from merit.core import artifacts, files
from merit.core.errors import StorageError
from merit.core.files import storage_errors
from tests.processes import FORKED


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
    first = FORKED.Process(target=write, args=(folder, "first", 60.0))
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


def save_weights(file: Path) -> None:
    save_file({"a": np.zeros(100_000)}, file)


def save_words(file: Path) -> None:
    Tokenizer(BPE(vocab={f"word {number}": number for number in range(5_000)}, merges=[])).save(str(file))


def save_table(file: Path) -> None:
    pl.DataFrame({"a": range(100_000)}).write_parquet(file)


SAVERS = {save.__name__: save for save in (save_weights, save_words, save_table)}


@pytest.mark.parametrize("name", SAVERS)
def test_a_file_that_may_not_grow_is_told_whichever_library_meets_it(name: str, tmp_path: Path) -> None:
    process = FORKED.Process(target=save_little, args=(name, tmp_path / "file"))
    process.start()
    process.join(60)
    assert process.exitcode == StorageError.exit_code


def save_little(name: str, file: Path) -> None:
    """In a process of its own: a limit cannot be raised again."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (4_096, 4_096))
    try:
        with storage_errors(file):
            SAVERS[name](file)
    except StorageError as error:
        sys.exit(error.exit_code if "larger than this system allows" in str(error) else 1)


def test_a_fleeting_lock_leaves_no_file_and_who_waits_for_it_gets_a_new_one(tmp_path: Path) -> None:
    place = tmp_path / ".lock"
    waiting = FORKED.Process(target=hold, args=(place, tmp_path / "held"))
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
