from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest

from merit.core import artifacts
from merit.core.artifacts import MANIFEST
from merit.core.config import Frozen
from merit.core.errors import DamagedArtifact, MissingArtifact, StorageError


class Settings(Frozen):
    size: int = 3


def make(folder: Path, text: str = "hello", **more: object) -> artifacts.Artifact:
    with artifacts.writing(folder, "toy", config=Settings(), seed=7, **more) as draft:  # type: ignore[arg-type]
        (draft.path / "a.txt").write_text(text)
        draft.summary["letters"] = len(text)
    return artifacts.load(folder, "toy")


def test_round_trip(tmp_path: Path) -> None:
    made = make(tmp_path / "one")
    assert made.file("a.txt").read_text() == "hello"
    assert made.manifest.summary == {"letters": 5}
    assert made.manifest.config == {"size": 3}


def test_the_hash_is_of_the_content_not_of_place_or_time(tmp_path: Path) -> None:
    one, two, other = make(tmp_path / "one"), make(tmp_path / "deep" / "two"), make(tmp_path / "three", "other")
    assert one.manifest.hash == two.manifest.hash != other.manifest.hash


def test_a_failure_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), artifacts.writing(tmp_path / "one", "toy") as draft:
        (draft.path / "a.txt").write_text("half")
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


def test_a_failure_keeps_the_version_before(tmp_path: Path) -> None:
    make(tmp_path / "one", "first")
    with pytest.raises(ZeroDivisionError), artifacts.writing(tmp_path / "one", "toy"):
        raise ZeroDivisionError
    assert artifacts.load(tmp_path / "one").file("a.txt").read_text() == "first"
    make(tmp_path / "one", "second")
    assert artifacts.load(tmp_path / "one").file("a.txt").read_text() == "second"
    assert [path.name for path in tmp_path.iterdir()] == ["one"]


def test_a_folder_of_somebody_else_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letter.txt").write_text("dear")
    with pytest.raises(StorageError, match="not a merit artifact"):
        make(tmp_path / "home")
    assert (tmp_path / "home" / "letter.txt").read_text() == "dear"


def test_an_unfinished_folder_is_not_an_artifact(tmp_path: Path) -> None:
    made = make(tmp_path / "one")
    (made.path / MANIFEST).unlink()
    with pytest.raises(MissingArtifact, match="not a finished toy artifact"):
        artifacts.load(tmp_path / "one", "toy")


def test_another_kind_is_refused(tmp_path: Path) -> None:
    make(tmp_path / "one")
    with pytest.raises(MissingArtifact, match="is a toy artifact, but a labels artifact"):
        artifacts.load(tmp_path / "one", "labels")


def test_what_a_kill_left_beside_a_finished_folder_goes_unless_somebody_is_at_work(tmp_path: Path) -> None:
    made = tmp_path / "thing"
    with artifacts.writing(made, "thing") as draft:
        artifacts.tidy(made)
        assert draft.path.exists()  # somebody's
    stale = tmp_path / ".thing.tmp-1-old"
    stale.mkdir()
    artifacts.tidy(made)
    assert [each.name for each in tmp_path.iterdir()] == ["thing"]


@pytest.mark.parametrize("damage", ["flip", "truncate", "remove", "manifest", "newer"])
def test_damage_is_noticed(tmp_path: Path, damage: str) -> None:
    made = make(tmp_path / "one")
    file, manifest = made.file("a.txt"), made.path / MANIFEST
    if damage == "flip":
        file.write_text("jello")
    elif damage == "truncate":
        file.write_text("hell")
    elif damage == "remove":
        file.unlink()
    elif damage == "manifest":
        manifest.write_text(manifest.read_text()[:-20])
    else:
        manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"format": 99}))
    with pytest.raises(DamagedArtifact):
        artifacts.load(tmp_path / "one")


def test_current_notices_every_change(tmp_path: Path) -> None:
    parent, other = make(tmp_path / "parent"), make(tmp_path / "other", "other")
    make(tmp_path / "child", parents={"toy": parent}, inputs={"raw.csv": [5, 1]})

    def found(size: int = 3, seed: int = 7, parent: artifacts.Artifact = parent, stamp: int = 1) -> bool:
        settings, inputs = Settings(size=size), {"raw.csv": [5, stamp]}
        return artifacts.current(tmp_path / "child", "toy", settings, seed, {"toy": parent}, inputs) is not None

    assert found()
    assert not found(size=4)
    assert not found(seed=8)
    assert not found(parent=other)
    assert not found(stamp=2)


def test_the_family_leads_back_to_the_start(tmp_path: Path) -> None:
    grandparent = make(tmp_path / "a")
    parent = make(tmp_path / "b", parents={"toy": grandparent})
    make(tmp_path / "c", parents={"toy": parent})
    assert [each.path.name for each in artifacts.family(tmp_path / "c")] == ["c", "b", "a"]
    assert [each.path.name for each in artifacts.family(tmp_path)] == ["a", "b", "c"]
    assert "from toy" in artifacts.describe(artifacts.load(tmp_path / "c"))


KILLED = """
import sys, time
from pathlib import Path
from merit.core import artifacts
with artifacts.writing(Path(sys.argv[1]), "toy") as draft:
    (draft.path / "a.txt").write_text("x" * 100_000)
    print("writing", flush=True)
    time.sleep(60)
"""


def test_sigkill_leaves_no_artifact_and_the_next_run_tidies_up(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path / "one")], stdout=subprocess.PIPE)
    assert child.stdout and child.stdout.readline() == b"writing\n"
    child.send_signal(signal.SIGKILL)
    child.wait()
    with pytest.raises(MissingArtifact):
        artifacts.load(tmp_path / "one")
    deadline = time.monotonic() + 5
    while Path(f"/proc/{child.pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    make(tmp_path / "one")
    assert [path.name for path in tmp_path.iterdir()] == ["one"]


FILLED = """
import resource, signal, sys
from pathlib import Path
import polars as pl
from merit.core import artifacts
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
try:
    with artifacts.writing(Path(sys.argv[1]), "toy") as draft:
        pl.DataFrame({"n": range(100_000)}).write_parquet(draft.path / "n.parquet")
except artifacts.StorageError as error:
    print(error)
"""


def test_a_file_that_cannot_grow_is_one_message_and_nothing_left(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", FILLED, str(tmp_path / "one")], capture_output=True, text=True)
    assert "larger than this system allows" in done.stdout, done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small file system")
def test_disk_full_is_one_message_and_nothing_left(tmp_path: Path) -> None:
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(tmp_path)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("this system does not let a test mount a file system")
    try:
        with pytest.raises(StorageError, match="disk is full"), artifacts.writing(tmp_path / "one", "toy") as draft:
            pl.DataFrame({"n": pl.int_range(1_000_000, eager=True).shuffle(1)}).write_parquet(draft.path / "n.parquet")
        assert list(tmp_path.iterdir()) == []
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


def test_permission_denied_is_told(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="permission denied"), artifacts.writing(tmp_path / "one", "toy"):
        raise PermissionError(13, "Permission denied", "somewhere")
