"""Whose row is whose: the fast look-ups against the stages' own way."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from safetensors.numpy import load_file, save_file

from merit.core import artifacts
from merit.core.errors import DataError
from merit.core.ragged import Ragged
from merit.evaluation import predictions
from merit.evaluation.predictions import Predictions
from merit.privacy.erasure.holdings import ExampleOwners, holdings


def test_every_file_of_a_run_is_known(made: Path, made_text: Path) -> None:
    """A new file of a stage must be put into holdings.py: as rows of users, or as none."""
    named = {"examples", "corpus", "data-report", "states", "model", "predictions-2", "ranking", "results"}
    for run, more in ((made, set()), (made_text, {"mined-1", "mined-2", "predictions-1"})):
        found = artifacts.family(run, verify=False)
        owners = ExampleOwners(found)
        told = {each.path.name: holdings(each, frozenset(["nobody"]), owners) for each in found}
        assert not any(each.rows or each.unlinked for each in told.values())
        assert {name for name, each in told.items() if each.files} == named | more


def test_cells_of_a_benchmark_lose_the_rows_of_examples_and_of_users(made: Path, tmp_path: Path) -> None:
    corpus = artifacts.load(made / "corpus")
    owners = pl.read_parquet(corpus.file("test.parquet"))["user_id"]
    people = owners.unique().sort()
    said = Ragged.of([[row, row + 1] for row in range(len(owners))])
    with artifacts.writing(tmp_path / "cell", "cell", parents={"corpus": corpus}) as draft:
        predictions.write(draft.path / "predictions-0.parquet", Predictions("a", 7, said))
        save_file({"hit": np.arange(2 * len(people)).reshape(-1, 2)}, draft.path / "hits.safetensors")
    cell, gone = artifacts.load(tmp_path / "cell"), frozenset([owners[2], owners[9]])
    told = holdings(cell, gone, ExampleOwners())
    for each in told.files:
        each.write(tmp_path)
    stay = np.flatnonzero(~owners.is_in(list(gone)).to_numpy())
    found = predictions.read(tmp_path / "predictions-0.parquet")  # which wants examples without a gap
    assert found.free.values.tolist() == said.gather(stay).values.tolist() and found.method == "a"
    kept = np.flatnonzero(~people.is_in(list(gone)).to_numpy())
    assert load_file(tmp_path / "hits.safetensors")["hit"].tolist() == [[2 * row, 2 * row + 1] for row in kept.tolist()]


def test_rows_whose_examples_are_gone_are_told_to_be_nobodys(made_text: Path, tmp_path: Path) -> None:
    shutil.copytree(made_text / "mined-1", tmp_path / "alone/mined-1")
    alone = artifacts.load(tmp_path / "alone/mined-1")
    told = holdings(alone, frozenset(["u000001"]), ExampleOwners())
    assert told.unlinked and not told.rows
    found = ExampleOwners(artifacts.family(made_text, verify=False))
    assert not holdings(alone, frozenset(["u000001"]), found).unlinked


def test_rows_that_no_longer_fit_their_examples_are_refused(made_text: Path, tmp_path: Path) -> None:
    for name in ("corpus", "mined-1"):
        shutil.copytree(made_text / name, tmp_path / name)
    pl.read_parquet(made_text / "mined-1/mined.parquet").head(5).write_parquet(tmp_path / "mined-1/mined.parquet")
    torn = artifacts.Artifact(tmp_path / "mined-1", artifacts.load(made_text / "mined-1").manifest)
    with pytest.raises(DataError, match="users were erased from one of them and not from the other"):
        holdings(torn, frozenset(["u000001"]), ExampleOwners())


def test_pictures_of_a_benchmark_go(tmp_path: Path) -> None:
    with artifacts.writing(tmp_path / "bench", "bench-results") as draft:
        (draft.path / "results.json").write_text(json.dumps({"users": 99, "pictures": [[{"text": "tents"}]]}))
    told = holdings(artifacts.load(tmp_path / "bench"), frozenset(["u1"]), ExampleOwners())
    assert told.files[0].always and not told.rows
    told.files[0].write(tmp_path)
    assert json.loads((tmp_path / "results.json").read_text()) == {"users": 99, "pictures": []}
