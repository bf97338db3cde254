"""The batch engine: the same bytes for any number of workers, how two scale, and what a killed one costs.

    python -m benchmarks.engine [--quick] [--users 1200]
    python -m benchmarks.engine --all              # also all jobs by 7 processes and Ray, and the next two
    python -m benchmarks.engine --audiences        # a million users × a thousand interests to ranked lists
    python -m benchmarks.engine --memory           # of each streaming stage, with eight times the users
    python -m benchmarks.engine --sizing           # what a user costs, and a cluster for 10, 100 and 500 million

The job is real: states of a generator, trained for a few steps on a planted shop. Workers of one thread each; the clock
starts when all of them are set up, and what that takes is told apart. In one command with others, the figures of
audiences and memory have these words before their names.
"""

from __future__ import annotations

import os
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Any, NamedTuple

import polars as pl
import torch

from benchmarks import engine_audiences, engine_memory, engine_sizing, harness
from merit.core import artifacts, config, console
from merit.core.artifacts import Artifact
from merit.core.pipeline import run
from merit.core.settings import RunConfig
from merit.data import planted
from merit.data.prepare import PrepareRun, prepare
from merit.engine.job import EngineConfig, ShardJob, ShardTask, WorkerPool, shard_plan
from merit.engine.local import InlinePool, LocalPool
from merit.engine.run import schedule
from merit.generator.mining import MiningConfig, mine
from merit.generator.worker import DecodeJob, GeneratorWorker, _set_up, read_rows
from merit.propensity.states import StatesConfig, compute_states, write_states
from merit.retrieval.bulk import write_all_interests

SHARDS = 16
ONE = EngineConfig(shards=SHARDS, threads=1)
Found = tuple[dict[str, Any], dict[str, str]]  # figures, and remarks on some of them


class Gathered:
    """A pool that begins when all of its workers are ready; it can lose one on the way."""

    def __init__(self, pool: LocalPool, loses: bool = False) -> None:
        self._pool, self.workers, self._loses = pool, pool.workers, loses
        self._gates: list[Future[Any]] = []
        self._lock, self._ready, self._submitted, self.gathered = Lock(), 0, 0, 0.0

    def start(self) -> tuple[int, Future[Any]]:
        worker, ready = self._pool.start()
        if self.gathered:
            return worker, ready
        self._gates.append(Future())
        ready.add_done_callback(self._arrived)
        return worker, self._gates[-1]

    def _arrived(self, ready: Future[Any]) -> None:
        with self._lock:
            self._ready += 1
            if self._ready == self.workers:
                self.gathered = time.perf_counter()
                for gate in self._gates:
                    gate.set_result(ready.result())

    def submit(self, worker: int, task: ShardTask) -> Future[Any]:
        submitted = self._pool.submit(worker, task)
        self._submitted += 1
        if self._loses and self._submitted > self.workers:
            self._loses = False
            self._pool.processes[worker].kill()
        return submitted

    def check(self) -> None:
        self._pool.check()

    def end(self, worker: int, error: BaseException | None = None) -> str:
        return self._pool.end(worker, error)

    def close(self) -> None:
        self._pool.close()


class Outcome(NamedTuple):
    hash: str
    rows: int
    different: int
    start: float
    work: float


def done(job: ShardJob, rows: pl.DataFrame, folder: Path, pool: WorkerPool) -> Outcome:
    """All shards by this pool; the hash of all parts, and the rows that are in them."""
    folder.mkdir(parents=True)
    plan = shard_plan(rows["user_id"].to_list(), SHARDS)
    tasks = {at: ShardTask(rows[own], str(folder / f"{at:05}.parquet")) for at, own in plan.items()}
    begin = time.perf_counter()
    poisoned = schedule(pool, tasks, job.name, 3, len(tasks))
    end = time.perf_counter()
    ready = getattr(pool, "gathered", begin)
    if poisoned:
        raise RuntimeError(f"shards could not be done: {poisoned}")
    digest = sha256(b"".join(file.read_bytes() for file in sorted(folder.glob("*.parquet")))).hexdigest()
    found = pl.concat([pl.read_parquet(file).select("split", "row") for file in folder.glob("*.parquet")])
    return Outcome(digest, len(found), found.n_unique(), ready - begin, end - ready)


def measured(made: dict[str, Artifact], place: Path, rounds: int) -> Found:
    torch.set_num_threads(1)  # here as in the workers
    decoding = DecodeJob(made["stage-1"], made["corpus"], made["labels"], StatesConfig(), 7)
    job = ShardJob("states", _set_up, (decoding, 1), compute_states, decoding.identity())
    rows = read_rows(made["corpus"], "train").with_columns(split=pl.lit("train"))
    here = done(job, rows, place / "here", InlinePool(job, GeneratorWorker(decoding)))
    one, two = (EngineConfig(runner="local", workers=count, threads=1) for count in (1, 2))
    pairs = [
        tuple(done(job, rows, place / f"{at}-{each.workers}", Gathered(LocalPool(job, each))) for each in (one, two))
        for at in range(rounds)
    ]
    killed = done(job, rows, place / "killed", Gathered(LocalPool(job, two), loses=True))
    all_of = [here, killed, *(each for pair in pairs for each in pair)]
    figures = {
        "same_hash": len({each.hash for each in all_of}) == 1,
        "scaling_2_workers": round(median(single.work / double.work for single, double in pairs), 3),
        "lost_rows": len(rows) - min(each.different for each in all_of),
        "duplicate_rows": max(each.rows - each.different for each in all_of),
        "rows": len(rows),
        "seconds_here": round(here.work, 2),
        "seconds_1_worker": round(median(single.work for single, _ in pairs), 2),
        "seconds_2_workers": round(median(double.work for _, double in pairs), 2),
        "seconds_to_start": round(median(double.start for _, double in pairs), 2),
    }
    return figures, {
        "same_hash": f"here, 1 worker, 2 workers, 2 with one killed; {SHARDS} shards",
        "scaling_2_workers": "time of 1 over time of 2, once set up",
        "seconds_to_start": "two workers: processes, imports, the model",
    }


def everything(made: dict[str, Artifact], place: Path) -> dict[str, Any]:
    """Examples, mined labels, states and scores by every runner: are their manifests' hashes the same?"""
    right = hashes(made, place / "all-here", ONE)
    same = {}
    for count in (1, 2, 7):
        engine = EngineConfig(runner="local", workers=count, threads=1, shards=SHARDS)
        same[f"same_hash_{count}_processes"] = hashes(made, place / f"all-{count}", engine) == right
    for count in (1, 3):
        with cluster(count):
            engine = EngineConfig(runner="ray", threads=1, shards=SHARDS)
            same[f"same_hash_ray_{count}_nodes"] = hashes(made, place / f"all-ray-{count}", engine) == right
    return same


def hashes(made: dict[str, Artifact], out: Path, engine: EngineConfig) -> list[str]:
    shop = made["stage-1"], made["corpus"], made["labels"]
    asked = PrepareRun.model_validate(made["examples"].manifest.config)
    several = asked.model_copy(update={"prepare": asked.prepare.model_copy(update={"shards": SHARDS})})
    examples = prepare(out / "examples", several, 7, engine)
    mined = mine(DecodeJob(*shop, MiningConfig(), 7), out / "mined", engine)
    states = write_states(DecodeJob(*shop, StatesConfig(), 7), out / "states", engine)
    write_all_interests(made["model"].path, str(out / "scores"), engine=engine)
    return [each.manifest.hash for each in (examples, mined, states, artifacts.load(out / "scores", "parts"))]


@contextmanager
def cluster(nodes: int) -> Iterator[None]:
    """A Ray cluster of so many nodes of one core, on this machine."""
    os.environ |= {"RAY_worker_niceness": "0"}  # this machine may be busy
    import ray
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        for _ in range(nodes - 1):
            made.add_node(num_cpus=1)
        made.wait_for_nodes()
        ray.init(address=made.address, log_to_driver=False, logging_level="ERROR")
        yield
    finally:
        ray.shutdown()
        made.shutdown()


def settings(folder: Path, users: int, seed: int) -> RunConfig:
    planted.write(planted.shop(planted.PlantedConfig(users=users), seed), folder)
    tables = {name: str(folder / f"{name}.parquet") for name in ("interactions", "items")}
    values = {"seed": seed, "out": str(folder / "run"), "cache": str(folder / "cache")}
    values |= {"source": {"kind": "tables", **tables}, "labels": {"encoder": "hashed"}, "decode_batch": 16}  # type: ignore[dict-item]
    few = {"steps": 3, "evaluate_every": 1000}
    return config.build(RunConfig, values | {"reads": "text", "stage_1": few, "stage_2": few, "engine": {"threads": 1}})


def audiences(arguments: Namespace, folder: Path) -> Found:
    users = arguments.users or (20_000 if arguments.quick else 1_000_000)
    return engine_audiences.measured(folder, users, arguments.interests, arguments.seed)


def memory(arguments: Namespace, folder: Path) -> Found:
    return engine_memory.measured(folder, arguments.quick, arguments.seed)


def sizing(arguments: Namespace, folder: Path) -> Found:
    return engine_sizing.measured(folder, arguments.users or (5_000 if arguments.quick else 50_000), arguments.seed)


def workers(arguments: Namespace, folder: Path, whole: bool = False) -> Found:
    """The engine itself: hashes, scaling, a killed worker. The `whole` of it: all jobs, by all runners."""
    asked = settings(folder, arguments.users or (100 if arguments.quick else 1_200), arguments.seed)
    made: dict[str, Artifact] = dict(run(asked, until=None if whole else "stage-1"))  # type: ignore[arg-type]
    figures, remarks = measured(made, folder / "parts", 1 if arguments.quick else arguments.rounds)
    return figures | (everything(made, folder / "whole") if whole else {}), remarks


def all_of_it(arguments: Namespace, folder: Path) -> Found:
    """One after the other, audiences first: the peak of this process is theirs then. The sizes are the usual ones."""
    usual = Namespace(**(vars(arguments) | {"users": None}))
    figures, remarks = dict[str, Any](), dict[str, str]()
    for part in (audiences, memory):
        with TemporaryDirectory(dir=folder) as place:
            found = part(usual, Path(place))
        for told, named in zip(found, (figures, remarks), strict=True):
            named |= {f"{part.__name__}_{figure}": value for figure, value in told.items()}
    own, own_remarks = workers(arguments, folder / "workers", whole=True)
    return own | figures, own_remarks | remarks


PARTS: dict[str, tuple[Callable[[Namespace, Path], Found], str]] = {
    "--audiences": (audiences, "many users × many interests to ranked lists"),
    "--memory": (memory, "with eight times the users"),
    "--sizing": (sizing, "what a user costs, and a cluster for many"),
    "--all": (all_of_it, "all but the sizing, also by 7 processes and Ray"),
}


def main() -> None:
    parser = harness.parser(__doc__)
    parser.add_argument("--users", type=int, help="of the planted shop, or of the multiplied model")
    parser.add_argument("--interests", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.add_mutually_exclusive_group()
    for flag, (part, told) in PARTS.items():
        chosen.add_argument(flag, dest="part", action="store_const", const=part, default=workers, help=told)
    arguments = parser.parse_args()
    console.set_up_logging(quiet=True)
    with TemporaryDirectory() as folder:
        figures, remarks = arguments.part(arguments, Path(folder))
    harness.finish("engine", figures, arguments.seed, remarks)


if __name__ == "__main__":
    harness.run(main)
