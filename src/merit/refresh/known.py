"""What a run knows: its model, the events of the training and of the refreshes since, and who is in which split."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import polars as pl
from pydantic import ValidationError

from merit.core import artifacts
from merit.core.artifacts import Artifact
from merit.core.errors import DamagedArtifact, DataError, MissingArtifact
from merit.core.types import SPLITS
from merit.data.examples import DAY
from merit.data.prepare import PrepareConfig, PrepareRun, assign_users, shard_files
from merit.data.schema import EVENTS
from merit.retrieval.build import SINCE, ModelConfig
from merit.retrieval.opening import find

EVENT = ("user_id", "item", "timestamp", "event", "order_id")
ORDER = ("user", "timestamp", "item", "event", "order_id")
NO_EVENTS = pl.DataFrame(
    schema={
        "user_id": pl.String,
        "item": pl.UInt32,
        "timestamp": pl.Datetime("ms", "UTC"),
        "event": EVENTS,
        "order_id": pl.String,
    }
)


class KnownShard(NamedTuple):
    """Users of one part of the hash space, with all of their events."""

    users: pl.DataFrame
    """user_id, hash, split, user: by id, as prepare has them."""
    events: pl.DataFrame
    """user, item, timestamp, event, order_id: sorted."""
    added: pl.DataFrame
    """Those of them that came after the training."""


@dataclass(frozen=True)
class KnownRun:
    """A run with a model, as its folder has it now."""

    model: Artifact
    examples: Artifact
    corpus: Artifact
    labels: Artifact
    """The label space of the training."""
    items: pl.DataFrame
    """item, item_id, title, tags, vertical: those of the training keep their numbers, new ones come behind."""
    since: pl.DataFrame
    """The events of the refreshes before, as EVENT."""
    prepared: PrepareRun
    """The settings of the examples."""
    layout: ModelConfig
    """Those of the model."""

    @property
    def folder(self) -> Path:
        """The folder of the run."""
        return self.model.path.parent

    @property
    def last(self) -> int:
        """The time of the model's last event, in milliseconds."""
        return int(self.model.manifest.summary["last"])

    @property
    def trained_until(self) -> int:
        """That of the training's last event."""
        return int(self.corpus.manifest.summary["last"])

    @property
    def config(self) -> PrepareConfig:
        """What a history is, and who is held out."""
        return self.prepared.prepare

    @property
    def erased(self) -> bool:
        """Whether users were erased from it."""
        figures = self.model.manifest.summary
        return bool(self.examples.manifest.erased or self.model.manifest.erased or figures.get("erased"))

    @cached_property
    def users(self) -> pl.Series:
        """All users who have an event, those without enough history too."""
        names = [self.examples.file(shard_files(number)[0]) for number in range(self._shards)]
        ids = pl.concat([pl.read_parquet(name, columns=["user_id"])["user_id"] for name in names])
        return pl.concat([ids, self.since["user_id"]]).unique()

    @property
    def _shards(self) -> int:
        return int(self.examples.manifest.summary["shards"])

    def recent(self, days: int) -> pl.DataFrame:
        """The events of the last days before `last`, as EVENT."""
        start = pl.lit(self.last - days * DAY).cast(pl.Datetime("ms", "UTC"))
        parts = [self.since.filter(pl.col("timestamp") >= start)]
        for number in range(self._shards):
            users, events, _ = (pl.scan_parquet(self.examples.file(name)) for name in shard_files(number))
            events = events.filter(pl.col("timestamp") >= start)
            parts.append(events.join(users.select("user", "user_id"), on="user").select(EVENT).collect())
        return pl.concat(parts)

    def shards(self, added: pl.DataFrame) -> Iterator[KnownShard]:
        """Shard after shard with the events since the training, and these further ones."""
        added = pl.concat([self.since, added])
        newcomers = self._newcomers(added["user_id"].unique())
        for number in range(self._shards):
            before, events = (pl.read_parquet(self.examples.file(name)) for name in shard_files(number)[:2])
            columns = ("user_id", "hash", "split")
            came = newcomers.filter(pl.col("shard") == number).select(columns)
            users = pl.concat([before.select(columns), came]).sort("user_id").with_row_index("user")
            more = added.join(users.select("user_id", "user"), on="user_id").select(events.columns)
            if len(more):
                numbers = users["user"].gather(users["user_id"].search_sorted(before["user_id"]))
                events = events.with_columns(user=numbers.gather(events["user"]))
                events = pl.concat([events, more]).sort(ORDER)
            yield KnownShard(users, events, more)

    def _newcomers(self, ids: pl.Series) -> pl.DataFrame:
        """Users who were not there in the training: user_id, hash, split, shard."""
        names = [self.examples.file(shard_files(number)[0]) for number in range(self._shards)]
        known = pl.concat([pl.scan_parquet(name).select("user_id") for name in names])
        new = ids.to_frame().lazy().join(known, on="user_id", how="anti").collect()["user_id"]
        split = self.config.split
        users = assign_users(new, split.model_copy(update={"users": None}), self.seed, self._shards)
        return users if split.users is None else users.filter(pl.col("split") == SPLITS[2])

    @property
    def seed(self) -> int:
        """The seed that drew the splits."""
        assert self.examples.manifest.seed is not None
        return self.examples.manifest.seed


def open_run(folder: Path) -> KnownRun:
    """The run in a folder, every byte of its model checked; one that is incomplete, or out of step, is refused."""
    model = artifacts.load(find(folder), "model")
    run = model.path.parent
    corpus, examples = (_parent(run, name) for name in ("corpus", "examples"))
    parents = model.manifest.parents["corpus"].hash, corpus.manifest.parents["examples"].hash
    if parents != (corpus.manifest.hash, examples.manifest.hash):
        raise DataError(f"{model.path} was not made from what else is in {run}. Finish the run: `merit run CONFIG`.")
    labels = artifacts.load(model.file("labels"), "labels", verify=False)
    items = pl.read_parquet(model.file("items.parquet"))
    since = pl.read_parquet(model.file(SINCE)) if model.file(SINCE).exists() else NO_EVENTS
    try:
        settings = (
            PrepareRun.model_validate(examples.manifest.config),
            ModelConfig.model_validate(model.manifest.config),
        )
    except ValidationError:
        raise DamagedArtifact(f"{run} has settings of another merit. Train anew with `merit run CONFIG`.") from None
    return KnownRun(model, examples, corpus, labels, items, since, *settings)


def _parent(run: Path, name: str) -> Artifact:
    if not (run / name / artifacts.MANIFEST).exists():
        raise MissingArtifact(
            f"{run} has no {name}, which a refresh reads beside the model. Name the folder of the whole run, or make "
            "it again with `merit run CONFIG`."
        )
    return artifacts.load(run / name, name)
