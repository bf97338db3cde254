"""Examples have the same manifest hash, whoever built the shards; a run that was stopped goes on with those it has."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from merit.core.errors import EngineError
from merit.data import planted
from merit.data import prepare as stage
from merit.engine import run as engine_run
from merit.engine.job import EngineConfig
from tests.engine.stages import SHARDS, prepared

TWO = EngineConfig(runner="local", workers=2, threads=1)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shop")
    planted.write(planted.shop(planted.PlantedConfig(users=8), 7), folder)
    return folder


def test_two_processes_make_what_is_made_here_also_of_shards_without_users(shop: Path, tmp_path: Path) -> None:
    here, local = prepared(shop, tmp_path / "here"), prepared(shop, tmp_path / "local", TWO)
    assert local.manifest.hash == here.manifest.hash
    assert local.manifest.files == here.manifest.files
    sizes = [len(shard.users) for shard in stage.shards(local)]
    assert len(sizes) == SHARDS and sum(sizes) == 8 and 0 in sizes  # a shard that nobody fell into
    assert sorted(each.name for each in tmp_path.iterdir()) == ["here", "local"]


def test_a_run_that_was_stopped_takes_up_the_shards_that_were_built(
    shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    out = tmp_path / "examples"
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(engine_run, "_seal", stopped)  # all parts are there, and no manifest
        prepared(shop, out, TWO)
    assert not out.exists() and (tmp_path / ".examples.parts-job").exists()
    monkeypatch.setattr(engine_run, "_pool", stopped)  # nobody may be asked to build a shard again
    made = prepared(shop, out, TWO)
    assert [each.name for each in tmp_path.iterdir()] == ["examples"]
    monkeypatch.undo()
    assert made.manifest.hash == prepared(shop, tmp_path / "here").manifest.hash


def test_a_shard_that_cannot_be_built_is_told_with_its_users(
    shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = stage._part

    def torn(good: object, users: pl.DataFrame, parts: Path) -> None:
        part(good, users, parts)  # type: ignore[arg-type]
        first = next((parts / f"shard={users['shard'][0]}").glob("*.parquet"))
        first.write_bytes(first.read_bytes()[:50])

    monkeypatch.setattr(stage, "_part", torn)
    with pytest.raises(EngineError, match=r"building examples: 1 of \d shards could not be done"):
        prepared(shop, tmp_path / "examples", TWO.model_copy(update={"attempts": 1}))
    [told] = [json.loads(line) for line in (tmp_path / "examples.poisoned.jsonl").read_text().splitlines()]
    monkeypatch.undo()
    first = next(shard for shard in stage.shards(prepared(shop, tmp_path / "here")) if shard.number == told["shard"])
    assert told["users"] == first.users["user_id"].to_list() != []
    assert not (tmp_path / "examples").exists()


def test_bytes_do_not_depend_on_the_pieces_that_more_cores_make() -> None:
    """Sorted by four threads, a table has four pieces; polars writes row groups of their sizes."""
    whole = pl.DataFrame({"a": np.arange(900_000)})
    pieces = pl.concat([whole[at : at + 225_000] for at in range(0, 900_000, 225_000)], rechunk=False)
    assert pieces.n_chunks() == 4
    assert stage._bytes(pieces) == stage._bytes(whole)
