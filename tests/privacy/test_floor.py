"""Every way to name users leads past the floor of a hundred and the audit log."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import merit
from merit.core.errors import PolicyError
from merit.privacy import audit
from merit.retrieval.bulk import write_all_interests, write_audiences
from tests.conftest import Command

TOO_FEW = "Fewer than 100 users"


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made / "model", tmp_path / "run/model")).parent


WAYS: dict[str, Callable[[Any, Path, Path], object]] = {
    "an audience": lambda model, _, out: model.audience(model.labels.texts[0], n=99),
    "an audience among few": lambda model, _, out: model.audience(
        model.labels.texts[0], among=model.users["user_id"][:99]
    ),
    "audiences": lambda model, run, out: write_audiences(run, out, n=99),
}


@pytest.mark.parametrize("way", WAYS)
def test_fewer_than_a_hundred_are_refused_in_python(way: str, run: Path, tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match=TOO_FEW):
        WAYS[way](merit.load(run), run, tmp_path / "out.parquet")
    assert not (tmp_path / "out.parquet").exists() and not (run / audit.FILE).exists()


@pytest.mark.parametrize(
    "words", [("audience", "run", "tea", "-n", 5), ("audiences", "run", "--out", "a.parquet", "-n", 5)]
)
def test_fewer_than_a_hundred_are_refused_on_the_command_line(
    words: tuple[object, ...], run: Path, command: Command
) -> None:
    code, out, err = command("model", *words)
    assert (code, out) == (8, "") and TOO_FEW in err and not Path("a.parquet").exists()


def test_whoever_names_users_leaves_a_line(run: Path, command: Command) -> None:
    text = merit.load(run).labels.texts[0]
    assert command("model", "audience", "run", text)[0] == 0
    write_audiences(run, "a.parquet", [text], n=100)
    write_all_interests(run, "b.parquet", k=1)
    lines = [entry.details for entry in audit.read(run) if entry.event == "users named"]
    assert [line["what"] for line in lines] == [
        "audience of an interest",
        "audiences of 1 interests",
        "interests of all users",
    ]
    assert lines[0]["users"] == lines[1]["users"] == 100 and text not in (run / audit.FILE).read_text()
    assert audit.verify(run).fault is None
