"""Small files: complete or not there, private, and changed by one process at a time."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from merit.errors import StorageError
from merit.storage import storage_errors


def write(path: Path, content: str | bytes, mode: int = 0o600) -> None:
    """Replace a file in one step. A reader sees the old bytes or the new ones, whatever is killed."""
    with storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
                os.fchmod(file.fileno(), mode)  # a draft left behind keeps its old mode otherwise
                file.write(content.encode() if isinstance(content, str) else content)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)


@contextmanager
def locked(path: Path, busy: str | None = None) -> Iterator[None]:
    """One process at a time: the next one waits, or is told that it is `busy`.

    A lock goes with its process: a killed one leaves none.
    """
    with storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (fcntl.LOCK_NB if busy else 0))
        except BlockingIOError:
            raise StorageError(busy) from None
        yield
    finally:
        os.close(descriptor)
