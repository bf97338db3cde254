"""A folder takes another's place in one step, so that whoever opens it finds the old one or the new one, whole."""

from __future__ import annotations

import ctypes
import os
import shutil
from contextlib import suppress
from pathlib import Path

EXCHANGE, HERE = 2, -100  # RENAME_EXCHANGE, AT_FDCWD


def exchange(draft: Path, place: Path) -> None:
    """Swap the names of two folders. Where the file system cannot, one step aside and one in: `mended` knows both."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(HERE, os.fsencode(draft), HERE, os.fsencode(place), EXCHANGE):
        aside = _aside(draft)
        place.rename(aside)
        draft.rename(place)
        aside.rename(draft)
    _sync(place.parent)


def mended(draft: Path, place: Path) -> None:
    """After a kill between two steps: the new folder is complete, or the old one would not have stepped aside."""
    if not place.exists() and draft.exists():
        draft.rename(place)
    shutil.rmtree(_aside(draft), ignore_errors=True)


def linked(file: Path, copy: Path) -> None:
    """The same bytes under a second name: weights are large, and do not change."""
    copy.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(file, copy)
    except OSError:  # a file system without links
        shutil.copy2(file, copy)


def _aside(draft: Path) -> Path:
    return draft.with_name(f"{draft.name}-old")


def _sync(folder: Path) -> None:
    with suppress(OSError):  # not every file system lets a folder be synced
        descriptor = os.open(folder, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
