"""Tables that a caller sends or names. A child process with little memory reads them, one at a time.

A table of a rule is read by the service itself, once the child has found that it is not too large.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

from merit.campaigns.experiments.design import ExperimentDesign
from merit.campaigns.experiments.outcomes import tabulate
from merit.campaigns.experiments.statistics import Outcomes
from merit.core import confined
from merit.data.sources import files, size
from merit.service.problems import Refusal

T = TypeVar("T")
MOST_SENT = (1_000_000, 256 * 2**20)  # rows and decoded bytes of an uploaded table
MOST_NAMED = (100_000_000, 2 * 2**30)  # of a table of the service
MEMORY = 2**30  # bytes of the child, beyond what its imports take
PATIENCE = 5.0  # seconds until a table is refused because another is being read


class TableReader:
    """One for each service; `seconds` is the time that the child may take."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._lock = seconds, Lock()
        self._small: dict[Path, tuple[int, int, int]] = {}  # files that were judged, with what tells a change

    def sent(self, design: ExperimentDesign, file: Path) -> Outcomes:
        """The statistics of an uploaded table."""
        return self._call(_tabulate_small, design, file, MEMORY)

    def named(self, design: ExperimentDesign, path: Path) -> Outcomes:
        """The statistics of a table of the service, which may have any number of rows."""
        return self._call(tabulate, design, path, 2 * MEMORY)

    def small(self, path: Path) -> Path:
        """The same path, once each of its files is known to be no larger than MOST_NAMED when it is decoded."""
        for file in files.find(path, "its path"):
            stat = file.stat()
            seen = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
            if self._small.get(file) != seen:
                self._call(size.require_small, file, *MOST_NAMED, MEMORY)
                self._small[file] = seen
        return path

    def _call(self, function: Callable[..., T], *arguments: Any) -> T:
        *given, memory = arguments
        if not self._lock.acquire(timeout=PATIENCE):
            raise Refusal(503, "Busy", "Another table is being read.", "Send it again soon.", {"Retry-After": "5"})
        try:
            return confined.call(function, *given, memory=memory, seconds=self._seconds)
        finally:
            self._lock.release()


def _tabulate_small(design: ExperimentDesign, file: Path) -> Outcomes:
    size.require_small(file, *MOST_SENT)
    return tabulate(design, file)
