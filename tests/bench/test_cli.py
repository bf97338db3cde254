"""`merit bench` as a person meets it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from merit import cli
from tests.bench.conftest import Small
from tests.bench.small import values


def merit(*words: object) -> Result:
    return CliRunner().invoke(cli.app, ["bench", *map(str, words)])


@pytest.fixture
def file(grid: Small, tmp_path: Path) -> Path:
    """The settings of the small grid as a file."""
    given = grid.config.model_dump(mode="json", exclude_none=True)
    path = tmp_path / "bench.toml"
    path.write_text("\n".join(f"{name} = {_toml(value)}" for name, value in given.items()), encoding="utf-8")
    return path


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(name)} = {_toml(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def test_one_command_for_each_table(file: Path, grid: Small) -> None:
    shown = merit(file, "--from-results", "--table", "budgets")
    assert shown.exit_code == 0 and "Recall at equal budgets" in shown.stdout and "Cost" not in shown.stdout
    assert (grid.config.out / "index.html").exists()
    told = json.loads(merit(file, "--from-results", "--json").stdout)
    assert told["planted"]["users"] == grid.outcome.results[0].users
    assert "no table 'budget'" in str(merit(file, "--from-results", "--table", "budget").exception)


def test_a_document_is_written(file: Path, tmp_path: Path) -> None:
    more = ["--markdown", tmp_path / "results.md", "--figure", tmp_path / "results.svg"]
    shown = merit(file, *more, "--dataset", "planted")
    assert shown.exit_code == 0 and "MERIT against the best other method" in shown.stdout
    assert (tmp_path / "results.md").read_text(encoding="utf-8").startswith("# Results")
    assert ">MERIT</text>" in (tmp_path / "results.svg").read_text(encoding="utf-8")


def test_a_failure_is_told_and_ends_with_one(tmp_path: Path) -> None:
    given = values(tmp_path, [{"methods": ["trivial"]}])
    given["datasets"]["planted"]["source"]["items"] = str(tmp_path / "gone.parquet")
    (tmp_path / "bench.toml").write_text("\n".join(f"{name} = {_toml(value)}" for name, value in given.items()))
    shown = merit(tmp_path / "bench.toml")
    assert shown.exit_code == 1 and "Failed: planted" in shown.stdout
    assert "--set datasets.planted.source.items=PATH" in shown.stdout
