"""The stage results: equal work has an equal hash, whatever command did it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import polars as pl
import pytest

from merit.core import artifacts, config
from merit.evaluation import evaluate as stage
from merit.evaluation import tables
from merit.evaluation.classification import EvaluationConfig


def test_the_hash_does_not_tell_the_command(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parents = {
        name: artifacts.load(made / name, verify=False) for name in artifacts.load(made / "results").manifest.parents
    }
    settings = config.build(EvaluationConfig, {"resamples": 100})
    results = []
    for words in (["merit", "run", "a.toml"], ["merit", "run", "b.toml", "--set", "out=elsewhere"]):
        monkeypatch.setattr(sys, "orig_argv", words)
        monkeypatch.setattr(stage, "commit", lambda words=words: words[2])
        results.append(stage.evaluate(out=tmp_path / words[2], config=settings, seed=7, **parents))
    one, two = results
    assert one.manifest.hash == two.manifest.hash
    assert (one.manifest.summary["command"], two.manifest.summary["commit"]) == ("merit run a.toml", "b.toml")
    for name in ("figures.parquet", "results.md"):
        assert one.file(name).read_bytes() == two.file(name).read_bytes()
        assert b"a.toml" not in one.file(name).read_bytes()
    stage.show_results(one)
    assert not {*tables.ORIGIN} & {*pl.read_parquet_schema(one.file("figures.parquet"))}


def test_no_artifact_of_a_run_keeps_the_command_in_its_hash(made: Path) -> None:
    for artifact in artifacts.family(made, verify=False):
        for name in artifact.manifest.files:
            if name.endswith(".parquet") and not artifacts._dated(name):
                stored = json.loads(pl.read_parquet_metadata(artifact.file(name)).get("merit", "{}"))
                assert not any(stored.get(fact) for fact in tables.ORIGIN), f"{artifact.path}: {name}"
                for fact in {*tables.ORIGIN}.intersection(pl.read_parquet_schema(artifact.file(name))):
                    assert set(pl.read_parquet(artifact.file(name))[fact]) == {""}, f"{artifact.path}: {name}"
