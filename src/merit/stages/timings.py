"""What stages took: timings.json beside a run's artifacts, so that a plan can be compared with what came of it.

Outside the artifacts themselves: equal results are equal bytes, however long they took.
"""

from __future__ import annotations

import json
import os
import resource
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from pydantic import ValidationError

from merit.artifacts import Artifact
from merit.config import Frozen
from merit.errors import DamagedArtifact
from merit.generator import processes
from merit.storage import storage_errors

FILE = "timings.json"


class Timing(Frozen):
    hash: str
    """Of the artifact that was made: a record of an older one says nothing about this."""
    seconds: float
    peak: int
    """Bytes in memory at the most."""


def timed(make: Callable[[Path], Artifact], folder: Path, stage: str) -> Callable[[Path], Artifact]:
    """The same, noting in the run's folder what it took."""

    def noted(out: Path) -> Artifact:
        reset_peak()
        begin = time.perf_counter()
        made = make(out)
        seconds = round(time.perf_counter() - begin, 2)
        if not processes.number():  # of several that train together, one tells
            _note(folder, stage, Timing(hash=made.manifest.hash, seconds=seconds, peak=peak()))
        return made

    return noted


def read(folder: Path) -> dict[str, Timing]:
    """The record of a run, by stage; empty where there is none."""
    file = folder / FILE
    try:
        return {stage: Timing.model_validate(told) for stage, told in json.loads(file.read_text("utf-8")).items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError, ValidationError) as error:
        raise DamagedArtifact(f"{file} cannot be read ({type(error).__name__}). Remove it: nothing needs it.") from None


def reset_peak() -> None:
    """From here on the peak is counted anew. Where the system cannot, it is the peak of the process."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak() -> int:
    """Bytes this process had in memory at the most, since the last reset."""
    with suppress(OSError, StopIteration):
        lines = Path("/proc/self/status").read_text().splitlines()
        return 1024 * int(next(line for line in lines if line.startswith("VmHWM")).split()[1])
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _note(folder: Path, stage: str, timing: Timing) -> None:
    told = {name: each.model_dump() for name, each in (read(folder) | {stage: timing}).items()}
    draft = folder / f".{FILE}.tmp-{os.getpid()}"
    with storage_errors(folder):
        draft.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")
        draft.rename(folder / FILE)
