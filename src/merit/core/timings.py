"""What stages took: timings.jsonl beside a run's artifacts, so that a plan can be compared with what came of it.

Outside the artifacts themselves: equal results are equal bytes, however long they took. A line for every stage that was
made, the last one counts: a line is only ever added, so no kill leaves more behind than a line that is not whole.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from pydantic import ValidationError

from merit.core.artifacts import Artifact
from merit.core.config import Frozen
from merit.core.errors import DamagedArtifact
from merit.core.files import storage_errors
from merit.generator import processes

FILE = "timings.jsonl"


class Timing(Frozen):
    """What it took to make one artifact."""

    hash: str
    """Of the artifact that was made: a record of an older one says nothing about this."""
    seconds: float
    peak: int
    """Bytes in memory at the most."""


class Entry(Frozen):
    """One line of the file."""

    stage: str
    timing: Timing


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
    """The record of a run, by stage; empty where there is none. Lines that a kill cut short say nothing."""
    file, told = folder / FILE, {}
    try:
        lines = file.read_text("utf-8").splitlines()
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise DamagedArtifact(f"{file} cannot be read ({type(error).__name__}). Remove it: nothing needs it.") from None
    for line in lines:
        with suppress(ValidationError):
            entry = Entry.model_validate_json(line)
            told[entry.stage] = entry.timing
    return told


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
    line = Entry(stage=stage, timing=timing).model_dump_json()
    with storage_errors(folder), (folder / FILE).open("a", encoding="utf-8") as file:
        file.write(f"\n{line}\n")  # the line before may have been cut short
