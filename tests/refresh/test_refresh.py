"""A refreshed model is the model that a whole pass over the longer log gives with the same weights; or the old one."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import merit
from merit.core import artifacts, timings
from merit.core.artifacts import Artifact
from merit.core.errors import ConfigError, DataError, MissingArtifact, StorageError
from merit.core.files import locked
from merit.data import corpus as corpora
from merit.data.corpus import CorpusRun, build_corpus
from merit.data.prepare import PrepareRun, prepare
from merit.generator.worker import DecodeJob
from merit.privacy.erasure.erase import LOCK, erase
from merit.propensity.states import StatesConfig, write_states
from merit.refresh import watch
from merit.refresh.refresh import refresh
from merit.retrieval.build import ModelConfig, write_model, write_quick_model
from tests.conftest import Command
from tests.refresh import worlds

ANSWERS = ("users.parquet", "users/vectors.npy", "users/projections.npy", "interests/vectors.npy", "items.parquet")


def whole(run: Path, source: dict[str, str], out: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The slow twin: all stages but those that train, over the longer log, and the run's weights."""
    parts = {name: artifacts.load(run / name) for name in ("labels", "propensity", "results", "examples", "corpus")}
    prepared = PrepareRun.model_validate(parts["examples"].manifest.config)
    config = prepared.model_copy(update={"source": prepared.source.model_copy(update=source)})
    words = run / "model/propensity/words.json"
    if words.exists():
        monkeypatch.setattr(corpora, "vocabulary", lambda *_: json.loads(words.read_text(encoding="utf-8")))
    examples = prepare(out / "examples", PrepareRun.model_validate(config.model_dump()), seed_of(parts["examples"]))
    settings = CorpusRun.model_validate(parts["corpus"].manifest.config)
    made = build_corpus(examples, parts["labels"], out / "corpus", settings, seed_of(parts["corpus"]))
    shared: dict[str, Any] = {"propensity": parts["propensity"], "corpus": made, "labels": parts["labels"]}
    shared |= {"results": parts["results"], "out": out / "model", "config": ModelConfig(), "seed": 0}
    if not (run / "stage-2").exists():
        return write_quick_model(**shared).path
    generator, old = artifacts.load(run / "stage-2"), artifacts.load(run / "states")
    job = DecodeJob(generator, made, parts["labels"], StatesConfig.model_validate(old.manifest.config), 0)
    return write_model(states=write_states(job, out / "states"), generator=generator, **shared).path


def seed_of(artifact: Artifact) -> int:
    assert artifact.manifest.seed is not None
    return artifact.manifest.seed


def same_answers(one: merit.Model, other: merit.Model) -> None:
    assert one.users["user_id"].equals(other.users["user_id"])
    users = one.users["user_id"]
    mine, theirs = one.interests(users, 20), other.interests(users, 20)
    assert mine["interest"].equals(theirs["interest"])
    np.testing.assert_allclose(mine["probability"], theirs["probability"], atol=1e-6, rtol=0)
    assert one.users.select("history", "counts", "items", "days").equals(
        other.users.select("history", "counts", "items", "days")
    )


@pytest.mark.parametrize("preset", ["quick", "made"])
def test_it_is_the_model_of_a_whole_pass(
    preset: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = worlds.copy(request.getfixturevalue(preset), tmp_path)
    log, items = worlds.tables(request.getfixturevalue(preset))
    weights = {
        name: (run / "model" / name).read_bytes() for name in ("propensity/model.safetensors", "mlp.safetensors")
    }
    newcomer = worlds.week(log).head(8).with_columns(user_id=pl.lit("u-new"))
    grown = pl.concat([log, worlds.week(log), newcomer])
    before = merit.load(run)
    refresh(run, source=worlds.given(tmp_path, grown, items))
    after = merit.load(run)
    same_answers(after, merit.load(whole(run, worlds.given(tmp_path, grown, items), tmp_path / "whole", monkeypatch)))
    assert after.has_user("u-new") and not before.has_user("u-new")
    assert not after.interests(before.users["user_id"], 5).equals(before.interests(before.users["user_id"], 5))
    assert weights == {name: (run / "model" / name).read_bytes() for name in weights}
    sent = grown.select("user_id", "item_id", "timestamp").filter(
        pl.col("user_id").is_in(after.users["user_id"].implode())
    )
    same_answers(after, after.with_histories(sent, users=after.users["user_id"]))
    assert set(timings.read(run)) - set(timings.read(request.getfixturevalue(preset))) == {"refresh"}


def test_the_new_part_alone_is_enough(quick: Path, tmp_path: Path) -> None:
    log, items = worlds.tables(quick)
    one, two = worlds.copy(quick, tmp_path / "one"), worlds.copy(quick, tmp_path / "two")
    first, second = worlds.week(log), worlds.week(pl.concat([log, worlds.week(log)]), back=2)
    for part in (first, second):
        refresh(one, source=worlds.given(tmp_path, part, items))
    refresh(two, source=worlds.given(tmp_path, pl.concat([second, log, first]), items))
    for name in (*ANSWERS, "since.parquet"):
        assert (one / "model" / name).read_bytes() == (two / "model" / name).read_bytes()
    assert [record.events for record in watch.read(artifacts.load(one / "model"))] == [len(first), len(second)]


@pytest.mark.parametrize("preset", ["quick", "made"])
def test_an_unchanged_log_changes_no_byte(preset: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    before = request.getfixturevalue(preset)
    run = worlds.copy(before, tmp_path)
    refreshed = refresh(run)
    for name in (*ANSWERS, "verticals.safetensors"):
        assert (before / "model" / name).read_bytes() == (run / "model" / name).read_bytes()
    assert refresh(run).manifest.hash == refreshed.manifest.hash
    assert [record.encoded for record in watch.read(refreshed)] == [0, 0]
    assert "no need to train anew" in merit.load(run).card()


def test_items_and_labels_that_are_new(quick: Path, tmp_path: Path) -> None:
    run, (log, items) = worlds.copy(quick, tmp_path), worlds.tables(quick)
    item = items.head(1).with_columns(
        item_id=pl.lit("a-new-one"), title=pl.lit("Moon lamp"), tags=pl.lit(["moon lamps", items["tags"][0][0]])
    )
    bought = worlds.week(log).with_columns(
        item_id=pl.when(pl.int_range(pl.len()) % 3 == 0).then(pl.lit("a-new-one")).otherwise("item_id")
    )
    before = merit.load(run)
    source = worlds.given(tmp_path, pl.concat([log, bought]), pl.concat([items, item]))
    refresh(run, source=source, cache=str(tmp_path))
    after = merit.load(run)
    buyer = bought.filter(pl.col("item_id") == "a-new-one")["user_id"][0]
    others = [user for user in after.users["user_id"] if user not in set(bought["user_id"])][:5]
    scores = after.score([buyer, others[0]], ["moon lamps"])["probability"]
    assert "moon lamps" in after.labels.texts and "moon lamps" not in before.labels.texts and scores[0] > scores[1]
    assert after.explain(buyer, "moon lamps", 3).height
    record = watch.read(after.artifact)[-1]
    assert (record.new_items, record.new_labels, record.unknown_items) == (1, 1, 0.0)
    source = worlds.given(tmp_path, pl.concat([log, bought]), items)  # an item that the table has no more is kept
    refresh(run, source=source)
    assert merit.load(run).labels.texts == after.labels.texts
    assert merit.load(run).users.equals(after.users)


def test_text_is_read_again_too(made_text: Path, tmp_path: Path) -> None:
    run, (log, items) = worlds.copy(made_text, tmp_path), worlds.tables(made_text)
    grown = pl.concat([log, worlds.week(log)])
    refresh(run, source=worlds.given(tmp_path, grown, items))
    model = merit.load(run)
    record, users = watch.read(model.artifact)[-1], model.users["user_id"][:40]
    assert 0 < record.encoded < len(model.users)
    sent = grown.select("user_id", "item_id", "timestamp").filter(pl.col("user_id").is_in(users.implode()))
    mine, theirs = model.interests(users, 10), model.with_histories(sent, users=users).interests(users, 10)
    np.testing.assert_allclose(mine["probability"], theirs["probability"], atol=1e-6, rtol=0)


def test_erased_users_stay_erased(quick: Path, tmp_path: Path) -> None:
    run, (log, items) = worlds.copy(quick, tmp_path), worlds.tables(quick)
    grown = pl.concat([log, worlds.week(log)])
    users = grown.filter(pl.col("timestamp") > log["timestamp"].max())["user_id"].unique().sort()
    first, second = users[0], users[1]
    erase([run / "model", run / "examples", run / "corpus"], [first])
    refresh(run, source=worlds.given(tmp_path, grown, items))
    erase([run / "model", run / "examples", run / "corpus"], [second])
    again = worlds.week(grown.with_columns(order_id=pl.lit("x")))
    refresh(run, source=worlds.given(tmp_path, pl.concat([grown, again]), items))
    model = merit.load(run)
    assert not model.has_user(first) and not model.has_user(second) and model.has_user(users[2])
    assert not pl.read_parquet(run / "model/since.parquet")["user_id"].is_in([first, second]).any()
    assert watch.read(model.artifact)[-1].left_out > 0
    with locked(run / LOCK), pytest.raises(StorageError, match="at work"):
        refresh(run)


def strange(log: pl.DataFrame, items: pl.DataFrame, what: str) -> tuple[pl.DataFrame, pl.DataFrame]:
    """A log that must not be let in."""
    week, last = worlds.week(log), log["timestamp"].max()
    grown, others = pl.concat([log, week]), items.with_columns(pl.format("something else: {}", "title").alias("title"))
    logs = {
        "future": pl.concat([log, week.head(1).with_columns(worlds.TS + pl.duration(days=40_000))]),
        "older": log.filter(last - pl.duration(days=7) > worlds.TS),
        "twice": pl.concat([grown, week]),
        "whole log twice": pl.concat([log, log]),
        "other hours": log.with_columns(worlds.TS + pl.duration(hours=1)),
        "other users": grown.with_columns(pl.format("other-{}", "user_id").alias("user_id")),
        "other items": grown,
    }
    return logs[what], others if what == "other items" else items


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("future", "lies in the future"),
        ("older", "older than the log of the last refresh"),
        ("twice", "copies of others"),
        ("whole log twice", "copies of others"),
        ("other hours", "times, ids or meaning"),
        ("other users", "another shop"),
        ("other items", "another shop"),
    ],
)
def test_strange_logs_change_nothing(what: str, words: str, quick: Path, tmp_path: Path) -> None:
    run, (log, items) = worlds.copy(quick, tmp_path), worlds.tables(quick)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    with pytest.raises(DataError, match=words) as refused:
        refresh(run, source=worlds.given(tmp_path, *strange(log, items, what)))
    assert "Nothing was changed" in str(refused.value) and "\n" not in str(refused.value)
    assert before == {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}


def test_what_is_missing_or_misspelt_is_named(quick: Path, tmp_path: Path) -> None:
    run = worlds.copy(quick, tmp_path)
    with pytest.raises(ConfigError, match="late_day: unknown setting; did you mean 'late_days'"):
        refresh(run, refresh={"late_day": 3})
    with pytest.raises(DataError, match="does not exist"):
        refresh(run, source={"interactions": str(tmp_path / "nowhere.parquet")})
    shutil.rmtree(run / "corpus")
    with pytest.raises(MissingArtifact, match="has no corpus, which a refresh reads"):
        refresh(run)
    with pytest.raises(MissingArtifact, match="There is no folder"):
        refresh(tmp_path / "nowhere")


def test_the_command_ends_with_the_verdict(quick: Path, tmp_path: Path, command: Command) -> None:
    run, (log, items) = worlds.copy(quick, tmp_path), worlds.tables(quick)
    source = worlds.given(tmp_path, pl.concat([log, worlds.week(log)]), items)
    code, out, err = command("refresh", run, "--set", f"source.interactions={source['interactions']}")
    assert code == 0 and out.endswith("Nothing has moved beyond chance: no need to train anew.")
    assert "log/index.html" in err and "Refreshes" in (run / "model/log/index.html").read_text(encoding="utf-8")
    code, out, err = command("refresh", run)  # the run's own log, which is older now
    assert code and "older than the log of the last refresh" in err
    code, out, _ = command("refresh", run, "--set", f"source.interactions={source['interactions']}", "--json")
    assert json.loads(out)["events"] == 0


KILLS = 3
CODE = """import sys
from merit.refresh.refresh import refresh
print(flush=True)
refresh(sys.argv[1], source={"interactions": sys.argv[2]})"""


@pytest.mark.slow
def test_whatever_is_killed_there_is_the_old_model_or_the_new_one(quick: Path, tmp_path: Path) -> None:
    log, items = worlds.tables(quick)
    source = worlds.given(tmp_path, pl.concat([log, worlds.week(log)]), items)
    done = worlds.copy(quick, tmp_path / "done")
    begin = time.perf_counter()
    new, old = refresh(done, source=source).manifest.hash, artifacts.load(quick / "model").manifest.hash
    seconds = time.perf_counter() - begin
    run = worlds.copy(quick, tmp_path)
    for kill in range(KILLS):
        words = [sys.executable, "-c", CODE, str(run), source["interactions"]]
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=os.environ) as process:
            assert process.stdout
            process.stdout.readline()
            time.sleep(seconds * (kill + 0.5) / KILLS)
            process.send_signal(signal.SIGKILL)
        assert artifacts.load(run / "model").manifest.hash in (old, new)
        assert merit.load(run).interests(merit.load(run).users["user_id"][0], 3).height == 3
    assert refresh(run, source=source).manifest.hash == new
    assert not list(run.glob(".model.tmp-*"))
