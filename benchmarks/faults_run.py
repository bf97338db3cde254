"""A whole run in a process that can be struck, and how it compares with one that was left alone."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import resource
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partialmethod
from pathlib import Path
from typing import Any

import polars as pl

from merit.campaigns.audiences import build
from merit.core import artifacts, config, console
from merit.core.artifacts import MANIFEST
from merit.core.errors import MeritError
from merit.core.pipeline import STAGES, run
from merit.core.settings import RunConfig
from merit.data import planted
from merit.engine.job import EngineConfig, ShardWorker
from merit.retrieval.bulk import write_all_interests
from merit.retrieval.opening import load

USERS, SHARDS = 140, 6
PATIENCE = 3_600
"""Seconds after which a run is taken to hang."""
STAGES = (*STAGES, "scores", "audience")
TABLES = {
    "examples": "users-*.parquet",
    "corpus": "now.parquet",
    "model": "users.parquet",
    "audience": "members.parquet",
    "scores": "*.parquet",
}
ENGINE = EngineConfig(threads=1, shards=SHARDS)
HEAVY = ("accelerate", "altair", "transformers.models.llama", "vl_convert", __name__)
FRESH = multiprocessing.get_context("forkserver")  # a child of a process that has imported everything and done nothing
SMALL: dict[str, Any] = {
    "labels": {"encoder": "hashed"},
    "reads": "text",
    "backbone": {"width": 16, "layers": 1, "heads": 2, "vocabulary": 1400},
    "prepare": {"shards": 2},
    "stage_1": {"steps": 3, "checkpoint_every": 1},
    "stage_2": {"steps": 3, "checkpoint_every": 1},
    "mining": {"samples": 1, "max_labels": 4},
    "states": {"labels": 2},
    "predict": {"budget": 4, "exposure": False, "union": False, "likelihood": False},
    "propensity": {
        "model": {"labels": 2, "width": 16, "layers": 1, "heads": 2, "hidden": 16, "second": 8},
        "fit": {"epochs": 2},
    },
    "evaluation": {"resamples": 100},
    "ranking": {"resamples": 100},
    "engine": ENGINE.model_dump(),
}


@dataclass(frozen=True)
class Place:
    """The tables of a shop, and folders for runs over them: the tables' path is a setting, so all runs share it."""

    folder: Path
    until: str | None = None
    """The last stage; by default the run is followed by the scores of everyone and an audience."""
    config: Path | None = None
    """The settings of another shop; by default a small one is planted."""
    overrides: tuple[str, ...] = ()
    """Changes to these settings."""

    @property
    def stages(self) -> tuple[str, ...]:
        return STAGES[: STAGES.index(self.until) + 1] if self.until else STAGES

    def settings(self, out: Path) -> RunConfig:
        if self.config:
            own_place = f'out="{out}"', f'cache="{out / "cache"}"'
            return config.load(RunConfig, self.config, (*self.overrides, *own_place))
        tables = {name: str(self.folder / f"{name}.parquet") for name in ("interactions", "items")}
        own = {"source": {"kind": "tables", **tables}, "out": str(out), "cache": str(out / "cache")}
        return config.build(RunConfig, SMALL | own)


@dataclass(frozen=True)
class Right:
    """What a run gives that nobody disturbed."""

    hashes: dict[str, str]
    users: dict[str, int]
    shards: int
    seconds: dict[str, float]


@dataclass
class Toll:
    """What the faults did."""

    tried: Counter[str] = field(default_factory=Counter)  # fault → how often it struck
    struck: Counter[str] = field(default_factory=Counter)  # stage → how often it was at work then
    runs: int = 0
    different: list[str] = field(default_factory=list)  # the first stage with another hash, of each run that has one
    failed: list[str] = field(default_factory=list)
    half_written: int = 0
    untold: list[str] = field(default_factory=list)  # what was said where a message with a remedy was due
    lost: int = 0
    duplicated: int = 0
    extra: int = 0  # shards done again
    too_much: int = 0  # of these, beyond one for each fault


def go(place: Place, out: Path, limit: int | None = None, meek: bool = False) -> None:
    """From tables to an audience; what is there is kept. Files may be of `limit` bytes; `meek` obeys permissions."""
    told = os.open(place.folder / f"{out.name}.said", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    os.dup2(told, 1), os.dup2(told, 2)
    if meek:
        _obey_permissions()
    if limit is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    console.set_up_logging(quiet=True)
    ShardWorker.work = partialmethod(_counted, out.with_suffix(".work"), ShardWorker.work)  # type: ignore[assignment]
    try:
        settings = place.settings(out)
        run(settings, place.until)
        if place.until:
            return
        write_all_interests(out, str(out / "scores"), k=3, engine=settings.engine)
        if not (out / "audience" / MANIFEST).exists():
            model = load(out)
            asked = {
                "name": "Faults",
                "interests": [model.labels.table["text"][0]],
                "size": {"by": "count", "users": 100},
            }
            build.build(model, config.build(build.AudienceRequest, asked), out / "audience")
    except MeritError as error:
        print(error, flush=True)
        sys.exit(error.exit_code)


def _obey_permissions() -> None:
    """Give up the privilege of root to read and write whatever is forbidden (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH)."""
    libc, header, sets = ctypes.CDLL(None), (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    if libc.capget(header, sets) != 0:
        raise OSError("capget")
    for at in range(3):  # effective, permitted, inheritable
        sets[at] &= ~0b110
    if libc.capset(header, sets) != 0:
        raise OSError("capset")


def _counted(worker: ShardWorker, file: Path, work: Callable[..., Any], task: Any) -> Any:
    """A shard, noted where no kill wipes it out."""
    with suppress(OSError), file.open("a") as notes:
        notes.write("x")
    return work(worker, task)


@contextmanager
def begun(place: Place, out: Path, **how: Any) -> Iterator[Any]:
    process = FRESH.Process(target=go, args=(place, out), kwargs=how)
    process.start()
    try:
        yield process
    finally:
        process.kill()
        process.join()


def finished(place: Place, out: Path, **how: Any) -> int:
    """Run to the end; the exit code."""
    with begun(place, out, **how) as process:
        process.join(PATIENCE)
        return process.exitcode if process.exitcode is not None else -1


def said(place: Place, out: Path) -> str:
    """The last line that a run wrote."""
    return (place.folder / f"{out.name}.said").read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1]


def hashes(place: Place, out: Path) -> dict[str, str]:
    return {stage: artifacts.load(out / stage).manifest.hash for stage in place.stages}


def users(place: Place, out: Path) -> dict[str, tuple[int, int]]:
    """Rows and different users of every table of users; of the scores, those of the best interest of each."""
    found = {}
    for stage in set(TABLES) & set(place.stages):
        table = pl.read_parquet(out / stage / TABLES[stage])
        best = table.filter(pl.col("rank") == 1) if stage == "scores" else table
        found[stage] = len(best), best["user_id"].n_unique()
    return found


def shards_done(out: Path) -> int:
    notes = out.with_suffix(".work")
    return notes.stat().st_size if notes.exists() else 0


def undisturbed(place: Place) -> Right:
    if not place.config:
        planted.write(planted.shop(planted.PlantedConfig(users=USERS), 3), place.folder)
    out = place.folder / "right"
    warm = FRESH.Process(target=int)  # imports are no part of the first stage
    warm.start()
    warm.join()
    begin = time.time()
    if (code := finished(place, out)) != 0:
        raise RuntimeError(f"the run that nobody disturbs ends with code {code}: {said(place, out)}")
    ends = {stage: (out / stage / MANIFEST).stat().st_mtime for stage in place.stages}
    starts = [begin, *ends.values()]
    seconds = {stage: max(0.05, ends[stage] - start) for stage, start in zip(place.stages, starts, strict=False)}
    rows = {stage: count for stage, (count, _) in users(place, out).items()}
    return Right(hashes(place, out), rows, shards_done(out), seconds)


def compare(place: Place, out: Path, right: Right, toll: Toll, faults: int = 1) -> None:
    """Let a struck run finish, and hold it against the right one."""
    toll.runs += 1
    toll.half_written += half_written(place, out)
    if finished(place, out) != 0:
        toll.failed.append(said(place, out))
        return
    made = hashes(place, out)
    toll.different += [stage for stage in place.stages if made[stage] != right.hashes[stage]][:1]
    for stage, (rows, different) in users(place, out).items():
        toll.lost += right.users[stage] - different
        toll.duplicated += rows - different
    extra = shards_done(out) - right.shards
    toll.extra += extra
    toll.too_much += max(0, extra - faults)
    left = [each.name for each in out.iterdir() if each.name.startswith(".") and each.suffix != ".lock"]  # nobody's
    toll.half_written += len(left)
    shutil.rmtree(out)


def half_written(place: Place, out: Path) -> int:
    """Folders of stages that are there and not whole, before anybody mends them. Parts are no stage until sealed."""
    count = 0
    for stage in place.stages:
        sealed = (out / stage / MANIFEST).exists()
        if (out / stage).exists() and (sealed or stage != "scores"):
            try:
                artifacts.load(out / stage)
            except MeritError:
                count += 1
    return count


def at_work(place: Place, out: Path) -> str:
    return next((stage for stage in place.stages if not (out / stage / MANIFEST).exists()), "finished")
