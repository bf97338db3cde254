"""Mined labels, states and scores have the same manifest hash, whoever made them."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import merit
from merit.core.errors import DataError, StorageError
from merit.engine.job import EngineConfig
from merit.retrieval.bulk import write_all_interests, write_audiences
from tests.conftest import Command
from tests.engine.stages import ALL, SHARDS, hashes

WORKERS = {2: ALL, 7: ("scores",)}  # which need no torch; `python -m benchmarks.engine --all` makes all by all


@pytest.fixture(scope="session")
def made(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy, as whoever names users leaves a line in the audit log of the run."""
    return shutil.copytree(made, tmp_path_factory.mktemp("named") / "run")


@pytest.mark.slow
def test_two_and_seven_workers_make_what_is_made_here(made: Path, tmp_path: Path) -> None:
    right = hashes(made, tmp_path / "here", EngineConfig(shards=SHARDS))
    for workers, what in WORKERS.items():
        engine = EngineConfig(runner="local", workers=workers, threads=1, shards=SHARDS)
        assert hashes(made, tmp_path / str(workers), engine, what) == {name: right[name] for name in what}


def test_states_of_many_shards_are_those_of_one_but_for_their_last_bits(made: Path, tmp_path: Path) -> None:
    one, many = (hashes(made, tmp_path / str(shards), EngineConfig(shards=shards)) for shards in (1, SHARDS))
    assert one["mined"] == many["mined"]
    for split in ("train", "validation", "test", "now"):
        first, second = (np.load(tmp_path / str(shards) / f"states/{split}.npy") for shards in (1, SHARDS))
        assert np.allclose(first, second, atol=2e-3)
        counts = [np.load(tmp_path / str(shards) / f"states/{split}-counts.npy") for shards in (1, SHARDS)]
        assert np.array_equal(*counts)


def test_the_scores_of_everyone_are_those_of_each(made: Path, tmp_path: Path) -> None:
    model = merit.load(made)
    out = tmp_path / "new" / "lists.parquet"
    assert write_all_interests(made, str(out), k=4) == 4 * len(model.users)
    assert pl.read_parquet(out).equals(model.interests(model.users["user_id"], k=4))
    assert [path.name for path in out.parent.iterdir()] == ["lists.parquet"]
    write_all_interests(made, f"memory://{tmp_path.name}/lists", k=4, engine=EngineConfig(shards=SHARDS))
    several = tmp_path / "several.parquet"
    write_all_interests(made, str(several), k=4, engine=EngineConfig(shards=SHARDS))
    assert pl.read_parquet(several).sort("user_id", "rank").equals(pl.read_parquet(out).sort("user_id", "rank"))


def test_scores_that_cannot_be_written_are_told_and_leave_nothing(made: Path, tmp_path: Path) -> None:
    (tmp_path / "folder.parquet").mkdir()
    with pytest.raises(DataError, match=r"is a folder. Name a file in it"):
        write_all_interests(made, str(tmp_path / "folder.parquet"), k=2)
    (tmp_path / "file").write_text("mine")
    with pytest.raises(StorageError, match="a part of this path is a file"):
        write_all_interests(made, str(tmp_path / "file" / "lists.parquet"), k=2)
    with pytest.raises(DataError, match="0 regions"):
        write_all_interests(made, str(tmp_path / "lists.parquet"), k=2, regions=0)
    with pytest.raises(DataError, match="live interests; ask for no more"):
        write_all_interests(made, str(tmp_path / "lists.parquet"), k=10**6)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder.parquet"]


def test_audiences_of_many_interests_are_those_of_each(made: Path, tmp_path: Path) -> None:
    model, out = merit.load(made), tmp_path / "audiences.parquet"
    live = model.labels.table["text"].filter(pl.Series(model.labels.live_mask())).to_list()
    assert write_audiences(made, out, n=100, engine=EngineConfig(shards=SHARDS)) == 100 * len(live)
    found = pl.read_parquet(out)
    assert found["interest"].unique(maintain_order=True).to_list() == live
    for text in live:
        told = found.filter(pl.col("interest") == text).drop("interest").select("user_id", "rank", "probability")
        assert told.equals(model.audience(text, 100), null_equal=False)
    assert [path.name for path in tmp_path.iterdir()] == [out.name]


def test_some_audiences_are_given_in_the_order_asked_for_and_phrases_are_refused(made: Path, tmp_path: Path) -> None:
    model, out = merit.load(made), tmp_path / "audiences.parquet"
    live = model.labels.table["text"].filter(pl.Series(model.labels.live_mask())).to_list()
    write_audiences(made, out, [live[5], live[2], live[5]], n=len(model.users))
    found = pl.read_parquet(out)
    assert found["interest"].unique(maintain_order=True).to_list() == [live[5], live[2]]
    assert found.group_by("interest").agg(pl.col("user_id").n_unique())["user_id"].to_list() == [len(model.users)] * 2
    with pytest.raises(DataError, match="is no label of this model"):
        write_audiences(made, out, ["a phrase that nobody knows"], n=100)
    with pytest.raises(DataError, match="ask for no more than that"):
        write_audiences(made, out, n=10**9)


def test_many_audiences_from_the_command_line(made: Path, command: Command, tmp_path: Path) -> None:
    known = merit.load(made).labels
    live = known.table["text"].filter(pl.Series(known.live_mask())).to_list()
    pl.DataFrame({"interest": live[:2]}).write_csv(tmp_path / "wanted.csv")
    code, _, told = command("model", "audiences", made, "--out", "both.parquet", "--file", "wanted.csv", "-n", 105)
    assert code == 0 and "210 rows" in told
    assert pl.read_parquet(tmp_path / "both.parquet")["interest"].unique(maintain_order=True).to_list() == live[:2]
    code, _, told = command("model", "audiences", made, "--out", "none.parquet", "--file", "nothing.csv")
    assert code != 0 and "nothing.csv" in told and not (tmp_path / "none.parquet").exists()
