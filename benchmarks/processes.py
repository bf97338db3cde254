"""Two processes of one thread against one process of two threads: the same training, steps per second.

    python -m benchmarks.processes [--processes 2] [--steps 60]

Both train the same batches of a planted shop in turns, each in processes of its own, with as many threads in all. What
is timed are steps after the first few, without the start of the processes, which is told apart.
"""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import torch

from benchmarks import harness
from benchmarks.bucketing import OBJECTIVE, QUICK, case_of
from benchmarks.objectives import settings
from merit import console
from merit.artifacts import Artifact
from merit.data import planted
from merit.generator.loop import train
from merit.generator.processes import DevicesConfig, launch
from merit.stages.run import RunConfig, run

WARM = 5  # steps until caches are warm


class Clock:
    """A log that keeps the moment at which each step was told."""

    def __init__(self) -> None:
        self.moments: list[float] = []

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None:
        if tag == "train/loss":
            self.moments.append(time.perf_counter())


def training(run_config: RunConfig, shop: tuple[Artifact, Artifact], seed: int, threads: int) -> float:
    """Seconds of a step, in one of the processes that train."""
    torch.set_num_threads(threads)
    case, clock = case_of(run_config, shop, seed), Clock()
    with TemporaryDirectory() as folder:
        train(case.fresh(), case.corpus, OBJECTIVE, case.config, seed, Path(folder), log=clock)
    return (clock.moments[-1] - clock.moments[WARM - 1]) / (len(clock.moments) - WARM)


def alone(*arguments: Any) -> float:
    """One process of its own, as the others are."""
    with harness.ProcessPoolExecutor(1, mp_context=harness.multiprocessing.get_context("spawn")) as child:
        return child.submit(training, *arguments).result()


def measured(run_config: RunConfig, seed: int, count: int, rounds: int) -> dict[str, float]:
    made = run(run_config, until="labels")
    task = (run_config, (made["examples"], made["labels"]), seed)
    pairs, starts = [], []
    for _ in range(rounds):
        one = alone(*task, count)
        several, whole = harness.timed(lambda: launch(DevicesConfig(processes=count), training, *task, 1))
        pairs.append((several, one))
        starts.append(whole - several * run_config.stage_2.steps)
    return {
        f"{count} processes of one thread, ms per step": round(1000 * median(several for several, _ in pairs), 1),
        f"one process of {count} threads, ms per step": round(1000 * median(one for _, one in pairs), 1),
        "throughput_ratio": round(median(one / several for several, one in pairs), 3),
        "start of the processes, s": round(median(starts), 1),
    }


def main() -> None:
    parser = harness.parser(__doc__)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    console.set_up_logging()
    with TemporaryDirectory() as place:
        folder = Path(place)
        planted.write(planted.shop(planted.PlantedConfig(users=300), arguments.seed), folder)
        overrides = ["labels.encoder=hashed", f"cache={folder / 'cache'}", *(QUICK if arguments.quick else [])]
        run_config = settings(folder, [], 15 if arguments.quick else arguments.steps, folder / "run", overrides)
        rounds = 1 if arguments.quick else arguments.rounds
        figures = measured(run_config, arguments.seed, arguments.processes, rounds)
    harness.finish("processes", figures, arguments.seed)


if __name__ == "__main__":
    harness.run(main)
