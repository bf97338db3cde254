"""A function in a child process that has little memory and little time: for files that strangers may send or swap.

A small file can unpack to any size, and a library that runs out of memory ends its process. Here it is the child's.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

from merit.core.errors import DataError, MeritError
from merit.core.processes import cores

T = TypeVar("T")
PER_CORE = 2**24  # bytes: a library's threads have stacks


def call(function: Callable[..., T], *arguments: Any, memory: int, seconds: float) -> T:
    """What a module-level function returns, called with `memory` bytes beyond what its imports take.

    A DataError says so where that was not enough, or where it took longer than `seconds`.
    """
    fresh = multiprocessing.get_context("spawn")
    ours, theirs = fresh.Pipe(duplex=False)
    child = fresh.Process(target=_work, args=(theirs, memory, function, arguments), daemon=True)
    child.start()
    theirs.close()
    try:
        if not ours.poll(seconds):
            raise DataError(f"The table takes longer than {seconds:g} s to read. Send a smaller one.")
        answer = ours.recv()
    except EOFError:
        raise DataError(
            f"The table needs more than {memory / 2**20:,.0f} MiB once it is unpacked. Send a smaller one."
        ) from None
    finally:
        child.kill()
        child.join()
        ours.close()
    if isinstance(answer, MeritError):
        raise answer
    result: T = answer
    return result


def _work(answers: Connection, memory: int, function: Callable[..., Any], arguments: Any) -> None:
    """The life of the child. It says nothing: what a library writes at its end may quote the table."""
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    if sys.platform == "linux":
        import resource

        status = Path("/proc/self/status").read_text(encoding="ascii")
        taken = 1024 * int(status.partition("VmData:")[2].split()[0])
        limit = taken + memory + cores() * PER_CORE
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    try:
        answers.send(function(*arguments))
    except MeritError as error:
        answers.send(error)
    except MemoryError:
        os._exit(1)
