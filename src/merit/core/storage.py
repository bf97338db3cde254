"""What the file system refuses, said in one sentence with a remedy."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from merit.core.errors import StorageError


@contextmanager
def storage_errors(place: Path) -> Iterator[None]:
    """Turn what the file system says into one sentence and a remedy, also where a library hides the errno in a text."""
    try:
        yield
    except OSError as error:
        if remedy := _REMEDIES.get(error.errno or 0) or _remedy_in(str(error)):
            named = error.filename2 or error.filename or place
            raise StorageError(f"{named}: {remedy} Nothing was left behind.") from error
        raise
    except Exception as error:
        hidden = type(error) is Exception or type(error).__module__.startswith(_HIDING)
        if hidden and (remedy := _remedy_in(str(error))):
            raise StorageError(f"{place}: {remedy} Nothing was left behind.") from error
        raise


def require_no_folder(out: Path) -> None:
    """Before the work, not after it: a file can take this place."""
    if out.is_dir():
        raise StorageError(f"{out} is a folder, and a file is to be written. Name it: --out {out / 'NAME'}.")


_HIDING = ("polars", "safetensors")  # tokenizers raises the bare Exception
_A_FILE_IN_THE_WAY = "a part of this path is a file, not a folder. Choose another place with --out."
_REMEDIES = {
    errno.ENOSPC: "the disk is full. Free some space, or write elsewhere with --out.",
    errno.EDQUOT: "the disk quota is used up. Free some space, or write elsewhere with --out.",
    errno.EFBIG: "the file would be larger than this system allows. Raise the limit (ulimit -f), or use more shards.",
    errno.EACCES: "permission denied. Choose a folder you may write to with --out.",
    errno.ENOTDIR: _A_FILE_IN_THE_WAY,
    errno.EEXIST: _A_FILE_IN_THE_WAY,  # what mkdir says of a parent that is a file
    errno.EISDIR: "this is a folder, and a file is needed. Choose another place with --out.",
    errno.EROFS: "the file system is read-only. Choose another folder with --out.",
}


def _remedy_in(message: str) -> str | None:
    return next((remedy for code, remedy in _REMEDIES.items() if os.strerror(code) in message), None)
