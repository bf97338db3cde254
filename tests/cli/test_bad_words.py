"""Commands about people's files that are given the wrong ones: one message with a remedy, and nothing left behind."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from merit.privacy import audit, pseudonyms
from merit.privacy.erasure import erase
from merit.retrieval.model import Model
from tests.conftest import Command

MINE = "keys/mine"
OUT = ("--out", "out.parquet")


@pytest.fixture
def place(made: Path, tmp_path: Path, command: Command) -> Path:
    """A folder with a run, two keys, and tables of every sad kind; commands are given in it."""
    shutil.copytree(made / "model", tmp_path / "run/model")
    shutil.copytree(made / "labels", tmp_path / "run/labels")
    mine = pseudonyms.create(tmp_path / MINE)
    pseudonyms.create(tmp_path / "keys/other")
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "nothing").mkdir()
    for name, text in {
        "ids.csv": "user_id\nu1\nu2\n",
        "sent.csv": "user_id,rank\n" + "".join(f"{each},1\n" for each in mine.of(["u1", "u2"])),
        "numbers.csv": "user_id,rank\n17,1\n",
        "ragged.csv": f"user_id,rank\n{mine.of(['u1'])[0]},1,2,3\n",
        "who.csv": "who\nu1\n",
        "empty.csv": "interest\n",
        "zero.csv": "",
        "hole.csv": "interest,rank\nraised beds,1\n,2\n",
        "unheard.csv": "interest\nzeppelins\n",
        "words.txt": "these are words",
    }.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
        (tmp_path / name).chmod(0o600)
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    pl.DataFrame({"user_id": [1, 2]}).write_parquet(tmp_path / "whole.parquet")
    return tmp_path


def restore(file: str, *more: str, ids: str = "ids.csv", key: str = MINE) -> tuple[str, ...]:
    return ("--key", key, "pseudonyms", "restore", file, "--ids", ids, *(more or OUT))


def audiences(*words: str) -> tuple[str, ...]:
    return ("model", "audiences", "run", *OUT, *words)


BAD: dict[str, tuple[tuple[str, ...], int, str]] = {
    "no such key": (("--key", "keys/none", "version"), 2, "There is no key keys/none. Make one with"),
    "a folder as a key": (("--key", "nothing", "version"), 2, "Name a key file"),
    "words as a key": (("--key", "words.txt", "version"), 2, "holds no key"),
    "nothing as a key": (("--key", "zero.csv", "version"), 2, "holds no key"),
    "bytes as a key": (("--key", "bytes", "version"), 2, "Name a key file"),
    "a key over a key": (("pseudonyms", "key", MINE), 2, "is there already"),
    "a key under a file": (("pseudonyms", "key", "words.txt/key"), 7, "a part of this path is a file"),
    "a key in a run": (("pseudonyms", "key", "run/key"), 2, "Name a place elsewhere"),
    "pseudonyms without a key": (("pseudonyms", "of", "u1"), 2, "Give it: `merit --key FILE …`"),
    "restore without a key": (restore("sent.csv")[2:], 2, "Give it: `merit --key FILE …`"),
    "restore with another key": (restore("sent.csv", key="keys/other"), 3, "and its key"),
    "restore nothing": (restore("none.csv"), 3, "none.csv does not exist. Name another file"),
    "restore a folder": (restore("folder.csv"), 3, "folder.csv is a folder. Name a file in it"),
    "restore words": (restore("words.txt"), 3, "its suffix does not tell the format. Rename it"),
    "restore an empty file": (restore("zero.csv"), 3, "zero.csv is empty. Export the table again"),
    "restore without users": (restore("who.csv"), 3, "who.csv has no column 'user_id'"),
    "restore numbers": (restore("numbers.csv"), 3, "are no pseudonyms of key"),
    "restore typed numbers": (restore("whole.parquet"), 3, "are no pseudonyms of key"),
    "restore a ragged table": (restore("ragged.csv"), 3, "row 1 has 4 fields"),
    "restore by no list": (restore("sent.csv", ids="none.csv"), 3, "Name the table with --ids PATH"),
    "restore by a list without ids": (restore("sent.csv", ids="who.csv"), 3, "has no column 'user_id'"),
    "restore to a folder": (restore("sent.csv", "--out", "folder.csv"), 7, "folder.csv: this is a folder"),
    "restore into a run": (restore("sent.csv", "--out", "run/sent.csv"), 2, "Name a place elsewhere"),
    "restore to words": (restore("sent.csv", "--out", "sent.txt"), 2, "Rename it"),
    "audiences of nothing": (("model", "audiences", "none", *OUT), 4, "There is no folder none"),
    "audiences of a file": (("model", "audiences", "ids.csv", *OUT), 4, "not a finished model artifact"),
    "audiences of labels": (("model", "audiences", "run/labels", *OUT), 4, "a model artifact is needed here"),
    "audiences by no table": (audiences("--file", "none.csv"), 3, "none.csv does not exist. Name another file"),
    "audiences by a folder": (audiences("--file", "folder.csv"), 3, "folder.csv is a folder. Name a file in it"),
    "audiences by users": (audiences("--file", "who.csv"), 3, "has no column 'interest', only who. Rename"),
    "audiences by no rows": (audiences("--file", "empty.csv"), 3, "empty.csv has no rows. Name a table"),
    "audiences by a hole": (audiences("--file", "hole.csv"), 3, "hole.csv, row 2: interest is empty. Fill it in"),
    "audiences of the unheard-of": (audiences("--file", "unheard.csv"), 3, "Ask for it alone"),
    "audiences of nobody": (audiences("-n", "0"), 3, "Ask for 1 or more"),
    "audiences to a folder": (
        ("model", "audiences", "run", "--out", "folder.csv"),
        7,
        "Name it: --out folder.csv/NAME",
    ),
    "labels of nothing": (("model", "labels", "none"), 4, "There is no folder none"),
    "labels of a file": (("model", "labels", "ids.csv"), 4, "not a finished model artifact"),
    "no labels": (("model", "labels", "run", "-k", "0"), 2, "-k"),
    "newer labels that are none": (("model", "labels", "run", "--labels", "none"), 4, "not a finished labels artifact"),
    "erase by a folder": (("erase", "--folder", "run", "--file", "nothing"), 2, "Name a text file of ids"),
    "erase in a file": (("erase", "u1", "--folder", "ids.csv"), 4, "There is no folder ids.csv"),
    "erase by bytes": (("erase", "--folder", "run", "--file", "bytes"), 2, "Name a text file of ids"),
    "erase by nobody": (("erase", "--folder", "run", "--file", "zero.csv"), 2, "Name users, or --file"),
    "the log of nothing": (("audit", "show", "none"), 4, "There is no folder none. Name the folder"),
    "the log of a file": (("audit", "verify", "ids.csv"), 4, "There is no folder ids.csv. Name the folder"),
    "no log": (("audit", "show", "nothing"), 4, "One begins with the first export"),
}


@pytest.mark.parametrize("name", BAD)
def test_one_message_with_a_remedy_and_nothing_left_behind(name: str, place: Path, command: Command) -> None:
    words, expected, told = BAD[name]
    before = sorted(place.rglob("*"))
    code, out, err = command("-q", *words)
    assert (code, out) == (expected, ""), err
    assert told in err and "Traceback" not in err
    assert sorted(place.rglob("*")) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
@pytest.mark.parametrize("words", [("--key", MINE, "version"), restore("sent.csv"), ("audit", "show", "run")])
def test_what_may_not_be_read_is_named(words: tuple[str, ...], place: Path, command: Command) -> None:
    audit.append(place / "run", "export", rows=1)
    closed = {"--key": MINE, "audit": "run/audit.jsonl"}[words[0]] if "restore" not in words else "sent.csv"
    (place / closed).chmod(0)
    code, _, err = command("-q", *words)
    assert code != 0 and closed in err and "read" in err and "Traceback" not in err


def test_a_damaged_table_stops_an_erasure_before_it_begins(place: Path, command: Command) -> None:
    table = place / "run/model/users.parquet"
    table.write_bytes(table.read_bytes()[:-100] + bytes(100))
    code, _, err = command("-q", "erase", "u1", "--folder", "run")
    assert code == 3 and "users.parquet is damaged" in err and "again" in err
    assert not list(place.rglob(".eras*"))


def test_a_damaged_log_is_judged_also_where_a_head_is_expected(place: Path, command: Command) -> None:
    for rows in range(3):
        audit.append(place / "run", "export", rows=rows)
    head, log = audit.verify(place / "run").head, place / "run" / audit.FILE
    first, *others = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join([b"no entry [/b]\n", *others]))
    code, _, err = command("audit", "verify", "run", "--expect", head)
    assert code == 1 and err.count("fault") == 1 and "line 1 was altered" in err
    log.write_bytes(first)
    code, _, err = command("audit", "verify", "run", "--expect", head)
    assert code == 1 and f"has the entry {head}" in err and "was removed" in err


def test_an_empty_log_with_a_head_is_judged(place: Path, command: Command) -> None:
    (place / "run" / audit.FILE).write_bytes(b"")
    for head, expected in (('{"number": 0, "hash": ""}', 0), ('{"number": 2, "hash": ""}', 1)):
        (place / "run" / audit.HEAD).write_text(head, encoding="utf-8")
        assert command("audit", "verify", "run")[0] == expected


# --- Ctrl-C ----------------------------------------------------------------------------------------------------------


def stopping(once: Callable[..., Any]) -> Callable[..., Any]:
    """The same, but Ctrl-C is pressed when it is first called."""
    pressed: list[bool] = []

    def call(*words: Any, **more: Any) -> Any:
        if not pressed:
            pressed.append(True)
            raise KeyboardInterrupt
        return once(*words, **more)

    return call


def test_audiences_that_are_stopped_are_made_by_the_same_command_again(
    place: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = sorted(place.rglob("*"))
    monkeypatch.setattr(Model, "for_users", stopping(Model.for_users))
    code, out, err = command(*audiences("-n", "100"))
    assert (code, out) == (130, "") and "Stopped. Nothing is half-written" in err
    assert not (place / "out.parquet").exists()
    assert command(*audiences("-n", "100"))[0] == 0
    made = {path.name for path in place.rglob("*")} - {path.name for path in before}
    assert made == {"out.parquet", "audit.jsonl", "audit.head"}


def test_an_erasure_that_is_stopped_goes_on(
    made: Path, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(made, tmp_path / "run")
    users = tmp_path / "run/model/users.parquet"
    user = pl.read_parquet(users)["user_id"][0]
    monkeypatch.setattr(erase, "write_draft", stopping(erase.write_draft))
    code, _, err = command("-q", "erase", user, "--folder", "run")
    assert code == 130 and "Stopped." in err and user not in err
    code, _, err = command("-q", "model", "interests", "run", user)
    assert code == 3 and "unknown" in err  # hidden already
    assert command("-q", "erase", "--folder", "run")[0] == 0
    assert user not in pl.read_parquet(users)["user_id"]
