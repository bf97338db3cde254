"""The most likely users of many interests at once: one Parquet file, by whichever runner.

    write_audiences("runs/shop", "audiences.parquet", n=1_000)                       # of all live interests
    write_audiences("runs/shop", "spring.parquet", ["trail running"], engine=EngineConfig(runner="ray"))

A shard is some users, ranked among themselves for every interest; the best n of all are among the best n of each shard,
so joining the shards gives what `Model.audience` gives, to the last bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from merit.core import files
from merit.core.errors import DataError
from merit.core.types import Ints
from merit.engine import storage
from merit.engine.job import EngineConfig, ShardJob
from merit.engine.run import INLINE, Parts, make_parts, workplace
from merit.retrieval import topk
from merit.retrieval.model import Model, load

USERS = 50_000  # of a shard: its scores for a few interests are 4 bytes each


@dataclass(frozen=True)
class AudiencesJob:
    """What every worker gets."""

    folder: Path
    labels: Path | None
    numbers: tuple[int, ...]
    """Of the interests, in the label space."""
    n: int
    threads: int


class AudiencesWorker(NamedTuple):
    """The job, and the model of this process."""

    job: AudiencesJob
    model: Model


def write_audiences(
    folder: Path | str,
    out: Path | str,
    interests: Sequence[str] | None = None,
    n: int = 1_000,
    labels: Path | None = None,
    engine: EngineConfig = INLINE,
) -> int:
    """The number of rows: interest, rank, user_id, probability; interests in the order given, or of the label space."""
    model = load(folder, labels)
    numbers = _numbers(model, interests)
    users = model.stored_users()
    topk.require_count(n, "users")
    if n > len(users):
        raise DataError(f"There are {len(users):,} users; ask for no more than that (n = {n:,}).")
    job = AudiencesJob(Path(folder), labels, tuple(numbers.tolist()), n, engine.worker_threads())
    essence = {"parents": model.hashes, "n": n, "interests": job.numbers}
    sharded = engine.model_copy(update={"shards": engine.shards or max(1, round(len(users) / USERS))})
    shard_job = ShardJob("audiences", set_up, job, rank_users, essence)
    with workplace(Path(out), sharded) as place:
        best = _join(make_parts(shard_job, users, place, sharded, AudiencesWorker(job, model)), n)
        with files.replacing(Path(out), storage.MODE) as file:
            _table(model, numbers, best).write_parquet(file)
    return len(best)


def set_up(job: AudiencesJob) -> AudiencesWorker:
    """The worker of another process. Whoever began the job has verified the model."""
    return AudiencesWorker(job, load(job.folder, job.labels, verify=False, threads=job.threads, users=False))


def rank_users(worker: AudiencesWorker, rows: pl.DataFrame) -> pl.DataFrame:
    """The best users of a shard for every interest, as rows of the model, with their scores."""
    labels, stored = np.array(worker.job.numbers, dtype=np.int64), rows["row"].to_numpy()
    ranked = list(worker.model.for_users(rows).audiences(labels, rows["user_id"], worker.job.n))
    sizes = [len(audience.rows) for audience in ranked]
    return pl.DataFrame(
        {
            "at": np.repeat(np.arange(len(ranked), dtype=np.uint32), sizes),
            "row": stored[np.concatenate([audience.rows for audience in ranked])].astype(np.uint32),
            "score": np.concatenate([audience.scores for audience in ranked]),
        }
    )


def _numbers(model: Model, interests: Sequence[str] | None) -> Ints:
    """The numbers of labels. Blocked ones are refused, and phrases, which `Model.audience` can score."""
    if interests is None:
        return np.flatnonzero(model.labels.live_mask())
    queries = [model.interest(text) for text in dict.fromkeys(interests)]
    if phrases := [query.text for query in queries if query.label < 0]:
        raise DataError(f"'{phrases[0]}' is no label of this model. Ask for it alone, with `merit model audience`.")
    if not queries:
        raise DataError("The list of interests is empty.")
    return np.array([query.label for query in queries], dtype=np.int64)


def _join(parts: Parts, n: int) -> pl.DataFrame:
    """The best of all shards; two lists of n are in memory for each interest, however many shards there are."""
    best: pl.DataFrame | None = None
    for part in parts.tables():
        both = part if best is None else pl.concat([best, part])
        best = both.sort("at", -pl.col("score"), "row").group_by("at", maintain_order=True).head(n)
    assert best is not None
    return best


def _table(model: Model, numbers: Ints, best: pl.DataFrame) -> pl.DataFrame:
    texts = model.labels.table["text"].gather(numbers[best["at"].to_numpy()])
    ranks = best.select(pl.int_range(1, pl.len() + 1).over("at")).to_series()
    users = model.probabilities(best["row"].to_numpy(), best["score"].to_numpy())
    return users.select(texts.alias("interest"), ranks.alias("rank"), "user_id", "probability")
