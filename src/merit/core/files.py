"""Small files: complete or not there, private, and changed by one process at a time."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from merit.core.errors import DamagedArtifact, StorageError

Version = tuple[int, int, int]  # of a file: changes whenever it is replaced


def version(file: Path) -> Version | None:
    """What is different as soon as another file has this name; None where there is none."""
    try:
        stat = file.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


def write(path: Path, content: str | bytes, mode: int = 0o600) -> None:
    """Replace a file in one step."""
    with replacing(path, mode) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def replacing(path: Path, mode: int = 0o600) -> Iterator[BinaryIO]:
    """A file to write that takes the place of another at the end. A reader sees the old bytes or the new ones, whatever
    is killed."""
    with drafted(path, mode) as draft, draft.open("wb") as file:
        yield file


@contextmanager
def drafted(path: Path, mode: int = 0o600) -> Iterator[Path]:
    """The same for whoever writes to a name: an empty file beside it, with its mode from the first byte on."""
    with storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            draft.unlink(missing_ok=True)  # one that a killed process left behind
            draft.touch(mode)
            draft.chmod(mode)  # whatever the umask took away
            yield draft
            _sync(draft)
            draft.replace(path)
            sync_folder(path.parent)
        finally:
            draft.unlink(missing_ok=True)


def exchange(one: Path, other: Path) -> bool:
    """Whether two folders have swapped their names, in one step; not every system and file system can."""
    swap = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    done = swap is not None and not swap(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE)
    sync_folder(other.parent)
    return done


def link(file: Path, copy: Path) -> None:
    """Give the same bytes a second name: weights are large, and do not change."""
    copy.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(file, copy)
    except OSError:  # a file system without links
        shutil.copy2(file, copy)


def remove_folder(folder: Path, patience: float = 2.0) -> None:
    """Remove a folder with all in it, as far as that is allowed.

    After an interruption, threads of a library may go on writing into it for a moment: it is tried again, for so many
    seconds at most.
    """
    end = time.monotonic() + patience
    while True:
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists() or time.monotonic() > end:
            return
        time.sleep(0.02)


def sync_folder(folder: Path) -> None:
    """New names in it outlive a loss of power, too."""
    with suppress(OSError):  # not every file system lets a folder be synced
        _sync(folder)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def locked(path: Path, busy: str | None = None, fleeting: bool = False) -> Iterator[None]:
    """Let one process in at a time: the next one waits, or fails with the message `busy`.

    A lock goes with its process: a killed one leaves none. A `fleeting` one takes its file along.
    """
    with storage_errors(path):
        descriptor = _take(path, busy)
    try:
        yield
    finally:
        if fleeting:
            with suppress(OSError):
                path.unlink(missing_ok=True)
        os.close(descriptor)


def _take(path: Path, busy: str | None) -> int:
    """The lock on the file that has this name now: a holder before may have taken along the one that was waited for."""
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (fcntl.LOCK_NB if busy else 0))
        except BlockingIOError:
            os.close(descriptor)
            raise StorageError(busy) from None
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                return descriptor
        os.close(descriptor)


@contextmanager
def storage_errors(place: Path) -> Iterator[None]:
    """Turn an error of the file system into one sentence with a remedy, also where a library hides the errno."""
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


@contextmanager
def opening(folder: Path) -> Iterator[None]:
    """Turn what a library says about a file that merit did not write into one sentence that names the folder."""
    try:
        yield
    except Exception as error:
        if isinstance(error, (*_UNREADABLE, OSError)) or type(error).__module__.startswith(_HIDING):
            raise DamagedArtifact(
                f"{folder} has a file that merit did not write ({type(error).__name__}), though its manifest names it. "
                "Make the artifact again with `merit run`, or take it from a source you trust."
            ) from error
        raise


def require_no_folder(out: Path) -> None:
    """Before the work, not after it: a file can take this place."""
    if out.is_dir():
        raise StorageError(f"{out} is a folder, and a file is to be written. Name it: --out {out / 'NAME'}.")


_EXCHANGE, _HERE = 2, -100  # RENAME_EXCHANGE, AT_FDCWD
_UNREADABLE = (  # what a strange file makes
    *(ValueError, KeyError, TypeError, IndexError, AttributeError),
    *(RuntimeError, EOFError, AssertionError, OverflowError, MemoryError),
)
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
