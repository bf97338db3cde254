"""A job from rows to committed parts, by whichever runner; begun anew, it goes on where it was stopped.

    with workplace(out, config) as place:               # parts are kept until the block is through
        table = pl.concat(make_parts(job, rows, place, config).tables())

The folder of parts: plan.json (which job they are of), NNNNN.parquet for every shard with NNNNN.parquet.record,
and at the end manifest.json, which takes the records up.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from merit import __version__
from merit.core import artifacts, console
from merit.core.artifacts import MANIFEST, Manifest
from merit.core.errors import DamagedArtifact, EngineError, StorageError
from merit.core.types import Ints
from merit.engine import schedule, storage
from merit.engine.commit import RECORD, committed, record_of
from merit.engine.inline import Here
from merit.engine.job import EngineConfig, Pool, ShardJob, Task, shard_count, shard_plan
from merit.engine.local import Local
from merit.engine.lock import held

PLAN = "plan.json"
INLINE = EngineConfig()


class Workplace(NamedTuple):
    """Where one job puts its parts, held against all others while it works."""

    folder: str
    """Of the parts."""
    out: str
    """What they are for: shards that cannot be done are told beside it."""


@dataclass(frozen=True)
class Parts:
    """What a job has made."""

    folder: str
    manifest: Manifest

    def tables(self) -> Iterator[pl.DataFrame]:
        """Shard after shard."""
        for name, record in self.manifest.files.items():
            data = storage.get(storage.within(self.folder, name)) or b""
            if record_of(data) != record:
                raise DamagedArtifact(f"{storage.within(self.folder, name)} is gone or damaged. Run the same again.")
            yield pl.read_parquet(io.BytesIO(data))


@contextmanager
def workplace(out: Path, config: EngineConfig = INLINE) -> Iterator[Workplace]:
    """Room for the parts that `out` is made of, for one job at a time. Once the block is through, they are removed."""
    folder = folder_of(out, config)
    with held(folder):
        yield Workplace(folder, str(out))
        storage.remove(folder)


def write_parts(
    job: ShardJob, rows: pl.DataFrame, folder: str, config: EngineConfig = INLINE, here: Any = None
) -> Parts:
    """The parts themselves are what is wanted: they stay in `folder`, with a manifest."""
    with held(folder):
        return make_parts(job, rows, Workplace(folder, folder.rstrip("/")), config, here)


def folder_of(out: Path, config: EngineConfig) -> str:
    """Where the parts of an output are while it is not finished."""
    if config.parts is None:
        return str(out.parent / f".{out.name}.parts-job")
    return storage.within(config.parts, f"{out.name}-{sha256(str(out.resolve()).encode()).hexdigest()[:12]}")


def make_parts(
    job: ShardJob,
    rows: pl.DataFrame,
    place: Workplace,
    config: EngineConfig = INLINE,
    here: Any = None,
    plan: Mapping[int, Ints] | None = None,
) -> Parts:
    """Do the shards that are missing; all of them, or an error that tells which could not be done.

    `rows` has a column user_id. `here` is a worker of this process that is set up already. `plan` is for a job that has
    shards of its own: the rows of each.
    """
    folder = place.folder
    names = rows["user_id"].to_list()
    number = len(plan) if plan else config.shards or shard_count(len(rows))
    plan = plan or shard_plan(names, number)
    essence = {"job": job.name, "essence": job.essence, "shards": number, "merit": __version__}
    essence["users"] = sha256("\n".join(names).encode()).hexdigest()
    _adopt(folder, essence)
    files = {shard: f"{shard:05}.parquet" for shard in plan}
    there = committed(folder, files.values())
    missing = [shard for shard in plan if files[shard] not in there]
    tasks = {shard: Task(shard, rows[plan[shard]], storage.within(folder, files[shard])) for shard in missing}
    if len(missing) < len(plan):
        console.tell(f"{job.name}: {len(plan) - len(missing)} of {len(plan)} shards were done before", job=job.name)
    poisoned = _worked(job, tasks, config, here, len(plan)) if tasks else {}
    storage.sweep(folder)
    report = f"{place.out}.poisoned.jsonl"
    if poisoned:
        raise _told(report, job, poisoned, plan, names)
    storage.remove(report)
    return Parts(folder, _sealed(folder, job, essence, files))


def _worked(job: ShardJob, tasks: Mapping[int, Task], config: EngineConfig, here: Any, total: int) -> dict[int, str]:
    minutes = config.shard_minutes
    longest = None if minutes is None else 60 * minutes
    return schedule.run(_pool(job, config, here), tasks, job.name, config.attempts, total, longest)


def _pool(job: ShardJob, config: EngineConfig, here: Any) -> Pool:
    if config.runner == "here":
        return Here(job, here)
    if config.runner == "local":
        return Local(job, config)
    from merit.engine.ray import Cluster

    return Cluster(job, config)


def _adopt(folder: str, essence: Mapping[str, Any]) -> None:
    """Make the folder this job's. Parts of another job are removed; files that are no parts are left alone."""
    plan = json.dumps(essence, sort_keys=True, default=str).encode()
    had, there = storage.get(storage.within(folder, PLAN)), storage.names(folder)
    if had == plan:
        return
    if had is None and there:
        raise StorageError(f"{folder} exists and does not hold parts of a job. Choose another folder, or remove it.")
    for name in there:
        if name in (PLAN, MANIFEST) or re.fullmatch(rf"\d{{5}}\.parquet({re.escape(RECORD)})?", name):
            storage.remove(storage.within(folder, name))
    storage.put(storage.within(folder, PLAN), plan)


def _sealed(folder: str, job: ShardJob, essence: Mapping[str, Any], files: Mapping[int, str]) -> Manifest:
    """The manifest, last; it has the records."""
    records = committed(folder, files.values())
    if lost := set(files.values()) - set(records):
        raise DamagedArtifact(f"{storage.within(folder, min(lost))} is gone or damaged. Run the same again.")
    made = Manifest(
        kind="parts",
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        hash="",
        config=json.loads(json.dumps(essence, default=str)),
        files=records,
    )
    made = made.model_copy(update={"hash": artifacts.identity(made, {n: each.sha256 for n, each in records.items()})})
    storage.put(storage.within(folder, MANIFEST), made.model_dump_json(indent=2).encode())
    for name in records:
        storage.remove(storage.within(folder, name + RECORD))
    return made


def _told(
    report: str, job: ShardJob, poisoned: Mapping[int, str], plan: Mapping[int, Ints], names: list[str]
) -> EngineError:
    """Write down which rows could not be done, and why."""
    lines = [
        {"shard": shard, "error": why, "rows": plan[shard].tolist(), "users": [names[row] for row in plan[shard]]}
        for shard, why in sorted(poisoned.items())
    ]
    storage.put(report, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode())
    first = lines[0]["error"].strip().splitlines()[-1]
    return EngineError(
        f"{job.name}: {len(poisoned)} of {len(plan)} shards could not be done, the others are kept. Their rows and the "
        f"reasons are in {report}; the first: {first} Mend it and run the same command again."
    )
