"""prepare: two raw tables → examples.

The interactions are read as a stream, cleaned, and parted by a stable hash of the user id; each part is then sorted
and turned into examples on its own, so that memory depends on the size of a part and not of the shop. Three passes:
who the users are, parting, parts. The first two are streams of one process; the third, which takes longest, is work for
any number of them.

The artifact: items.parquet, item_counts.parquet, and for every shard users-, events- and examples-NNNNN.parquet.
"""

from __future__ import annotations

import io
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import Field, model_validator

from merit.core import artifacts, console
from merit.core.artifacts import Artifact
from merit.core.config import Frozen
from merit.core.errors import DataError
from merit.core.seeds import USER_SALT, derive, stable_hash, unit_interval
from merit.core.types import SPLITS, Ints
from merit.data import sources, validate
from merit.data.examples import ExamplesConfig, build_examples
from merit.data.schema import SourceTables
from merit.engine.job import EngineConfig, ShardJob, rows_by_shard
from merit.engine.run import INLINE, Workplace, make_parts, workplace

Flags = NDArray[np.bool_]
EVENTS_PER_SHARD = 4_000_000  # some 200 MB at work
ROWS_HELD = 8_192  # of every shard, until they are written
ROWS_AT_ONCE = 8_192  # go through a stream together; dozens of such pieces are on their way, whatever their size
TABLES = ("users", "events", "examples")
ITEM_TAGS = "item_tags.parquet"  # of a tags artifact: item_id, tag, score, reason
FEW_BARE = 0.05  # share of items without tags, from which it is worth a message
NOBODY: Ints = np.zeros(0, dtype=np.int64)


class SplitConfig(Frozen):
    """Shares of the users that are held out; all others are trained on."""

    validation: float = Field(0.1, ge=0, lt=1)
    test: float = Field(0.2, ge=0, lt=1)
    """Larger than usual: intervals over test users are the product here, and public shops are small."""
    users: int | None = Field(None, ge=2, exclude_if=lambda users: users is None)
    """So many users for training and validation, by their hash; of the others only those of the test stay. It is what a
    small shop would get, measured on as many users as ever."""

    @model_validator(mode="after")
    def _leaves_training_users(self) -> SplitConfig:
        if self.validation + self.test >= 1:
            raise ValueError("validation + test leave no users to train on; together they must be below 1")
        return self


class PrepareConfig(ExamplesConfig):
    """What an example is, which users are tested, and in how many shards all is written."""

    split: SplitConfig = SplitConfig()
    shards: int | None = Field(None, ge=1, le=60_000)
    """A property of the job, not of the workers. By default one for every 4 million events."""


class PrepareRun(Frozen):
    """All that decides what this stage makes."""

    source: sources.Source
    prepare: PrepareConfig = PrepareConfig()


@dataclass(frozen=True)
class Shard:
    """Users of one part of the hash space, with all of their events and examples."""

    number: int
    users: pl.DataFrame
    events: pl.DataFrame
    examples: pl.DataFrame


@dataclass(frozen=True)
class Building:
    """What makes examples of events. It goes to every worker."""

    events: Path
    """A folder of events for every shard."""
    tagged: Flags
    """By item: whether it has a tag."""
    config: PrepareConfig
    seed: int


def prepare(
    out: Path, config: PrepareRun, seed: int, engine: EngineConfig = INLINE, tags: Artifact | None = None
) -> Artifact:
    """Write the examples artifact. With `tags`, items have those instead of the tags of their table."""
    tables = sources.open_source(config.source)
    parents = {"tags": tags} if tags else {}
    with (
        pl.Config(streaming_chunk_size=ROWS_AT_ONCE),
        workplace(out, engine) as place,
        artifacts.writing(out, "examples", config=config, seed=seed, parents=parents, inputs=tables.inputs) as draft,
    ):
        with console.spinner("reading the tables"):
            good = _tagged(validate.validate(tables), tags)
            [counted], aside = validate.collect(good, good.interactions.group_by("user_id").len("events"))
            number = config.prepare.shards or max(1, math.ceil(int(counted["events"].sum()) / EVENTS_PER_SHARD))
            users = assign_users(counted["user_id"], config.prepare.split, seed, number)
        with TemporaryDirectory(dir=draft.path, ignore_cleanup_errors=True) as parts:  # the draft goes anyway
            with console.spinner(f"parting the events of {len(users):,} users into {number} shards"):
                _part(good, users, Path(parts))
            tagged = (good.items["tags"].list.len() > 0).to_numpy()
            building = Building(Path(parts), tagged, config.prepare, seed)
            essence = {"config": config.model_dump(mode="json"), "seed": seed, "inputs": tables.inputs}
            job = ShardJob("building examples", set_up, building, build_shard, essence | {"shards": number})
            counts, total, span = _write_shards(_built(job, users, number, place, engine), draft.path, len(tagged))
        _require_examples(total, config.prepare)
        pl.DataFrame({"item": good.items["item"], "count": counts}).write_parquet(draft.path / "item_counts.parquet")
        good.items.select("item", *validate.ITEM).write_parquet(draft.path / "items.parquet")
        draft.summary |= {"shards": number, "items": len(good.items)} | total | span
        draft.summary["set_aside"] = _set_aside(tables, aside, draft.path / "quarantine.parquet")
    return artifacts.load(out, "examples")


def _tagged(tables: validate.IndexedTables, tags: Artifact | None) -> validate.IndexedTables:
    """The tables with the tags of an artifact; a message where many items have none."""
    items = tables.items
    if tags:
        chosen = pl.read_parquet(tags.file(ITEM_TAGS)).group_by("item_id", maintain_order=True).agg(tagged="tag")
        items = items.join(chosen, on="item_id", how="left", maintain_order="left")
        items = items.with_columns(tags=pl.col("tagged").fill_null(pl.lit([], pl.List(pl.String)))).drop("tagged")
        return replace(tables, items=items)
    bare = int((items["tags"].list.len() == 0).sum())
    if bare == len(items):
        raise DataError(
            f"No item of {tables.source.names['items']} has a tag, and without tags there are no interests. Read them "
            "from titles with --set 'tags.sources=[\"mine\"]' (docs/tags.md), or name their column with "
            "--set source.item_columns.tags=THEIRS."
        )
    if bare > FEW_BARE * len(items):
        console.tell(
            f"{bare:,} of {len(items):,} items have no tags: their events count in no label, and they are no targets. "
            "Complete them with --set 'tags.sources=[\"complete\"]' (docs/tags.md).",
            untagged=bare,
        )
    return tables


def shards(examples: Artifact) -> Iterator[Shard]:
    """The shards of an examples artifact, one at a time."""
    for number in range(examples.manifest.summary["shards"]):
        users, events, built = (pl.read_parquet(examples.file(name)) for name in shard_files(number))
        yield Shard(number, users, events, built)


def assign_users(user_ids: pl.Series, config: SplitConfig, seed: int, shards: int) -> pl.DataFrame:
    """A row per user, ordered by shard and id: user_id, hash, split, shard, and `user`, its number within the shard.

    A user belongs to one split and one shard for ever, by a hash of the id and by nothing else.
    """
    hashes = stable_hash(user_ids.to_list(), USER_SALT)
    place = unit_interval(derive(hashes, seed, "split"))
    split = np.where(place < config.test, 2, np.where(place < config.test + config.validation, 1, 0))
    kept, drawn = split == 2, derive(hashes, seed, "learners")
    learners = np.flatnonzero(~kept)
    kept[learners[np.argsort(drawn[learners])[: config.users]]] = True
    return (
        pl.DataFrame(
            {
                "user_id": user_ids,
                "hash": hashes,
                "split": pl.Series(split.astype(np.uint8)).cat.to(pl.Enum(SPLITS)),
                "shard": (derive(hashes, 0, "shard") % np.uint64(shards)).astype(np.uint16),
            }
        )
        .filter(kept)
        .sort("shard", "user_id")
        .with_columns(user=pl.int_range(pl.len(), dtype=pl.UInt32).over("shard"))
    )


def set_up(building: Building) -> Building:
    """Nothing has to be loaded: the settings are the worker."""
    return building


def build_shard(building: Building, users: pl.DataFrame, number: int | None = None) -> pl.DataFrame:
    """A shard as one row: the bytes of its tables, training events by item, sizes, and its first and last time.

    Its `number` is that of its users; it has to be given where there are none.
    """
    number = users["shard"][0] if number is None else number
    events = _read_part(building.events / f"shard={number}")
    owner, times = events["user"].to_numpy(), events["timestamp"].to_physical()
    busy = np.bincount(owner, minlength=len(users)).astype(np.uint32)
    users = users.with_columns(events=pl.Series(busy)).drop("shard")
    examples = build_examples(events, users, building.tagged, building.config, building.seed)
    training = (users["split"] == SPLITS[0]).to_numpy()
    counts = np.bincount(events["item"].to_numpy()[training[owner]], minlength=len(building.tagged))
    sizes = {"users": len(users), "events": len(events), "examples": len(examples), "train_users": int(training.sum())}
    sizes |= {split: int((examples["split"] == split).sum()) for split in SPLITS}
    tables = {"users": users, "events": events, "examples": examples}
    return pl.DataFrame(
        {
            "number": [number],
            **{name: [_bytes(tables[name])] for name in TABLES},
            "counts": [pl.Series(counts.astype(np.uint64))],
            "total": [sizes],
            "first": pl.Series([times.min()], dtype=pl.Int64),
            "last": pl.Series([times.max()], dtype=pl.Int64),
        }
    )


def _built(
    job: ShardJob, users: pl.DataFrame, number: int, place: Workplace, engine: EngineConfig
) -> Iterator[pl.DataFrame]:
    """Shard after shard, of which one is in memory. Here none is kept on the way: all would be written twice."""
    plan = rows_by_shard(users["shard"].to_numpy())
    if engine.runner == "inline":
        for at in console.track(range(number), job.name, total=number):
            yield build_shard(job.settings, users[plan.get(at, NOBODY)], at)
        return
    yield from make_parts(job, users, place, engine, plan=plan).tables()
    for at in sorted(set(range(number)) - set(plan)):
        yield build_shard(job.settings, users.clear(), at)


def _write_shards(
    built: Iterator[pl.DataFrame], folder: Path, items: int
) -> tuple[pl.Series, Counter[str], dict[str, int]]:
    """Write the tables of all shards; events of training users by item, sizes, and the times of the first and last."""
    counts, total, spans = np.zeros(items, dtype=np.uint64), Counter[str](), []
    for shard in built:
        for name, file in zip(TABLES, shard_files(shard["number"].item()), strict=True):
            (folder / file).write_bytes(shard[name].item())
        counts += shard["counts"].item().to_numpy()
        total += Counter(shard["total"].item())
        spans.append(shard.select("first", "last"))
    first, last = pl.concat(spans).select(pl.col("first").min(), pl.col("last").max()).row(0)
    return pl.Series(counts), total, {"first": first, "last": last}


def shard_files(number: int) -> tuple[str, ...]:
    """The users, events and examples of a shard, in this order."""
    return tuple(f"{name}-{number:05}.parquet" for name in TABLES)


def _bytes(table: pl.DataFrame) -> bytes:
    """In one piece first: row groups follow the pieces, of which there are as many as cores."""
    buffer = io.BytesIO()
    table.rechunk().write_parquet(buffer)
    return buffer.getvalue()


def _part(good: validate.IndexedTables, users: pl.DataFrame, parts: Path) -> None:
    """Write each shard's events to a folder of its own, with numbers in place of ids."""
    (
        good.interactions.join(users.lazy().select("user_id", "user", "shard"), on="user_id", build_side="force_right")
        .select("shard", "user", "item", "timestamp", "event", "order_id")
        .sink_parquet(
            pl.PartitionBy(parts, key="shard", include_key=False),
            compression="lz4",  # read once, soon: speed before size
            row_group_size=ROWS_HELD,
            maintain_order=False,  # every part is sorted afterwards
            mkdir=True,
        )
    )


def _set_aside(tables: SourceTables, aside: validate.BadRows, file: Path) -> int:
    """Keep every row that was not used, with the reason; a warning says so."""
    count = aside.bad_interactions + aside.unknown_items + aside.bad_items
    if count:
        validate.quarantine(tables, file)
        console.warn(f"{count:,} rows could not be used; they are in {file.name} with the reason", rows=count)
    return count


def _read_part(folder: Path) -> pl.DataFrame:
    if not folder.exists():  # no user fell into this shard
        return pl.read_parquet(folder.parent / "*" / "*.parquet", n_rows=0, hive_partitioning=False)
    # By user and time, then by everything else: rows that come in any order give the same bytes.
    return pl.read_parquet(folder / "*.parquet").sort("user", "timestamp", "item", "event", "order_id")


def _require_examples(total: Counter[str], config: PrepareConfig) -> None:
    if not total["train"] or not total["test"]:
        raise DataError(
            f"No {'training' if not total['train'] else 'test'} examples came out of {total['events']:,} events of "
            f"{total['users']:,} users: an example needs a purchase with {config.min_history} events between "
            f"{config.history_days} and {config.gap_days} days before it. Bring a longer span of data, or lower "
            "--set prepare.min_history or --set prepare.gap_days."
        )
