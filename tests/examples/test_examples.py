"""Every example runs, in the order of examples/README.md, and does what it says (docs/howto/baseline.md, too)."""

from __future__ import annotations

import os
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One folder for all: the run of the first example is kept, not made again."""
    before, place = Path.cwd(), tmp_path_factory.mktemp("examples")
    os.chdir(place)
    yield place
    os.chdir(before)


def example(name: str) -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLES / f"{name}.py"))


def test_quickstart(capsys: pytest.CaptureFixture[str]) -> None:
    example("quickstart")["main"]()
    told = capsys.readouterr().out
    assert "merit model: " in told and told.count("probability") >= 2 and "title" in told


def test_own_data(capsys: pytest.CaptureFixture[str]) -> None:
    file = example("own_data")["main"]()
    sent = pl.read_csv(file)
    assert sent.columns == ["user_id", "rank", "score", "arm"]
    assert len(sent) >= 100 and sent["user_id"].str.starts_with("C-").all()
    assert "2 rows set aside. Ready." in capsys.readouterr().out


def test_add_a_baseline() -> None:
    """The counted table must beat what ignores the user, or it counts the wrong thing."""
    recall = example("add_a_baseline")["main"]()
    assert recall["then bought"] > recall["popularity"]


def test_zero_shot_audience(capsys: pytest.CaptureFixture[str]) -> None:
    shown = example("zero_shot_audience")
    before, after = shown["main"]()
    phrase = shown["PHRASE"]
    assert after.labels.texts[-1] == phrase and phrase not in before.labels.texts
    user = before.users["user_id"][0]
    label = before.labels.texts[0]
    assert before.score(user, [label])["probability"].to_list() == after.score(user, [label])["probability"].to_list()
    assert "refused" in capsys.readouterr().out


def test_analyse_an_experiment() -> None:
    shown = example("analyse_an_experiment")
    told = shown["main"]()
    assert told.verdict == "ship"
    assert told.posterior.low < shown["LIFT"] < told.posterior.high


def test_every_example_is_listed_and_tried() -> None:
    listed = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    tests = Path(__file__).read_text(encoding="utf-8")
    for file in sorted(EXAMPLES.glob("*.py")):
        assert file.name in listed, f"examples/README.md does not speak of {file.name}"
        assert f'"{file.stem}"' in tests or file.stem == "messy_export"  # own_data runs that one
