"""A job from rows to committed parts, by whichever runner; begun anew, it goes on where it was stopped.

    with workplace(out, config) as place:               # parts are kept until the block is through
        table = pl.concat(make_parts(job, rows, place, config).tables())

The folder of parts: plan.json (which job they are of), NNNNN.parquet for every shard with NNNNN.parquet.record,
and at the end manifest.json, which takes the records up.
"""

from __future__ import annotations

import heapq
import io
import json
import math
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from merit import __version__
from merit.core import artifacts, console, provenance
from merit.core.artifacts import MANIFEST, Manifest
from merit.core.errors import DamagedArtifact, EngineError, MeritError, StorageError
from merit.core.types import Ints
from merit.engine import storage
from merit.engine.job import EngineConfig, Outcome, ShardJob, ShardTask, WorkerPool, shard_count, shard_plan
from merit.engine.local import InlinePool, LocalPool
from merit.engine.lock import locked

PLAN = "plan.json"
INLINE = EngineConfig()
BACK_OFF = 0.5  # seconds before the second attempt; twice as many before each further one
LONGEST_BACK_OFF = 30.0
INTERVAL = 1.0  # seconds between two looks at workers that hang


class Workplace(NamedTuple):
    """The folder of a job's parts, and the output they are for: shards that cannot be done are reported beside it."""

    folder: str
    out: str


@dataclass(frozen=True)
class Parts:
    """The finished parts of a job."""

    folder: str
    manifest: Manifest

    def tables(self) -> Iterator[pl.DataFrame]:
        """The tables, shard after shard."""
        for name, record in self.manifest.files.items():
            data = storage.get(storage.within(self.folder, name)) or b""
            if storage.record_of(data) != record:
                raise _damaged(self.folder, name)
            yield pl.read_parquet(io.BytesIO(data))


@contextmanager
def workplace(out: Path, config: EngineConfig = INLINE) -> Iterator[Workplace]:
    """Room for the parts that `out` is made of, for one job at a time. Once the block is through, they are removed."""
    folder = str(out.parent / f".{out.name}.parts-job")
    if config.parts is not None:
        folder = storage.within(config.parts, f"{out.name}-{sha256(str(out.resolve()).encode()).hexdigest()[:12]}")
    with locked(folder):
        yield Workplace(folder, str(out))
        storage.remove(folder)


def write_parts(
    job: ShardJob, rows: pl.DataFrame, folder: str, config: EngineConfig = INLINE, state: Any = None
) -> Parts:
    """The parts as the output itself: they stay in `folder`, with a manifest."""
    with locked(folder):
        return make_parts(job, rows, Workplace(folder, folder.rstrip("/")), config, state)


def make_parts(
    job: ShardJob,
    rows: pl.DataFrame,
    place: Workplace,
    config: EngineConfig = INLINE,
    state: Any = None,
    plan: Mapping[int, Ints] | None = None,
) -> Parts:
    """All parts of a job; those that are missing are made. An error reports shards that cannot be done.

    `rows` has a column user_id. `state` is that of a worker in this process, where there is one. `plan` has the rows of
    each shard, where the job has shards of its own.
    """
    folder, names = place.folder, rows["user_id"].to_list()
    number = len(plan) if plan else config.shards or shard_count(len(rows))
    plan = plan or shard_plan(names, number)
    essence = {"job": job.name, "essence": job.essence, "shards": number, "merit": __version__}
    essence["users"] = sha256("\n".join(names).encode()).hexdigest()
    _adopt(folder, essence)
    files = {shard: f"{shard:05}.parquet" for shard in plan}
    committed = storage.committed(folder, files.values())
    tasks = {
        shard: ShardTask(rows[plan[shard]], storage.within(folder, name))
        for shard, name in files.items()
        if name not in committed
    }
    if committed:
        console.tell(f"{job.name}: {len(committed)} of {len(plan)} shards were done before", job=job.name)
    longest = 60 * (config.shard_minutes or math.inf)
    pool = _pool(job, config, state) if tasks else None
    poisoned = schedule(pool, tasks, job.name, config.attempts, len(plan), longest) if pool else {}
    storage.sweep(folder)
    report = f"{place.out}.poisoned.jsonl"
    if poisoned:
        raise _report(report, job, poisoned, plan, names)
    storage.remove(report)
    return Parts(folder, _seal(folder, essence, list(files.values())))


def _pool(job: ShardJob, config: EngineConfig, state: Any) -> WorkerPool:
    if config.runner == "inline":
        return InlinePool(job, state)
    if config.runner == "local":
        return LocalPool(job, config)
    from merit.engine.ray import RayPool

    return RayPool(job, config)


def _adopt(folder: str, essence: Mapping[str, Any]) -> None:
    """Make the folder this job's. Parts of another job are removed; files that are no parts are left alone."""
    plan = json.dumps(essence, sort_keys=True, default=str).encode()
    present, names = storage.get(storage.within(folder, PLAN)), storage.names(folder)
    if present == plan:
        return
    if present is None and names:
        raise StorageError(f"{folder} exists and does not hold parts of a job. Choose another folder, or remove it.")
    for name in names:
        if name in (PLAN, MANIFEST) or re.fullmatch(rf"\d{{5}}\.parquet({re.escape(storage.RECORD)})?", name):
            storage.remove(storage.within(folder, name))
    storage.put(storage.within(folder, PLAN), plan)


def _seal(folder: str, essence: Mapping[str, Any], names: list[str]) -> Manifest:
    """The manifest, written last. It takes up the records."""
    records = storage.committed(folder, names)
    if lost := set(names) - set(records):
        raise _damaged(folder, min(lost))
    manifest = Manifest(
        kind="parts",
        created=provenance.now(),
        hash="",
        config=json.loads(json.dumps(essence, default=str)),
        files=records,
    )
    manifest = manifest.model_copy(update={"hash": artifacts.identity(manifest)})
    storage.put(storage.within(folder, MANIFEST), manifest.model_dump_json(indent=2).encode())
    for name in records:
        storage.remove(storage.within(folder, name + storage.RECORD))
    return manifest


def _damaged(folder: str, name: str) -> DamagedArtifact:
    return DamagedArtifact(f"{storage.within(folder, name)} is gone or damaged. Run the same again.")


def _report(
    report: str, job: ShardJob, poisoned: Mapping[int, str], plan: Mapping[int, Ints], names: list[str]
) -> EngineError:
    """Write down which rows could not be done, and why."""
    lines = [
        {"shard": shard, "error": error, "rows": plan[shard].tolist(), "users": [names[row] for row in plan[shard]]}
        for shard, error in sorted(poisoned.items())
    ]
    storage.put(report, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode())
    first = lines[0]["error"].strip().splitlines()[-1]
    return EngineError(
        f"{job.name}: {len(poisoned)} of {len(plan)} shards could not be done, the others are kept. Their rows and the "
        f"reasons are in {report}; the first: {first} Mend it and run the same command again."
    )


# --- the loop that all runners share ----------------------------------------------------------------------------------


def schedule(
    pool: WorkerPool,
    tasks: Mapping[int, ShardTask],
    name: str,
    attempts: int,
    total: int,
    longest: float = math.inf,
) -> dict[int, str]:
    """Do all tasks; the shards that could not be done, with the reason. `total` counts those done before, too.

    A worker that has been at one shard for longer than `longest` seconds is ended.
    """
    board = _Board(pool, tasks, attempts, [(0.0, shard) for shard in tasks])
    try:
        with console.steps(name, total, done=total - len(tasks)) as step:
            for _ in range(min(pool.workers, len(tasks))):
                board.start()
            while board.waiting or board.busy():
                board.assign()
                board.end_hanging(longest)
                for future in board.completed():
                    if board.finish(future):
                        step(f"{board.busy()} at work")
    finally:
        pool.close()
    return board.poisoned


@dataclass
class _Board:
    """Which worker does what, and which shards are left."""

    pool: WorkerPool
    tasks: Mapping[int, ShardTask]
    attempts: int
    waiting: list[tuple[float, int]]  # (not before, shard): a heap
    idle: list[int] = field(default_factory=list)
    pending: dict[Future[Outcome], tuple[int, int | None, float]] = field(default_factory=dict)
    """Worker, shard (None while the worker is set up), since when."""
    failures: Counter[int] = field(default_factory=Counter)
    poisoned: dict[int, str] = field(default_factory=dict)
    lost_starts: int = 0

    def start(self) -> None:
        worker, ready = self.pool.start()
        self.pending[ready] = (worker, None, math.inf)

    def busy(self) -> int:
        return sum(shard is not None for _, shard, _ in self.pending.values())

    def assign(self) -> None:
        """Give the shards that may be tried now to the workers that have nothing to do."""
        while self.idle and self.waiting and self.waiting[0][0] <= time.monotonic():
            _, shard = heapq.heappop(self.waiting)
            worker = self.idle.pop()
            self.pending[self.pool.submit(worker, self.tasks[shard])] = (worker, shard, time.monotonic())

    def end_hanging(self, longest: float) -> None:
        for future, (worker, shard, since) in list(self.pending.items()):
            if time.monotonic() - since > longest and not future.done():
                console.warn(f"worker {worker} hangs in shard {shard} and is ended", shard=shard)
                del self.pending[future]
                self._replace(worker, shard)

    def completed(self) -> set[Future[Outcome]]:
        """The futures that are done, after a moment at most."""
        self.pool.check()
        pause = self.waiting[0][0] - time.monotonic() if self.idle and self.waiting else INTERVAL
        pause = min(INTERVAL, max(0.0, pause))
        if self.pending:
            return wait(self.pending, pause, FIRST_COMPLETED).done
        time.sleep(pause)  # all shards that are left wait for another attempt
        return set()

    def finish(self, future: Future[Outcome]) -> bool:
        """Take the answer of a worker; whether a shard is done."""
        worker, shard, _ = self.pending.pop(future)
        if error := future.exception():
            self._replace(worker, shard, error)
            return False
        self.idle.append(worker)
        self.lost_starts = 0
        outcome = future.result()
        if isinstance(outcome, MeritError):
            raise outcome
        if outcome and shard is not None:
            self._retry(shard, outcome.error, outcome.lasting)
        return shard is not None and outcome is None

    def _replace(self, worker: int, shard: int | None, error: BaseException | None = None) -> None:
        """Start another worker for one that was lost."""
        reason = self.pool.end(worker, error)
        self.lost_starts += shard is None
        if self.lost_starts >= self.attempts:
            raise EngineError(f"Workers end before they are ready: {reason}. What was done is kept.")
        if shard is not None:
            self._retry(shard, reason)
        if self.waiting:
            self.start()

    def _retry(self, shard: int, error: str, lasting: bool = False) -> None:
        """Once more, later; or never again."""
        self.failures[shard] += 1
        if lasting or self.failures[shard] >= self.attempts:
            self.poisoned[shard] = error
            return
        console.warn(f"shard {shard} failed and is tried again: {error.strip().splitlines()[-1]}", shard=shard)
        pause = min(LONGEST_BACK_OFF, BACK_OFF * 2 ** (self.failures[shard] - 1))
        heapq.heappush(self.waiting, (time.monotonic() + pause, shard))
