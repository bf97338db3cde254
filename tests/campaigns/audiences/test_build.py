"""From a request to a file that is sent, as a person does it: commands, files, exit codes, one message each."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import merit as package
from merit.campaigns.audiences import build, export, request
from merit.campaigns.audiences.build import auc, likeness, separation
from merit.core import artifacts
from merit.core.errors import DataError, PolicyError
from merit.core.types import Floats
from merit.labels.build import change_labels

Call = Callable[..., tuple[int, str, str]]
SIZE = ("--set", "size.by=count", "--set", "size.users=110")


@pytest.fixture
def merit(command: Call) -> Call:
    return partial(command, "-q", "audience")


@pytest.fixture
def spring(tmp_path: Path, model: Any) -> Path:
    """A request with a table: ten users say no."""
    users = model.users["user_id"]
    said = pl.DataFrame({"user_id": users, "newsletter": [place >= 10 for place in range(len(users))]})
    said.write_csv(tmp_path / "customers.csv")
    values = {
        "name": "Spring <sale>",
        "interests": model.labels.texts[:2],
        "size": {"by": "count", "users": 120},
        "economics": {"cost_per_contact": 0.1, "value_per_conversion": 5},
        "control": {"share": 0.1, "salt": "spring-2027"},
        "rules": [{"rule": "consent", "table": "customers.csv", "column": "newsletter"}],
    }
    (tmp_path / "spring.json").write_text(json.dumps(values))
    return tmp_path / "spring.json"


def test_from_a_request_to_a_file(merit: Call, made: Path, model: Any, spring: Path, tmp_path: Path) -> None:
    code, out, _ = merit("preview", made, "--request", spring, "--page", "page.html")
    assert code == 0 and "120 of" in out and "consent: newsletter" in out and "<50" in out
    assert not any(user in out for user in model.users["user_id"])
    assert "Spring &lt;sale&gt;" in (tmp_path / "page.html").read_text()
    code, out, _ = merit("build", made, "--request", spring, "--out", "a")
    assert code == 0 and "index.html" in out
    members = pl.read_parquet("a/members.parquet")
    assert members.columns == ["user_id", "rank", "score", "arm"] and len(members) == members["user_id"].n_unique()
    assert not set(members["user_id"]) & set(model.users["user_id"].head(10))
    sent = members.filter(pl.col("arm") == "treatment")
    for form in ("parquet", "csv", "jsonl"):
        assert merit("export", "a", "--format", form, "--out", form)[0] == 0
        manifest = artifacts.load(tmp_path / form, "audience-export").manifest
        assert manifest.summary["rows"] == len(sent) and list(manifest.files) == [f"audience.{form}"]
    assert pl.read_csv("csv/audience.csv")["user_id"].to_list() == sent["user_id"].to_list()
    assert pl.read_ndjson("jsonl/audience.jsonl")["score"].to_list() == sent["score"].to_list()
    assert merit("export", "a", "--arm", "all", "--out", "everyone")[0] == 0
    assert len(pl.read_parquet("everyone/audience.parquet")) == 120


def test_anyone_builds_the_same_bytes(merit: Call, made: Path, spring: Path, tmp_path: Path) -> None:
    merit("build", made, "--request", spring, "--out", "a")
    merit("build", made, "--request", "a/request.json", "--out", "elsewhere/b")
    one, two = (artifacts.load(tmp_path / name, "audience").manifest for name in ("a", "elsewhere/b"))
    assert one.hash == two.hash and one.files == two.files and len(one.files) == 4
    with (tmp_path / "customers.csv").open("a") as file:
        file.write("stranger,true\n")
    merit("build", made, "--request", spring, "--out", "c")
    assert artifacts.load(tmp_path / "c").manifest.hash != one.hash


def test_members_are_the_models_best(model: Any, tmp_path: Path) -> None:
    """The slow twin scores every pair and sorts."""
    texts = model.labels.texts[:3]
    asked = request.read(None, ["size.by=count", "size.users=100", "combine=all"], texts)
    found = build.choose(model, asked).members
    users = model.users["user_id"]
    pairs = model.score(users, texts)["probability"].to_numpy().reshape(-1, 3)
    product = pairs[:, 0] * pairs[:, 1] * pairs[:, 2]
    slow = sorted(range(len(users)), key=lambda row: (-product[row], row))[:100]
    assert found["user_id"].to_list() == [users[row] for row in slow]
    assert found["score"].to_list() == product[slow].tolist()


def test_who_had_it_before_is_left_out(model: Any) -> None:
    had = model.users["history"].explode().value_counts().sort("count")
    number = int(had.filter(pl.col("count") <= 20)["history"][-1])
    text = model.labels.texts[number]
    rules = [f'rules=[{{rule="bought", interests=["{text}"]}}]', "size.by=percentile", "size.percent=100"]
    found = build.choose(model, request.read(None, rules, [text]))
    before = model.users.filter(pl.col("history").list.contains(number))["user_id"]
    assert len(before) and set(found.members["user_id"]) == set(model.users["user_id"]) - set(before)


def test_users_like_the_seeds(merit: Call, made: Path, model: Any, tmp_path: Path) -> None:
    seeds = model.users["user_id"].head(110)
    seeds.to_frame().write_parquet("seeds.parquet")
    asked = ("--set", 'lookalike={table="seeds.parquet", about="buyers of our tents"}')
    code, out, _ = merit(
        "build", made, *asked, *SIZE, "--set", "name=alike", "--set", "lookalike.with_seeds=true", "--out", "a"
    )
    assert code == 0 and "seeds" in out and "conversions" not in out
    scores = pl.read_parquet("a/members.parquet")["score"]
    assert (scores.diff().drop_nulls() <= 0).all()
    code, _, err = merit("preview", made, *asked, *SIZE, "--set", "name=alike")
    assert code == 8 and "Fewer than 100 users are left" in err  # without the seeds, too few remain of so small a shop


def test_what_was_blocked_since_is_not_exported(
    merit: Call, made: Path, spring: Path, model: Any, tmp_path: Path
) -> None:
    merit("build", made, "--request", spring, "--out", "a")
    old = artifacts.load(made / "labels", "labels")
    text = model.labels.texts[0]
    change_labels(old, tmp_path / "stricter", "block", [text], reason="reviewed", cache=tmp_path / "cache")
    code, _, err = merit("export", "a", "--labels", "stricter", "--out", "x")
    assert code == 8 and "blocked" in err and not (tmp_path / "x").exists()
    with pytest.raises(PolicyError):
        export.export(
            artifacts.load(tmp_path / "a", "audience"), package.load(made, tmp_path / "stricter"), "csv", tmp_path / "x"
        )


def test_overlap_on_the_command_line(merit: Call, made: Path, model: Any) -> None:
    one, two = model.labels.texts[:2]
    merit("build", made, one, *SIZE, "--out", "a")
    merit("build", made, two, *SIZE, "--out", "b")
    code, out, _ = merit("overlap", "a", "b", "--json")
    assert code == 0 and json.loads(out)[0]["users"] == "110"
    assert merit("overlap", "a", "a")[0] == 2


BAD: dict[str, tuple[tuple[str, ...], int, str]] = {
    "a blocked interest": (("handguns", *SIZE), 8, "policy"),
    "a paraphrase of one": (("a gun for beginners", *SIZE), 8, "policy"),
    "one of several": (("{label}", "red wine", *SIZE), 8, "policy"),
    "a sensitive attribute": (
        ("{label}", *SIZE, "--set", 'rules=[{rule="attribute", table="c.csv", column="religion", among=["x"]}]'),
        8,
        "People are not chosen by it",
    ),
    "a sensitive value": (
        ("{label}", *SIZE, "--set", 'rules=[{rule="attribute", table="c.csv", column="club", among=["Whisky"]}]'),
        8,
        "alcohol",
    ),
    "sensitive seeds": (
        ("--set", 'lookalike={table="c.csv", about="buyers of cigarettes"}', "--set", "name=a", *SIZE),
        8,
        "tobacco",
    ),
    "one seed": (
        ("--set", 'lookalike={table="c.csv", about="somebody I know"}', "--set", "name=a", *SIZE),
        8,
        "more seeds",
    ),
    "a rule that isolates one user": (
        ("{label}", *SIZE, "--set", 'rules=[{rule="listed", table="c.csv", keep=true}]'),
        8,
        "The rule that takes most is 'only those listed",
    ),
    "too few": (("{label}", "--set", "size.by=count", "--set", "size.users=99"), 8, "Fewer than 100"),
    "too many": (("{label}", "--set", "size.by=count", "--set", "size.users=99999"), 3, "users are eligible"),
    "no size": (("{label}",), 2, "size"),
    "unknown setting": (("{label}", *SIZE, "--set", "seed=3"), 2, "unknown setting"),
    "unknown column": (
        ("{label}", *SIZE, "--set", 'rules=[{rule="consent", table="c.csv", column="newsleter"}]'),
        3,
        "no column 'newsleter'",
    ),
    "one label by two names": (("{label}", "{LABEL}!", *SIZE), 2, "Name it once"),
    "no interest": (SIZE, 2, "one of the two"),
    "an empty interest": (("  ", *SIZE), 3, "empty"),
    "a phrase in the history": (
        ("{label}", *SIZE, "--set", 'rules=[{rule="bought", interests=["what nobody sells"]}]'),
        3,
        "is none",
    ),
    "no request": (("--request", "nowhere.toml"), 2, "does not exist"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_words_are_one_message_and_leave_nothing(name: str, merit: Call, made: Path, model: Any) -> None:
    label = model.labels.texts[0]
    user = model.users["user_id"][0]
    Path("c.csv").write_text(f"user_id,newsletter,religion,club\n{user},yes,x,Whisky\n")
    words, code, told = BAD[name]
    filled = [word.replace("{label}", label).replace("{LABEL}", label.upper()) for word in words]
    found, out, err = merit("build", made, *filled, "--out", "x")
    assert found == code and out == "" and told in err and err.count("error ") == 1 and "Traceback" not in err
    assert not Path("x").exists() and not list(Path().glob(".x.tmp*"))


def test_no_list_of_fewer_than_a_hundred_leaves(merit: Call, made: Path, spring: Path, tmp_path: Path) -> None:
    merit("build", made, "--request", spring, "--out", "a")
    code, _, err = merit("export", "a", "--arm", "control", "--out", "x")
    assert code == 8 and "Fewer than 100" in err and not (tmp_path / "x").exists()
    assert merit("export", "a", "--arm", "everybody", "--out", "x")[0] == 2
    assert merit("export", "nowhere", "--out", "x")[0] == 4
    (tmp_path / "a/members.parquet").write_bytes(b"PAR1PAR1")
    assert merit("export", "a", "--out", "x")[0] == 5


def test_a_moved_audience_asks_for_its_model(merit: Call, made: Path, spring: Path, tmp_path: Path) -> None:
    merit("build", made, "--request", spring, "--out", "a")
    (tmp_path / "deep/er").mkdir(parents=True)
    (tmp_path / "a").rename(tmp_path / "deep/er/a")
    code, _, err = merit("export", "deep/er/a", "--out", "x")
    assert code == 4 and "--model" in err
    assert merit("export", "deep/er/a", "--model", made, "--out", "x")[0] == 0


def test_scores_may_be_quick_and_then_figures_are_nearly_the_same(model: Any) -> None:
    asked = request.read(None, ["size.by=percentile", "size.percent=75", "combine=any"], model.labels.texts[:3])
    exact, quick = (build.choose(model, asked, scores) for scores in (None, model.audience_scores))
    assert quick.figures.forecast and exact.figures.forecast
    assert quick.figures.members == exact.figures.members == len(quick.rows)
    near, right = (each.figures.forecast.model_dump(exclude_none=True) for each in (quick, exact))
    assert near == pytest.approx(right, rel=1e-4)
    assert quick.figures.lowest == pytest.approx(exact.figures.lowest, rel=1e-4)
    members = model.users["user_id"].gather(np.sort(exact.rows))
    assert set(members) == set(exact.members["user_id"])


# --- users like the seeds, in a planted space where the answer is known ---------------------------------------------


def space(users: int = 2_000, apart: float = 1.5, seed: int = 2) -> tuple[Floats, np.ndarray, np.ndarray]:
    """Vectors, who is of the kind, and the seeds: a third of those."""
    rng = np.random.default_rng(seed)
    kind = rng.random(users) < 0.3
    noise = rng.normal(size=(users, 8)) * np.array([5.0, 1, 1, 1, 1, 1, 1, 0.1])
    vectors = noise + np.outer(kind, np.eye(8)[1] * apart)
    return vectors.astype(np.float32), kind, kind & (rng.random(users) < 0.33)


def blocks(vectors: Floats, size: int = 300):  # type: ignore[no-untyped-def]
    def once() -> Iterator[Floats]:
        return (vectors[start : start + size] for start in range(0, len(vectors), size))

    return once


def test_those_of_the_kind_come_first_although_another_direction_varies_more() -> None:
    vectors, kind, seeds = space()
    found = likeness(blocks(vectors), seeds)
    others = ~seeds
    assert auc(found[kind & others], found[~kind]) > 0.8
    assert found.mean() == pytest.approx(0, abs=1e-6) and found[seeds].mean() == pytest.approx(1, abs=1e-6)


def test_the_size_of_blocks_changes_nothing() -> None:
    vectors, _, seeds = space()
    assert np.abs(likeness(blocks(vectors, 7), seeds) - likeness(blocks(vectors, 5_000), seeds)).max() < 1e-9


def test_seeds_with_nothing_in_common_are_found_out() -> None:
    vectors, _, seeds = space()
    assert separation(blocks(vectors), seeds) > 0.65
    chance = np.random.default_rng(5).random(len(seeds)) < 0.2
    assert separation(blocks(vectors), chance) < 0.58


def test_a_space_without_differences_is_told() -> None:
    same = np.ones((300, 4), np.float32)
    with pytest.raises(DataError, match="do not differ"):
        likeness(blocks(same), np.arange(300) < 150)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 5), min_size=1), st.lists(st.integers(0, 5), min_size=1))
def test_auc_counts_pairs(ours: list[int], others: list[int]) -> None:
    slow = np.mean([(a > b) + 0.5 * (a == b) for a in ours for b in others])
    assert auc(np.array(ours, float), np.array(others, float)) == pytest.approx(slow)
