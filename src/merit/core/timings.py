"""What stages took: timings.jsonl beside a run's artifacts, from which `merit plan` learns the pace of a machine.

Outside the artifacts themselves: equal results are equal bytes, however long they took. A line for every stage that was
made, the last one counts: a line is only ever added, so no kill leaves more behind than a line that is not whole.
"""

from __future__ import annotations

import resource
from contextlib import suppress
from pathlib import Path

from pydantic import ValidationError

from merit.core.config import Frozen
from merit.core.errors import DamagedArtifact
from merit.core.files import storage_errors

FILE = "timings.jsonl"


class Timing(Frozen):
    """What it took to make one artifact: a line of the file."""

    stage: str
    hash: str
    """Of the artifact that was made: a timing of an older one does not count for it."""
    seconds: float
    peak: int
    """Bytes of memory at the peak."""
    resumed: bool = False
    """The time is that since the last checkpoint only."""


def read(folder: Path) -> dict[str, Timing]:
    """The timings of a run, by stage; empty where there are none. Lines that a kill cut short are passed over."""
    file, timings = folder / FILE, {}
    try:
        lines = file.read_text("utf-8").splitlines()
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise DamagedArtifact(f"{file} cannot be read ({type(error).__name__}). Remove it: nothing needs it.") from None
    for line in lines:
        with suppress(ValidationError):
            timing = Timing.model_validate_json(line)
            timings[timing.stage] = timing
    return timings


def reset_peak() -> None:
    """Count the peak of memory from here on. Where the system cannot, it is that of the whole process."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak() -> int:
    """Bytes of memory at the peak of this process, since the last reset."""
    with suppress(OSError, StopIteration):
        lines = Path("/proc/self/status").read_text().splitlines()
        return 1024 * int(next(line for line in lines if line.startswith("VmHWM")).split()[1])
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def note(folder: Path, timing: Timing) -> None:
    """Add a line to the timings of a run."""
    with storage_errors(folder), (folder / FILE).open("a", encoding="utf-8") as file:
        file.write(f"\n{timing.model_dump_json()}\n")  # the line before may have been cut short
