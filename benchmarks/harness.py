"""What every benchmark shares: alternate timing, peak memory in a child of its own, one table, one last JSON line."""

from __future__ import annotations

import json
import multiprocessing
import resource
import sys
import time
from argparse import ArgumentParser
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, TypeVar

from merit.core import provenance
from merit.core.console import show_table
from merit.core.errors import MeritError

T = TypeVar("T")


class Ratio(NamedTuple):
    """Seconds of two callables measured in turns, and how many times faster `ours` is."""

    ours: float
    other: float
    speedup: float


def alternate(ours: Callable[[], object], other: Callable[[], object], rounds: int = 7, repeat: int = 1) -> Ratio:
    """Time both in turns, so that a busy machine slows both alike; each round runs each of them `repeat` times."""
    ours(), other()  # the first call pays for caches and lazy imports
    times = [(_seconds(ours, repeat), _seconds(other, repeat)) for _ in range(rounds)]
    one, two = (median(column) for column in zip(*times, strict=True))
    return Ratio(one, two, median(other / own for own, other in times))


def timed(function: Callable[[], T]) -> tuple[T, float]:
    begin = time.perf_counter()
    return function(), time.perf_counter() - begin


def in_child(function: Callable[..., object], *arguments: Any) -> tuple[float, float]:
    """Run a module-level function in a fresh process: that process's peak memory in GiB, and the seconds it took."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as child:
        return child.submit(_measured, function, *arguments).result()  # a killed child raises, and never hangs


def parser(description: str | None) -> ArgumentParser:
    """The arguments every benchmark has; add your own to it."""
    made = ArgumentParser(description=(description or "").split("\n")[0])
    made.add_argument("--quick", action="store_true", help="finish within about 45 seconds on 2 cores")
    made.add_argument("--data", type=Path, help="a file or folder of real data")
    made.add_argument("--seed", type=int, default=7)
    return made


def run(main: Callable[[], None]) -> None:
    """Run a benchmark; an error that a person can mend is one message and an exit code, as in the command line."""
    try:
        main()
    except MeritError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)


def finish(name: str, figures: dict[str, Any], seed: int, remarks: dict[str, str] | None = None) -> None:
    """Print the figures as a table and, as the last line, as one JSON object with their provenance."""
    rows = [(figure, value, (remarks or {}).get(figure, "")) for figure, value in figures.items()]
    show_table(f"benchmarks.{name}", ["figure", "value", "remark"], rows)
    print(json.dumps({**figures, "commit": provenance.commit(), "seed": seed}), flush=True)


def _seconds(function: Callable[[], object], repeat: int) -> float:
    begin = time.perf_counter()
    for _ in range(repeat):
        function()
    return (time.perf_counter() - begin) / repeat


def _measured(function: Callable[..., object], *arguments: Any) -> tuple[float, float]:
    _, seconds = timed(lambda: function(*arguments))
    return _peak_kib() / 2**20, seconds


def _peak_kib() -> float:
    """VmHWM where there is one: Linux lets ru_maxrss of a child start at its parent's peak."""
    status = Path("/proc/self/status")
    if status.exists():
        return float(next(line.split()[1] for line in status.read_text().splitlines() if line.startswith("VmHWM")))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1024 if sys.platform == "darwin" else peak  # macOS counts bytes, others KiB
