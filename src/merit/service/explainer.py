"""Explanations, and answers about new histories where torch reads them, from a child process.

The service itself never loads torch, and an explanation reads a history hundreds of times.

A line of JSON in, a line of JSON out. The child starts with the first request, ends with the service however that ends
(its input is closed), and is ended when an answer takes too long.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from select import select
from threading import Lock
from typing import Any

import merit
from merit.core import errors
from merit.core.errors import DataError, MeritError
from merit.service.histories import interests_of, scores_of
from merit.service.problems import Refusal

CALLS: dict[str, Callable[..., list[dict[str, Any]]]] = {
    "explain": lambda model, **arguments: model.explain(**arguments).to_dicts(),
    "interests_of": interests_of,
    "scores_of": scores_of,
}


class Explainer:
    """The child process of one model; it refuses to answer once the folder holds another than the hash `model`."""

    def __init__(self, folder: Path, labels: Path | None, model: str, seconds: float) -> None:
        self._arguments = [str(folder), str(labels or ""), model]
        self._seconds = seconds
        self._lock = Lock()
        self._child: subprocess.Popen[str] | None = None

    def explain(self, user: str, interest: str, k: int) -> list[dict[str, Any]]:
        """The rows of `Model.explain`."""
        return self.ask("explain", user=user, interest=interest, k=k)

    def ask(self, call: str, **arguments: Any) -> list[dict[str, Any]]:
        """The rows of one of the CALLS. One request at a time: each takes a core."""
        with self._lock:
            child = self._running()
            assert child.stdin and child.stdout
            try:
                child.stdin.write(json.dumps([call, arguments]) + "\n")
                child.stdin.flush()
                ready, _, _ = select([child.stdout], [], [], self._seconds)
                line = child.stdout.readline() if ready else ""
            except BrokenPipeError:
                line = ""
            if not line:
                self._end()
                raise Refusal(503, "It takes too long", "The answer took too long, or its process ended.", "Ask again.")
        answer = json.loads(line)
        if "error" in answer:
            raise getattr(errors, answer["error"])(answer["message"])
        rows: list[dict[str, Any]] = answer["rows"]
        return rows

    def close(self) -> None:
        """End the child, after the request that it answers."""
        with self._lock:
            self._end()

    def _running(self) -> subprocess.Popen[str]:
        if self._child is None or self._child.poll() is not None:
            command = [sys.executable, "-m", "merit.service.explainer", *self._arguments]
            self._child = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
        return self._child

    def _end(self) -> None:
        if self._child:
            self._child.kill()
            self._child.communicate()
            self._child = None


def answer_lines(folder: str, labels: str, expected: str) -> None:
    """Run as the child: answer each line of stdin."""
    model = merit.load(folder, labels or None, verify=False)
    for line in sys.stdin:
        try:
            if model.artifact.manifest.hash != expected:
                raise DataError("The model's folder has changed since it was opened. Reload the service and ask again.")
            call, arguments = json.loads(line)
            answer: dict[str, Any] = {"rows": CALLS[call](model, **arguments)}
        except MeritError as error:
            answer = {"error": type(error).__name__, "message": str(error)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    answer_lines(*sys.argv[1:])
