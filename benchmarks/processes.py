"""Two processes of one thread against one process of two threads: the same training, steps per second.

    python -m benchmarks.processes [--processes 2] [--steps 60]

Both train the same batches of a planted shop in turns, each in processes of its own, with as many threads in all. What
is timed are steps after the first few, without the start of the processes, which is told apart. Times and the ratio are
medians over rounds with a 95 % interval. At the end the weights of both are compared, number by number.
"""

from __future__ import annotations

import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from safetensors.numpy import load_file

from benchmarks import harness
from benchmarks.objectives import settings
from benchmarks.patching import usual
from merit.baselines.generative import corpus_of
from merit.core import console
from merit.core.artifacts import Artifact
from merit.core.pipeline import run
from merit.core.processes import DevicesConfig, launch, number
from merit.core.ragged import Ragged, column_lists
from merit.core.settings import RunConfig
from merit.data import planted
from merit.data.corpus import read_table
from merit.data.texts import read_shop
from merit.generator import backbone, checkpoint
from merit.generator.training import train
from merit.objective.collate import OBJECTIVES

WARM = 5  # steps until caches are warm
BEFORE, AFTER = "before.safetensors", "after.safetensors"


OBJECTIVE = OBJECTIVES["cross-entropy-invariance"]  # sets and the uniform temper, as in stage 2, and needs no mining
QUICK = ["labels.encoder=hashed", "backbone.width=64", "backbone.layers=2", "backbone.vocabulary=1600"]


class Clock:
    """A log that keeps the moment at which each step was told."""

    def __init__(self) -> None:
        self.moments: list[float] = []

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None:
        if tag == "train/loss":
            self.moments.append(time.perf_counter())


def training(run_config: RunConfig, corpus: Artifact, seed: int, threads: int, place: Path) -> float:
    """Seconds of a step, in one of the processes that train; the weights before and after are kept in `place`."""
    torch.set_num_threads(threads)
    shop, table, clock = read_shop(corpus), read_table(corpus, "train", "prompt", "gold"), Clock()
    prompts, gold = (column_lists(table[name]) for name in ("prompt", "gold"))
    read = corpus_of(prompts, gold, Ragged(shop.paths.offsets, shop.paths.tokens), shop.vocabulary)
    model = backbone.make(run_config.backbone, shop.vocabulary, seed)
    if not number():
        checkpoint.save(place / BEFORE, model, None, {})
    with TemporaryDirectory() as folder:
        train(model, read, OBJECTIVE, run_config.stage_2, seed, Path(folder), log=clock)
    if not number():
        checkpoint.save(place / AFTER, model, None, {})
    return (clock.moments[-1] - clock.moments[WARM - 1]) / (len(clock.moments) - WARM)


def alone(*arguments: Any) -> float:
    """One process of its own, as the others are."""
    with harness.ProcessPoolExecutor(1, mp_context=harness.multiprocessing.get_context("spawn")) as child:
        return child.submit(training, *arguments).result()


def apart(one: Path, other: Path) -> float:
    """The largest difference of any weight."""
    had, got = load_file(one), load_file(other)
    return max(float(np.abs(had[name] - got[name]).max()) for name in had)


def measured(run_config: RunConfig, seed: int, count: int, rounds: int, folder: Path) -> dict[str, Any]:
    made = run(run_config, until="corpus")
    task = (run_config, made["corpus"], seed)
    places = single, shared = folder / "one", folder / "several"
    for place in places:
        place.mkdir()
    pairs, starts = [], []
    for _ in range(rounds):
        one = alone(*task, count, single)
        several, whole = harness.timed(lambda: launch(DevicesConfig(processes=count), training, *task, 1, shared))
        pairs.append((several, one))
        starts.append(whole - several * run_config.stage_2.steps)
    by_several, by_one = np.array(pairs).T
    return {
        f"{count} processes of one thread, ms per step": usual(1000 * by_several, 1),
        f"one process of {count} threads, ms per step": usual(1000 * by_one, 1),
        "throughput_ratio": usual(by_one / by_several, 3)[0],
        "throughput_ratio, interval": usual(by_one / by_several, 3)[1:],
        "start of the processes, s": usual(np.array(starts), 1),
        "steps": run_config.stage_2.steps,
        "largest_weight_difference": apart(single / AFTER, shared / AFTER),
        "largest change of a weight by the training": apart(single / BEFORE, single / AFTER),
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
        figures = measured(run_config, arguments.seed, arguments.processes, rounds, folder)
    harness.finish("processes", figures, arguments.seed)


if __name__ == "__main__":
    harness.run(main)
