"""A stage opens what another wrote. Where somebody else wrote it, under right hashes, that is said in one sentence."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from safetensors.numpy import load_file, save_file

from merit.core import artifacts
from merit.core.artifacts import Artifact
from merit.core.errors import MeritError
from merit.data.corpus import read_table, read_words
from merit.data.texts import read_shop
from merit.generator.mining import read_mined
from merit.generator.model import load_generator
from merit.labels.build import load_vectors
from merit.propensity.linear import load_factors
from merit.propensity.quick import load_quick
from merit.propensity.states import read_features
from merit.propensity.train import load_scorer
from tests.retrieval.test_tampered import accept

DEEP, BROKEN = b"[" * 100_000, b"\xff" * 999


def narrower(file: Path) -> None:
    """Every array with a row less: all of right types and wrong shapes."""
    save_file({name: np.ascontiguousarray(array[:-1]) for name, array in load_file(file).items() if array.ndim}, file)


def column_less(file: Path) -> None:
    frame = pl.read_parquet(file)
    frame.drop(frame.columns[-1]).write_parquet(file)


Opened = dict[str, Artifact]


def generator(run: Opened) -> object:
    return load_generator(run["stage-2"], run["corpus"], run["labels"])


PLACES: dict[str, tuple[str, str, Callable[[Opened], object]]] = {  # run, stage, what opens it
    "generator over items": (
        "made",
        "stage-2",
        generator,
    ),
    "language model": (
        "made_text",
        "stage-2",
        generator,
    ),
    "propensity": ("made", "propensity", lambda run: load_scorer(run["propensity"], run["labels"])),
    "quick propensity": ("quick", "propensity", lambda run: load_quick(run["propensity"], run["labels"])),
    "factors": ("made", "factors", lambda run: load_factors(run["factors"])),
    "states": ("made", "states", lambda run: read_features(run["corpus"], run["states"], "validation")),
    "mined": ("made_text", "mined-1", lambda run: read_mined(run["mined-1"], 10)),
    "corpus, words": ("made", "corpus", lambda run: read_words(run["corpus"])),
    "corpus, table": ("made", "corpus", lambda run: read_table(run["corpus"], "train", "history", "user_id")),
    "corpus, shop": ("made_text", "corpus", lambda run: read_shop(run["corpus"])),
    "vectors": ("made", "labels", lambda run: load_vectors(run["labels"])),
}


@pytest.mark.parametrize("what", PLACES)
def test_strange_files_of_a_stage_are_one_sentence(what: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    fixture, stage, opens = PLACES[what]
    run: Path = request.getfixturevalue(fixture)
    files = [file for file in sorted((run / stage).rglob("*")) if file.is_file() and file.name != artifacts.MANIFEST]
    beside = {path.parent.name: artifacts.load(path.parent, verify=False) for path in run.glob("*/manifest.json")}
    refused = 0
    for number, file in enumerate(files):
        changes: list[Callable[[Path], object]] = [lambda path: path.write_bytes(BROKEN)]
        changes += [lambda path: path.write_bytes(DEEP)] if file.suffix == ".json" else []
        changes += [lambda path: path.write_text(json.dumps({"a": 1}))] if file.suffix == ".json" else []
        changes += [narrower] if file.suffix == ".safetensors" else []
        changes += [column_less] if file.suffix == ".parquet" else []
        for turn, change in enumerate(changes):
            place = Path(shutil.copytree(run / stage, tmp_path / f"{number}-{turn}"))
            change(place / file.relative_to(run / stage))
            accept(place)
            try:
                opens(beside | {stage: artifacts.load(place)})
            except MeritError as error:
                assert "\n" not in str(error)
                refused += 1
            shutil.rmtree(place)
    assert refused
