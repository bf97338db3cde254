"""Jobs that are done in no time, and fail in the ways that real ones do; light, so that a process starts quickly."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import fsspec
import polars as pl
from fsspec.implementations.dirfs import DirFileSystem

from merit.core.errors import ConfigError, DataError
from merit.engine.job import ShardJob


class Shelf(DirFileSystem):
    """A store that several processes see, reached through fsspec and not as a folder: shelf://… is below $SHELF."""

    protocol = "shelf"
    cachable = False  # the environment is another one in the next test

    def __init__(self, **options: object) -> None:
        super().__init__(path=os.environ["SHELF"], fs=fsspec.filesystem("file", auto_mkdir=True), **options)


fsspec.register_implementation("shelf", Shelf, clobber=True)


@dataclass(frozen=True)
class Settings:
    marks: Path
    """A folder where workers leave marks that a test looks for."""
    at: str = "user-3"
    """Whose shard goes wrong."""


def set_up(settings: Settings) -> Settings:
    (settings.marks / f"set-up-{os.getpid()}").touch()
    return settings


def double(settings: Settings, rows: pl.DataFrame) -> pl.DataFrame:
    (settings.marks / f"done-{rows['row'][0]}-{time.monotonic_ns()}").touch()
    return rows.select("row", doubled=pl.col("row") * 2, before=pl.col("row").cum_sum())


def slow(settings: Settings, rows: pl.DataFrame) -> pl.DataFrame:
    time.sleep(0.15)
    return double(settings, rows)


def dies_once(settings: Settings, rows: pl.DataFrame) -> pl.DataFrame:
    """Its process is killed in the middle of one shard, the first time."""
    mark = settings.marks / "died"
    if settings.at in rows["user_id"] and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return double(settings, rows)


def always_dies(settings: Settings, rows: pl.DataFrame) -> pl.DataFrame:
    if settings.at in rows["user_id"]:
        os.kill(os.getpid(), signal.SIGKILL)
    return double(settings, rows)


def hangs_once(settings: Settings, rows: pl.DataFrame) -> pl.DataFrame:
    """Its process is stopped in the middle of one shard, the first time."""
    mark = settings.marks / "stopped"
    if settings.at in rows["user_id"] and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGSTOP)
    return double(settings, rows)


def stumbles_once(settings: Settings, rows: pl.DataFrame) -> pl.DataFrame:
    mark = settings.marks / "stumbled"
    if settings.at in rows["user_id"] and not mark.exists():
        mark.touch()
        raise TimeoutError("the file server was away")
    return double(settings, rows)


def always_stumbles(settings: Settings, rows: pl.DataFrame) -> pl.DataFrame:
    (settings.marks / f"tried-{time.monotonic_ns()}").touch()
    if settings.at in rows["user_id"]:
        raise ZeroDivisionError("no answer")
    return double(settings, rows)


def bad_rows(settings: Settings, rows: pl.DataFrame) -> pl.DataFrame:
    if settings.at in rows["user_id"]:
        (settings.marks / f"refused-{time.monotonic_ns()}").touch()
        raise DataError("user-3 has no name.")
    return double(settings, rows)


def gpu(settings: Settings, rows: pl.DataFrame) -> pl.DataFrame:
    """Which GPU it may use."""
    time.sleep(0.02)  # so that one worker does not do all
    return rows.select("row", gpu=pl.lit(os.environ.get("CUDA_VISIBLE_DEVICES")))


def refuses(settings: Settings) -> Settings:
    raise ConfigError("The model is of another kind. Choose another.")


def job(marks: Path, work: Callable[[Settings, pl.DataFrame], pl.DataFrame] = double, essence: str = "a") -> ShardJob:
    return ShardJob("doubling", set_up, Settings(marks), work, essence)


def rows(users: int = 80, each: int = 3) -> pl.DataFrame:
    names = [f"user-{user}" for user in range(users) for _ in range(each)]
    return pl.DataFrame({"user_id": names, "row": range(len(names))})
