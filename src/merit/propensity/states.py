"""states: what a trained generator knows of every user, at the classification positions of its first labels.

The artifact: SPLIT.npy and SPLIT-counts.npy for train, validation, test and now, a row for each row of the corpus.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
from pydantic import Field

from merit.core import artifacts
from merit.core.artifacts import Artifact
from merit.core.config import Frozen
from merit.core.errors import DamagedArtifact, DataError
from merit.data.corpus import NOW, read_table
from merit.data.split import SPLITS
from merit.engine.job import EngineConfig
from merit.engine.run import INLINE, Parts
from merit.generator.worker import DecodeJob, GeneratorWorker, decoding, read_rows
from merit.propensity import features
from merit.propensity.features import HISTORY, States, UserFeatures, features_of


class StatesConfig(Frozen):
    """How many states of a user are kept."""

    labels: int = Field(5, ge=1)
    """Labels whose states are kept; a propensity model may use fewer. END is suppressed, so all are there."""


def write_states(job: DecodeJob[StatesConfig], out: Path, engine: EngineConfig = INLINE) -> Artifact:
    """The states of every example, and of every user at the end of the data."""
    labels = job.config.labels
    splits = {split: read_rows(job, split) for split in (*SPLITS, NOW)}
    sizes = {split: len(rows) for split, rows in splits.items()}
    rows = pl.concat(rows.with_columns(split=pl.lit(split)) for split, rows in splits.items())
    with decoding("states", compute_states, job, rows, out, engine) as (draft, parts):
        width = _gather(parts, draft.path, sizes, labels)
        draft.summary |= sizes | {"labels": labels, "width": width}
    return artifacts.load(out, "states")


def compute_states(worker: GeneratorWorker[StatesConfig], rows: pl.DataFrame) -> pl.DataFrame:
    """The states of some users, each as the bytes of its numbers in half precision."""
    states, counts = worker.generator.states(worker.generator.inputs(rows), worker.job.config.labels)
    values = pl.Series([row.tobytes() for row in features.half_precision(states)])
    return rows.select("split", "row").with_columns(states=values, count=pl.Series(counts))


def read_features(corpus: Artifact, states: Artifact, split: str) -> tuple[pl.DataFrame, UserFeatures]:
    """The users of a split (user_id, gold, items and days of those of now), and their features."""
    columns = ("user_id", *HISTORY, *(["items", "days"] if split == NOW else []))
    table, stored = read_table(corpus, split, *columns), features.read(states.path, split)
    if len(table) != len(stored):
        raise DataError(f"{corpus.path} has {len(table)} users but {len(stored)} states in {split}. Make them again.")
    return table, features_of(corpus, table, stored)


def _gather(parts: Parts, folder: Path, users: dict[str, int], labels: int) -> int:
    """Put the states of every part into the files of their splits, one part in memory at a time; their width."""
    arrays: dict[str, States] = {}
    filled = width = 0
    for table in parts.tables():
        width = len(table["states"][0]) // (2 * labels)
        arrays = arrays or {split: features.create(folder, split, size, labels, width) for split, size in users.items()}
        for (split,), rows in table.partition_by("split", as_dict=True).items():
            values = np.frombuffer(b"".join(rows["states"].to_list()), dtype=np.float16).reshape(-1, labels, width)
            numbers = rows["row"].to_numpy().astype(np.int64)
            features.fill(arrays[str(split)], numbers, values, rows["count"].to_numpy())
        filled += table.select("split", "row").n_unique()
    if filled != sum(users.values()):
        raise DamagedArtifact(f"{parts.folder} does not have every row once. Remove it and run the same again.")
    return width
