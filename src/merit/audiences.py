"""The most likely users of many interests at once: one Parquet file, by whichever runner.

    write_audiences("runs/shop", "audiences.parquet", n=1_000)                       # of all live interests
    write_audiences("runs/shop", "spring.parquet", ["trail running"], engine=EngineConfig(runner="ray"))

A shard is some users, ranked among themselves for every interest; the best n of all are among the best n of each shard,
so joining the shards gives what `Model.audience` gives, to the last bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from merit import files
from merit.engine import places
from merit.engine.config import EngineConfig
from merit.engine.job import Job
from merit.engine.run import HERE, Parts, make_parts, workplace
from merit.errors import DataError
from merit.model import Model, load
from merit.retrieval import additions, fast, topk
from merit.retrieval.exact import Doubles
from merit.retrieval.topk import Ranked
from merit.types import Ints

USERS = 50_000  # of a shard: its scores for a few interests are 4 bytes each
TOGETHER = 32  # interests that share every block of users


@dataclass(frozen=True)
class Asked:
    """It goes to every worker."""

    folder: Path
    labels: Path | None
    numbers: tuple[int, ...]
    """Of the interests, in the label space."""
    n: int
    threads: int


class Worker:
    def __init__(self, asked: Asked, model: Model) -> None:
        self.asked, self.model = asked, model
        self.vectors = model.label_vectors(np.array(asked.numbers, dtype=np.int64))

    def ranked(self, rows: Ints) -> Iterator[Ranked]:
        """For one interest after the other, the best of these users (ascending)."""
        adds = _Additions(self.model, rows)
        scorer, asked = self.model._scorer, self.asked
        for at in range(0, len(asked.numbers), TOGETHER):
            halves = scorer.exact.labels.halves(self.vectors[at : at + TOGETHER])
            fixed, off = scorer._fix(halves, scorer.users)
            rough = fast.scores(scorer.mlp, scorer.users.halves, fixed, rows, scorer.threads, scorer.block)
            for label, half, some, bound in zip(asked.numbers[at:], halves, rough, off.tolist(), strict=False):
                own, added = adds.of(label)
                near = rows[topk.candidates(some, asked.n + additions.ahead(added), bound)]
                dense = Ranked(near, self._exact(near, half))
                yield additions.merged(dense, own, self._exact(own, half), added, asked.n)

    def _exact(self, rows: Ints, half: Doubles) -> Doubles:
        scorer = self.model._scorer
        return scorer.exact.scores(scorer.exact.users.halves(scorer.users.vectors.take(rows)), half)


class _Additions:
    """What having had a label adds to the scores of some users, label by label."""

    def __init__(self, model: Model, rows: Ints) -> None:
        had, added = model._repeats.had.gather(rows), model._repeats.of_users(rows)
        order = np.argsort(had.values, kind="stable")
        self._labels, self._added = had.values[order], added[order]
        self._users = np.repeat(rows, had.lengths())[order]

    def of(self, label: int) -> tuple[Ints, Doubles]:
        """Users, and what it adds for each."""
        some = slice(*np.searchsorted(self._labels, [label, label + 1]).tolist())
        return self._users[some], self._added[some]


def write_audiences(
    folder: Path | str,
    out: Path | str,
    interests: Sequence[str] | None = None,
    n: int = 1_000,
    labels: Path | None = None,
    engine: EngineConfig = HERE,
) -> int:
    """The number of rows: interest, rank, user_id, probability; interests in the order given, or of the label space."""
    model = load(folder, labels)
    numbers = _numbers(model, interests)
    users = model.users.select("user_id")
    topk.require_count(n, "users")
    if n > len(users):
        raise DataError(f"There are {len(users):,} users; ask for no more than that (n = {n:,}).")
    asked = Asked(Path(folder), labels, tuple(numbers.tolist()), n, engine.of_threads())
    hashes = [model.artifact.manifest.hash, model._labels.manifest.hash]
    essence = {"parents": hashes, "n": n, "interests": list(asked.numbers)}
    sharded = engine.model_copy(update={"shards": engine.shards or max(1, round(len(users) / USERS))})
    job = Job("audiences", set_up, asked, rank, essence)
    with workplace(Path(out), sharded) as place:
        best = _join(make_parts(job, users, place, sharded, Worker(asked, model)), n)
        with files.replacing(Path(out), places.MODE) as file:
            _told(model, numbers, best).write_parquet(file)
    return len(best)


def set_up(asked: Asked) -> Worker:
    model = load(asked.folder, asked.labels, verify=False)  # who began the job has read every byte
    model._scorer.threads = asked.threads
    return Worker(asked, model)


def rank(worker: Worker, rows: pl.DataFrame) -> pl.DataFrame:
    """Of every interest: the best of these users, as rows of the model, with their scores."""
    ranked = list(worker.ranked(np.sort(worker.model._rows(rows["user_id"]))))
    sizes = [len(each.rows) for each in ranked]
    return pl.DataFrame(
        {
            "at": np.repeat(np.arange(len(ranked), dtype=np.uint32), sizes),
            "row": np.concatenate([each.rows for each in ranked]).astype(np.uint32),
            "score": np.concatenate([each.scores for each in ranked]),
        }
    )


def _numbers(model: Model, interests: Sequence[str] | None) -> Ints:
    """Labels by their numbers. What is blocked is refused; what is no label is a question for `Model.audience`."""
    if interests is None:
        return np.flatnonzero(model.labels.live_mask())
    wanted = [model.interest(text) for text in dict.fromkeys(interests)]
    if unknown := [each.text for each in wanted if each.label < 0]:
        raise DataError(f"'{unknown[0]}' is no label of this model. Ask for it alone, with `merit model audience`.")
    if not wanted:
        raise DataError("The list of interests is empty.")
    return np.array([each.label for each in wanted], dtype=np.int64)


def _join(parts: Parts, n: int) -> pl.DataFrame:
    """The best of all shards; two lists of n are in memory for each interest, however many shards there are."""
    best: pl.DataFrame | None = None
    for each in parts.tables():
        both = each if best is None else pl.concat([best, each])
        best = both.sort("at", -pl.col("score"), "row").group_by("at", maintain_order=True).head(n)
    assert best is not None
    return best


def _told(model: Model, numbers: Ints, best: pl.DataFrame) -> pl.DataFrame:
    at = best["at"].to_numpy()
    return pl.DataFrame(
        {
            "interest": model.labels.table["text"].gather(numbers[at]),
            "rank": best.select(pl.int_range(1, pl.len() + 1).over("at")).to_series(),
            "user_id": model._stored["user_id"].gather(best["row"]),
            "probability": model._calibration.probability(best["score"].to_numpy()),
        }
    )
