"""Small files of the service, and the lock of its folder."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from merit import files
from merit.files import write

__all__ = ["locked", "write"]


def locked(path: Path, wait: bool = True) -> AbstractContextManager[None]:
    """One process at a time."""
    busy = f"Another service uses {path.parent}. Stop it, or give this one a folder of its own with --state."
    return files.locked(path, busy, wait)
