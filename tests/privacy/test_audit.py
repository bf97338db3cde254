"""The log of what must be answered for: every change of it is found, and a crash is no change."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from merit import cli
from merit.core import artifacts
from merit.core.errors import MissingArtifact
from merit.labels.build import LabelsConfig, build_labels
from merit.privacy import audit

SIX = 6


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(SIX):
        audit.append(tmp_path, "export", rows=100 + number, sha256="0" * 64)
    return tmp_path


def lines(folder: Path) -> list[str]:
    return (folder / audit.FILE).read_text().splitlines()


def put(folder: Path, changed: list[str]) -> None:
    (folder / audit.FILE).write_text("".join(f"{line}\n" for line in changed))


def test_what_was_written_is_read_and_verified(folder: Path) -> None:
    entries = audit.read(folder)
    assert [entry.number for entry in entries] == list(range(1, SIX + 1))
    assert [entry.details["rows"] for entry in entries] == [100, 101, 102, 103, 104, 105]
    assert entries[0].before == audit.START and entries[3].before == entries[2].hash
    told = audit.verify(folder)
    assert (told.entries, told.head, told.fault, told.torn) == (SIX, entries[-1].hash, None, 0)
    assert (folder / audit.FILE).stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("place", range(SIX))
def test_the_line_that_was_altered_is_named(folder: Path, place: int) -> None:
    changed = lines(folder)
    changed[place] = changed[place].replace(f'"rows":{100 + place}', '"rows":999')
    put(folder, changed)
    assert f"line {place + 1} was altered" in (audit.verify(folder).fault or "")


def test_a_line_that_is_no_entry_is_named_and_holds_nothing_up(folder: Path) -> None:
    put(folder, [*lines(folder)[:-1], "{}"])
    assert audit.verify(folder).fault == f"line {SIX} was altered: it is no entry"
    audit.append(folder, "export", rows=1)
    assert audit.verify(folder).fault == f"line {SIX} was altered: it is no entry"


@pytest.mark.parametrize("place", range(SIX - 1))
def test_where_a_line_was_removed_is_named(folder: Path, place: int) -> None:
    kept = lines(folder)
    del kept[place]
    put(folder, kept)
    told = audit.verify(folder)
    assert told.entries == place and f"line {place + 1} is entry {place + 2}" in (told.fault or "")


@pytest.mark.parametrize("left", range(SIX))
def test_lines_missing_at_the_end_are_noticed(folder: Path, left: int) -> None:
    put(folder, lines(folder)[:left])
    assert f"line {left + 1} was removed, and all after it" in (audit.verify(folder).fault or "")


def test_where_lines_were_reordered_is_named(folder: Path) -> None:
    changed = lines(folder)
    changed[2], changed[3] = changed[3], changed[2]
    put(folder, changed)
    assert "line 3 is entry 4, but entry 3 belongs there" in (audit.verify(folder).fault or "")


def test_a_line_that_was_forged_with_a_right_hash_breaks_the_next(folder: Path) -> None:
    changed = lines(folder)
    forged = audit._entry([line.encode() for line in changed[:2]], "export", {"rows": 999})
    changed[2] = forged.model_dump_json()
    put(folder, changed)
    assert audit.verify(folder).fault == "line 4 does not follow from entry 3: that one was replaced"


def test_a_log_that_was_written_anew_does_not_fit_a_head_that_was_noted(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    head = audit.verify(folder).head
    assert _cli(monkeypatch, "verify", folder, "--expect", head) == 0
    for name in (audit.FILE, audit.HEAD):
        (folder / name).unlink()
    audit.append(folder, "export", rows=1)
    assert _cli(monkeypatch, "verify", folder) == 0  # nothing in the folder can tell
    assert _cli(monkeypatch, "verify", folder, "--expect", head) == 1
    assert "written anew" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("cut", [1, 40, 150])
def test_a_torn_last_line_is_recognised_and_mended(folder: Path, cut: int) -> None:
    whole = (folder / audit.FILE).read_bytes()
    (folder / audit.FILE).write_bytes(whole + whole.splitlines()[0][:cut])
    told = audit.verify(folder)
    assert (told.entries, told.fault, told.torn) == (SIX, None, cut)
    audit.append(folder, "export", rows=7)
    assert [entry.event for entry in audit.read(folder)][-2:] == ["mended", "export"]
    assert audit.read(folder)[-2].details == {"bytes": cut}
    told = audit.verify(folder)
    assert (told.entries, told.fault, told.torn) == (SIX + 2, None, 0)


def test_a_crash_before_the_head_is_no_fault(folder: Path) -> None:
    head = (folder / audit.HEAD).read_bytes()
    audit.append(folder, "export", rows=7)
    (folder / audit.HEAD).write_bytes(head)
    assert audit.verify(folder).fault is None
    (folder / audit.HEAD).unlink()
    assert "missing" in (audit.verify(folder).fault or "")


def test_processes_that_write_at_once_make_one_chain(tmp_path: Path) -> None:
    code = "import sys; from pathlib import Path; from merit.privacy import audit\n"
    code += "for n in range(20): audit.append(Path(sys.argv[1]), 'export', rows=n)"
    writers = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path)]) for _ in range(3)]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    told = audit.verify(tmp_path)
    assert told.entries == 60 and told.fault is None


def test_logs_below_a_folder_are_shown_and_verified(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    audit.append(folder / "service", "key created", key="abc")
    assert _cli(monkeypatch, "show", folder, "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert [len(entries) for entries in shown.values()] == [SIX, 1]
    put(folder / "service", [])
    assert _cli(monkeypatch, "verify", folder) == 1
    err = " ".join(capsys.readouterr().err.split())
    assert "service: line 1 was removed" in err
    with pytest.raises(MissingArtifact, match="There is no folder"):
        audit.logs(folder / "nothing")
    (folder / "nothing").mkdir()
    with pytest.raises(MissingArtifact, match=r"There is no audit\.jsonl"):
        audit.logs(folder / "nothing")


def _cli(monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    monkeypatch.setattr(sys, "argv", ["merit", "-q", "audit", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return int(ended.value.code or 0)


def test_overrides_of_the_policy_are_in_the_log(made: Path, tmp_path: Path) -> None:
    reason = "store sections only, reviewed on 2026-03-02"
    examples = artifacts.load(made / "examples")
    build_labels(examples, tmp_path / "with", LabelsConfig(encoder="hashed"), 7, tmp_path / "cache")
    assert not (tmp_path / audit.FILE).exists()
    without = LabelsConfig(encoder="hashed", policy="none", policy_reason=reason)
    build_labels(examples, tmp_path / "without", without, 7, tmp_path / "cache")
    [entry] = audit.read(tmp_path)
    assert entry.event == "override" and entry.details == {"action": "no policy", "labels": [], "reason": reason}
