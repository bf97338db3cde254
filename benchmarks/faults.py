"""A whole run, from tables to an audience, while its processes are killed, stopped, refused the disk and lied to by it.

    python -m benchmarks.faults [--kills 100] [--quick]
    python -m benchmarks.faults --config configs/demo.toml --set stage_1.steps=24    # kills alone, of another run

Every stage of a planted shop's run is struck at a random moment, in turns, until there were so many kills; then the run
is let finish and compared with one that nobody disturbed: the hashes of all artifacts, and the rows of all tables of
users. The moments are drawn with the seed; what they meet depends on the machine. Then the disk fills up (a limit on
the size of files, and a small tmpfs where that may be mounted), permission is taken away, and bits of finished
artifacts and of parts are flipped, or their ends cut off.
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks import harness
from benchmarks.faults_bytes import corruption, mended, parts_corruption
from benchmarks.faults_run import (
    FRESH,
    HEAVY,
    PATIENCE,
    STAGES,
    Place,
    Right,
    Toll,
    at_work,
    begun,
    compare,
    finished,
    said,
    undisturbed,
)
from merit.core import console
from merit.core.artifacts import MANIFEST
from merit.core.errors import StorageError
from merit.core.seeds import stream


def strike(place: Place, out: Path, stage: str, how: str, seconds: float, toll: Toll) -> bool:
    """Begin, or go on, until `stage` has been at work for so long; then the fault. Whether it came in time."""
    before = place.stages[: place.stages.index(stage)]
    with begun(place, out) as process:
        while process.is_alive() and not all((out / each / MANIFEST).exists() for each in before):
            time.sleep(0.002)
        process.join(seconds)
        if not process.is_alive():
            return False
        toll.struck[at_work(place, out)] += 1
        toll.tried[how] += 1
        if how.startswith("SIGSTOP"):
            os.kill(process.pid, signal.SIGSTOP)
            time.sleep(0.2)
        if how == "SIGSTOP, SIGCONT":
            os.kill(process.pid, signal.SIGCONT)
            process.join(seconds)
    return True  # and killed on the way out


def kills(place: Place, right: Right, wanted: int, rng: np.random.Generator, toll: Toll) -> None:
    """Stage after stage is struck, round after round."""
    ways = ("SIGKILL", "SIGKILL", "SIGSTOP, SIGKILL", "SIGSTOP, SIGCONT")
    done = 0
    while done < wanted:
        out, here_now = place.folder / f"round-{done}", 0
        for stage in place.stages:
            seconds = float(rng.uniform(0, right.seconds[stage]))
            how = str(rng.choice(ways))
            if done + here_now < wanted:
                here_now += strike(place, out, stage, how, seconds, toll)
        done += max(1, here_now)
        compare(place, out, right, toll, here_now)


def limited(place: Place, out: Path, limit: int, toll: Toll) -> bool:
    """No file may be larger than so much. Whether that was told as an error of storage."""
    told = _is_told(place, out, finished(place, out, limit=limit), toll)
    toll.tried["RLIMIT_FSIZE"] += 1
    toll.struck[at_work(place, out)] += 1
    return told


def revoked(place: Place, out: Path, stage: str, seconds: float, toll: Toll) -> bool:
    """When `stage` has been at work for so long, the folder of the run may not be written to any more."""
    out.mkdir(exist_ok=True)
    with begun(place, out, meek=True) as process:
        while process.is_alive() and not (out / place.stages[place.stages.index(stage) - 1] / MANIFEST).exists():
            time.sleep(0.002)
        process.join(seconds)
        out.chmod(0o500)
        process.join(PATIENCE)
        told = _is_told(place, out, process.exitcode, toll)
    toll.tried["permission revoked"] += 1
    toll.struck[at_work(place, out)] += 1
    out.chmod(0o700)
    return told


def refused(place: Place, right: Right, times: int, rng: np.random.Generator, toll: Toll) -> Counter[str]:
    """Both, in one run after the other: how often each was told."""
    told = Counter[str]()
    for number in range(times):
        out, stage = place.folder / f"refused-{number}", str(rng.choice(place.stages[5:]))
        limit = int(math.exp(rng.uniform(math.log(300), math.log(60_000))))
        told["RLIMIT_FSIZE"] += limited(place, out, limit, toll)
        seconds = float(rng.uniform(0, right.seconds[stage] / 2))
        told["permission revoked"] += revoked(place, out, stage, seconds, toll)
        compare(place, out, right, toll, faults=2)
    return told


def small_disk(place: Place, right: Right, times: int, rng: np.random.Generator, toll: Toll) -> int:
    """On a tmpfs that fills up, and is enlarged afterwards."""
    told = 0
    size = sum(file.stat().st_size for file in (place.folder / "right").rglob("*") if file.is_file())
    for number in range(times):
        disk = place.folder / f"disk-{number}"
        with tmpfs(disk, int(size * rng.uniform(0.1, 0.8))) as enlarge:
            told += _is_told(place, disk / "run", finished(place, disk / "run"), toll)
            toll.tried["tmpfs"] += 1
            toll.struck[at_work(place, disk / "run")] += 1
            enlarge()
            compare(place, disk / "run", right, toll)
    return told


def _is_told(place: Place, out: Path, code: int | None, toll: Toll) -> bool:
    """Whether a run ended with a message about storage; what it said instead is kept."""
    if code not in (0, StorageError.exit_code):
        toll.untold.append(f"code {code}: {said(place, out)}")
    return code == StorageError.exit_code


@contextmanager
def tmpfs(folder: Path, size: int) -> Iterator[Callable[[], None]]:
    folder.mkdir()
    _mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder))
    try:
        yield lambda: _mount("-o", "remount,size=256m", str(folder))
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=False)


def _mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True, capture_output=True)


def may_mount(place: Place) -> bool:
    try:
        with tmpfs(place.folder / "trial", 1 << 20):
            return True
    except (OSError, subprocess.CalledProcessError):
        return False


def other_faults(place: Place, right: Right, quick: bool, rng: np.random.Generator, toll: Toll) -> dict[str, Any]:
    """Disks that fill up, permission taken away, flipped bits: tells of them, and returns their figures."""
    times = 1 if quick else 6
    told = refused(place, right, times, rng, toll)
    if may_mount(place):
        told["tmpfs"] = small_disk(place, right, times, rng, toll)
    table = corruption(place.folder / "right", place.stages, 500 if quick else 5_000, rng)
    part = next((place.folder / "right" / "scores").glob("*.parquet")).read_bytes()
    table["parts not yet sealed"] = parts_corruption(place.folder / "parts", part, 200, rng)
    console.show_table("told with a remedy", ["fault", "times"], list(told.items()))
    headings = ["file", "bits flipped", "found out", "cut off", "found out"]
    console.show_table("damage", headings, [(name, *found) for name, found in table.items()])
    return {
        "damage_not_found_out": sum(found[0] - found[1] + found[2] - found[3] for found in table.values()),
        "mended_by_running_again": f"{mended(place, right, times, rng)} of {times}",
    }


def main() -> None:
    parser = harness.parser(__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--config", type=Path, help="kill this run instead of a small one of a planted shop")
    parser.add_argument("--set", action="append", default=[], metavar="A.B=C", help="override a setting of --config")
    arguments = parser.parse_args()
    console.set_up_logging(quiet=True)
    FRESH.set_forkserver_preload(list(HEAVY))
    rng, toll = stream(arguments.seed, "benchmarks.faults"), Toll()
    with TemporaryDirectory() as folder:
        place = Place(Path(folder), config=arguments.config, overrides=tuple(arguments.set))
        right = undisturbed(place)
        begin = time.perf_counter()
        kills(place, right, 16 if arguments.quick else arguments.kills, rng, toll)
        others = {} if arguments.config else other_faults(place, right, arguments.quick, rng, toll)
        seconds = time.perf_counter() - begin
    console.show_table("faults", ["fault", "times"], list(toll.tried.items()))
    console.show_table("at work when it struck", ["stage", "times"], [(each, toll.struck[each]) for each in STAGES])
    figures = {
        "kills": sum(count for name, count in toll.tried.items() if name.startswith("SIG")),
        "other_faults": sum(count for name, count in toll.tried.items() if not name.startswith("SIG")),
        "runs_compared": toll.runs,
        "runs_that_did_not_finish": " ".join([str(len(toll.failed)), *toll.failed]),
        "runs_with_another_hash": f"{len(toll.different)} {', '.join(sorted(set(toll.different)))}",
        "users": max(right.users.values()),
        "lost_rows": toll.lost,
        "duplicated_rows": toll.duplicated,
        "half_written": toll.half_written,
        "ended_without_a_remedy": " ".join([str(len(toll.untold)), *toll.untold]),
        "shards_done_again": toll.extra,
        "shards_done_again_beyond_one_per_fault": toll.too_much,
        **others,
        "seconds_undisturbed": round(sum(right.seconds.values()), 1),
        "seconds": round(seconds),
    }
    harness.finish("faults", figures, arguments.seed)


if __name__ == "__main__":
    harness.run(main)
