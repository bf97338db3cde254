"""From a design to a decision as a person does it: commands, files, exit codes, one message each."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from merit.campaigns.experiments.steps import analysis_of, design_of
from merit.core import artifacts
from tests.campaigns.worlds import outcomes

DESIGN = """
name = "Trail running"
arms = { expert = 0.5, merit = 0.5 }
control = "expert"
treatment = "merit"
salt = "trail-running-2026"
start = 2099-03-02
days = 7
minimum_effect = 0.05
covariates = ["orders_before"]
outcome = { column = "bought" }
outlook = { mean = 0.1, users_per_day = 5000 }
"""
PAPER = "campaign,lift,low,high\nPersonal Care,0.0023,-0.0012,0.0057\nToys,0.0019,-0.0006,0.0043\n"
PAPER += "Sports,0.0037,0.0002,0.0072\n"


@pytest.fixture
def merit(command: Callable[..., tuple[int, str, str]], tmp_path: Path) -> Callable[..., tuple[int, str, str]]:
    (tmp_path / "design.toml").write_text(DESIGN)
    return partial(command, "experiment")


def test_from_a_design_to_a_decision(tmp_path: Path, merit: Any) -> None:
    code, out, _ = merit("design", "design.toml", "--out", "design")
    assert code == 0 and "users needed" in out and "weeks" in out
    frame = outcomes(6_000, lift=0.5)
    frame.select("user_id").write_csv("users.csv")
    assert merit("assign", "design", "--users", "users.csv", "--out", "arms")[0] == 0
    arms = pl.read_parquet("arms/assignment.parquet")
    assert arms.cast({"arm": pl.String}).equals(frame.select("user_id", "arm"))
    frame.write_parquet("outcomes.parquet")
    analyze = ("analyze", "design", "--table", "outcomes.parquet", "--until", "2099-03-08", "--assignment", "arms")
    code, out, _ = merit(*analyze, "--out", "lift")
    assert code == 0 and out.startswith("Ship merit") and "index.html" in out
    made = artifacts.load(tmp_path / "lift", "lift")
    assert analysis_of(made).verdict == "ship" and set(made.manifest.files) == {
        "index.html",
        "lift.json",
        "statistics.json",
    }
    code, out, _ = merit(
        "analyze", "design", "--statistics", "lift/statistics.json", "--until", "2099-03-08", "--out", "again", "--json"
    )
    assert code == 0 and json.loads(out)["posterior"] == pytest.approx(analysis_of(made).posterior.model_dump())


def test_a_broken_comparison_ends_with_exit_code_3(merit: Any) -> None:
    merit("design", "design.toml", "--out", "design")
    outcomes(6_000, lift=0.5).filter((pl.col("arm") == "expert") | (pl.int_range(pl.len()) % 3 > 0)).write_parquet(
        "outcomes.parquet"
    )
    analyze = ("analyze", "design", "--table", "outcomes.parquet", "--until", "2099-03-08", "--out", "lift")
    code, out, _ = merit(*analyze)
    assert code == 3 and out.startswith("No decision can be made. The arms hold") and "P(lift" not in out
    code, _, err = merit("pool", "lift", "--out", "pooled")
    assert code == 3 and "Leave it out" in err


def test_a_design_is_frozen_once(merit: Any, tmp_path: Path) -> None:
    merit("design", "design.toml", "--out", "design")
    before = (tmp_path / "design/manifest.json").read_bytes()
    assert merit("design", "design.toml", "--out", "design")[0] == 0
    assert (tmp_path / "design/manifest.json").read_bytes() == before
    code, _, err = merit("design", "design.toml", "--out", "design", "--set", "threshold=0.8")
    assert code == 2 and "another design, frozen" in err
    assert list(design_of(artifacts.load(tmp_path / "design")).arms) == ["expert", "merit"]


def test_the_papers_campaigns_pooled(merit: Any, tmp_path: Path) -> None:
    (tmp_path / "paper.csv").write_text(PAPER)
    code, out, _ = merit("pool", "--table", "paper.csv", "--out", "pooled")
    assert code == 0 and "If all had one lift: +0.24 % (+0.07 % to +0.42 %), P(lift > 0) = 0.997." in out
    figures = json.loads((tmp_path / "pooled/pooled.json").read_text())
    assert figures["one lift for all"]["lift"] == pytest.approx(0.00244, abs=5e-6)
    assert f"mean = {figures['next_prior']['mean']:.6f}" in (tmp_path / "pooled/index.html").read_text()


def test_analysed_campaigns_are_pooled_with_published_ones(merit: Any, tmp_path: Path) -> None:
    (tmp_path / "paper.csv").write_text(PAPER)
    merit("design", "design.toml", "--out", "design")
    outcomes(6_000).write_parquet("outcomes.parquet")
    merit("analyze", "design", "--table", "outcomes.parquet", "--until", "2099-03-08", "--out", "lift")
    assert merit("pool", "lift", "--table", "paper.csv", "--out", "pooled")[0] == 0
    assert "Trail running" in json.loads((tmp_path / "pooled/pooled.json").read_text())["campaigns"]
    code, _, err = merit("pool", "lift", "lift", "--out", "twice")
    assert code == 3 and "at least two" in err


BAD: dict[str, tuple[tuple[str, ...], str]] = {
    "no outcomes": (("analyze", "design", "--out", "x"), "--table"),
    "two outcomes": (
        ("analyze", "design", "--table", "users.csv", "--statistics", "s.json", "--out", "x"),
        "one of the two",
    ),
    "no design": (
        ("analyze", "nowhere", "--table", "users.csv", "--out", "x"),
        "Make it with `merit experiment design",
    ),
    "no analysis": (("pool", "nowhere", "--out", "x"), "Make it with `merit experiment analyze"),
    "no users": (("assign", "design", "--users", "nowhere.csv", "--out", "x"), "--users PATH"),
    "a user twice": (("assign", "design", "--users", "twice.csv", "--out", "x"), "'u1' among them"),
    "an empty user": (("assign", "design", "--users", "empty.csv", "--out", "x"), "1 empty values"),
    "no id column": (("assign", "design", "--users", "other.csv", "--out", "x"), "no column 'user_id'"),
    "one campaign": (("pool", "--table", "one.csv", "--out", "x"), "at least two"),
    "a campaign twice": (("pool", "--table", "same.csv", "--out", "x"), "twice"),
    "a lift in words": (("pool", "--table", "words.csv", "--out", "x"), "no numbers"),
    "a lift in percent": (("pool", "--table", "percent.csv", "--out", "x"), "fractions"),
    "a spread below zero": (("pool", "--table", "one.csv", "--spread", "-1", "--out", "x"), "spread"),
}
FILES = {
    "users.csv": "user_id\nu1\n",
    "twice.csv": "user_id\nu1\nu2\nu1\n",
    "empty.csv": 'user_id,x\nu1,1\n"",2\n',
    "other.csv": "customer\nu1\n",
    "one.csv": "campaign,lift,low,high\na,0.1,0,0.2\n",
    "same.csv": "campaign,lift,low,high\na,0.1,0,0.2\na,0.1,0,0.2\n",
    "words.csv": "campaign,lift,low,high\na,0.1,0,0.2\nb,much,0,0.2\n",
    "percent.csv": "campaign,lift,low,high\na,0.1,0,0.2\nb,-23,-50,-5\n",
}


@pytest.mark.parametrize("name", BAD)
def test_bad_words_are_one_message_and_leave_nothing(name: str, merit: Any, tmp_path: Path) -> None:
    for file, text in FILES.items():
        (tmp_path / file).write_text(text)
    merit("design", "design.toml", "--out", "design")
    words, told = BAD[name]
    code, out, err = merit(*words)
    assert code != 0 and out == "" and told in err and err.count("error ") == 1 and "Traceback" not in err
    assert not (tmp_path / "x").exists() and not list(tmp_path.glob(".x.tmp*"))


def test_a_design_without_salt_assigns_nobody(merit: Any, tmp_path: Path) -> None:
    (tmp_path / "users.csv").write_text(FILES["users.csv"])
    (tmp_path / "design.toml").write_text(DESIGN.replace('salt = "trail-running-2026"\n', ""))
    merit("design", "design.toml", "--out", "design")
    code, _, err = merit("assign", "design", "--users", "users.csv", "--out", "x")
    assert code == 2 and "has no salt" in err
