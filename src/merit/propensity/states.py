"""states: what a trained generator knows of every user.

The artifact: SPLIT.npy and SPLIT-counts.npy, states at the classification positions of the first labels, and
likely-SPLIT.parquet, the labels that the generator finds likely: a row for each row of the corpus, of validation, test
and now, and of train where there are states.
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
from merit.core.ragged import column_lists, list_column
from merit.core.types import SPLITS
from merit.data.corpus import NOW, current_columns, read_table
from merit.engine.job import EngineConfig
from merit.engine.run import INLINE, Parts
from merit.generator.worker import DecodeJob, GeneratorWorker, decoding, read_rows
from merit.propensity import features
from merit.propensity.features import HISTORY, LikelyLabels, States, UserFeatures, features_of, no_states

KEYS = ("split", "row")
LIKELY = ("likely", "values")


class StatesConfig(Frozen):
    """How much of a user is kept."""

    labels: int = Field(5, ge=0)
    """Labels whose states are kept; a propensity model may use fewer. END is suppressed, so all are there. `merit run`
    keeps none where no model reads them."""
    likely: int = Field(50, ge=0)
    """Labels that the generator finds likely, at most; a language model gives none."""


def write_states(job: DecodeJob[StatesConfig], out: Path, engine: EngineConfig = INLINE) -> Artifact:
    """The states and likely labels of every example, and of every user at the end of the data."""
    labels = job.config.labels
    splits = {split: read_rows(job, split) for split in (*(SPLITS if labels else SPLITS[1:]), NOW)}
    sizes = {split: len(rows) for split, rows in splits.items()}
    rows = pl.concat(rows.with_columns(split=pl.lit(split)) for split, rows in splits.items())
    with decoding("states", compute_states, job, rows, out, engine) as (draft, parts):
        width = _gather(parts, draft.path, sizes, labels)
        draft.summary |= sizes | {"labels": labels, "width": width}
    return artifacts.load(out, "states")


def compute_states(worker: GeneratorWorker[StatesConfig], rows: pl.DataFrame) -> pl.DataFrame:
    """The likely labels of some users, and their states, each as the bytes of its numbers in half precision."""
    generator, config = worker.generator, worker.job.config
    inputs = generator.inputs(rows)
    likely, values = generator.likely(inputs, config.likely)
    columns = {
        "likely": list_column(likely.values.astype(np.uint32), likely.lengths()),
        "values": list_column(values.astype(np.float32), likely.lengths()),
    }
    if config.labels:
        states, counts = generator.states(inputs, config.labels)
        columns["states"] = pl.Series([row.tobytes() for row in features.half_precision(states)])
        columns["count"] = pl.Series(counts)
    return rows.select(*KEYS).with_columns(**columns)


def read_features(corpus: Artifact, states: Artifact, split: str) -> tuple[pl.DataFrame, UserFeatures]:
    """The users of a split (user_id, gold; items, days and bought of those of now), and their features."""
    columns = ("user_id", *HISTORY, *(current_columns(corpus) if split == NOW else []))
    table, likely = read_table(corpus, split, *columns), _read_likely(states, split)
    if len(table) != len(likely):
        raise DataError(f"{corpus.path} has {len(table)} users but {len(likely)} states in {split}. Make them again.")
    kept = states.manifest.summary["labels"]
    stored = features.read(states.path, split) if kept else no_states(len(table))
    lists, values = column_lists(likely["likely"]), likely["values"].explode(empty_as_null=False).to_numpy()
    return table, features_of(corpus, table, stored, LikelyLabels(lists, values))


@artifacts.opens
def _read_likely(states: Artifact, split: str) -> pl.DataFrame:
    return pl.read_parquet(states.file(f"likely-{split}.parquet"), columns=list(LIKELY))


def _gather(parts: Parts, folder: Path, users: dict[str, int], labels: int) -> int:
    """Put all parts into the files of their splits, one part's states in memory at a time; the width of a state."""
    arrays: dict[str, States] = {}
    lists, width = [], 0
    for table in parts.tables():
        lists.append(table.select(*KEYS, *LIKELY))
        if not labels:
            continue
        width = len(table["states"][0]) // (2 * labels)
        arrays = arrays or {split: features.create(folder, split, size, labels, width) for split, size in users.items()}
        for (split,), rows in table.partition_by("split", as_dict=True).items():
            values = np.frombuffer(b"".join(rows["states"].to_list()), dtype=np.float16).reshape(-1, labels, width)
            numbers = rows["row"].to_numpy().astype(np.int64)
            features.fill(arrays[str(split)], numbers, values, rows["count"].to_numpy())
    whole = pl.concat(lists).sort(KEYS)
    if len(whole) != sum(users.values()) or whole.select(KEYS).is_duplicated().any():
        raise DamagedArtifact(f"{parts.folder} does not have every row once. Remove it and run the same again.")
    for split in users:
        whole.filter(pl.col("split") == split).select(LIKELY).write_parquet(folder / f"likely-{split}.parquet")
    return width
