"""Processes that begin at once: forked from a server that has imported all that is heavy, and has done nothing else.

They are processes like any other: killed, waited for, limited. Only the import of torch and transformers, four seconds
of a core, is paid once for all of them and not by each. What a fresh interpreter loads is asked where that matters
(tests/test_imports.py and the files called test_light.py), never here.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

HEAVY = (
    *("accelerate", "altair", "scipy.stats", "torch._dynamo", "vl_convert"),
    *("transformers.models.llama.modeling_llama", "merit.core.pipeline", "merit.cli", "merit.service.app", "pytest"),
)
FORKED = multiprocessing.get_context("forkserver")
FORKED.set_forkserver_preload(list(HEAVY))


class Child:
    """A process that has begun, with the words of `subprocess.Popen`. What it writes goes to two files."""

    def __init__(self, out: Path, err: Path, folder: Path, function: Callable[..., Any], *arguments: Any) -> None:
        self.out, self.err = out, err
        self._process = FORKED.Process(target=_begin, args=(out, err, folder, function, *arguments))
        self._process.start()
        self.pid = self._process.pid or 0

    def poll(self) -> int | None:
        """Its exit code, once it has ended; a negative one is a signal's."""
        return self._process.exitcode

    def wait(self, seconds: float = 300) -> int:
        self._process.join(seconds)
        code = self._process.exitcode
        assert code is not None, f"still running: {self.err.read_text()}"
        return code

    def kill(self) -> None:
        self._process.kill()

    def terminate(self) -> None:
        self._process.terminate()


def merit(*words: object, folder: Path, out: Path, err: Path) -> Child:
    """`merit WORDS`, given in a folder."""
    return Child(out, err, folder, _merit, *map(str, words))


def _begin(out: Path, err: Path, folder: Path, function: Callable[..., Any], *arguments: Any) -> None:
    for number, file in ((1, out), (2, err)):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
    os.chdir(folder)
    function(*arguments)


def _merit(*words: str) -> None:
    from merit import cli

    sys.argv = ["merit", *words]
    cli.main()
