"""How many machines for how many users: what a user costs here in each stage, times the users.

    python -m benchmarks.engine --sizing

The generator and the propensity model have their default sizes; the label space has some 1,500 labels. A stage of which
every user is one row costs in proportion to them, since shards exchange nothing. What does not shard is told apart.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch

from benchmarks.engine_audiences import BEST, live, multiplied, trained
from benchmarks.engine_memory import prepared, write_shop
from merit.core import artifacts
from merit.core.artifacts import Artifact
from merit.core.console import show_table
from merit.core.types import SPLITS
from merit.data.corpus import NOW, PURCHASES, CorpusRun, build_corpus
from merit.engine.job import EngineConfig
from merit.generator.mining import MiningConfig, mine
from merit.generator.worker import DecodeJob
from merit.propensity.states import StatesConfig, write_states
from merit.retrieval.bulk import write_all_interests, write_audiences
from merit.retrieval.opening import load

T = TypeVar("T")
AT = (10_000_000, 100_000_000, 500_000_000)
CORES, NIGHT = 16, 8.0  # of a machine; hours
SPARE = 1.25  # more machines than by the cores alone: workers start, the last shards wait for each other
INTERESTS = 1_000
ONE = EngineConfig(threads=1)


class Cost(NamedTuple):
    """Of one user."""

    seconds: float  # of a core
    disk: float  # bytes that stay
    basis: str


def size(*places: Path) -> int:
    files = [file for place in places for file in ([place] if place.is_file() else place.rglob("*"))]
    return sum(file.stat().st_size for file in files if file.is_file())


def core_seconds(work: Callable[[], T]) -> tuple[T, float]:
    """What it gives, and the time of this process on all of its cores: other work on the machine does not count."""
    begin = time.process_time()
    return work(), time.process_time() - begin


def costs(folder: Path, users: int, seed: int) -> dict[str, Cost]:
    """By stage: what a user costs a core of this machine, and what of them stays on disk."""
    torch.set_num_threads(1)
    model = trained(folder, seed)
    inputs = [artifacts.load(folder / "run" / name) for name in ("stage-2", "corpus", "labels")]
    corpus = inputs[1]
    real, examples = corpus.manifest.summary["users"], corpus.manifest.summary["train"]
    many = multiplied(model, folder / "many", users, seed)
    texts = live(load(many.path), INTERESTS)
    write_shop(folder / "large", users, seed)
    _, prepare = core_seconds(lambda: prepared(folder / "large", folder / "examples", 1))
    written, writing = core_seconds(lambda: _corpus(folder / "run", folder / "corpus"))
    tables = (written.file(f"{name}.parquet") for name in (*SPLITS, NOW, PURCHASES))
    _, mining = core_seconds(lambda: mine(DecodeJob(*inputs, MiningConfig(), 7), folder / "mined", ONE))
    states, looking = core_seconds(lambda: write_states(DecodeJob(*inputs, StatesConfig(), 7), folder / "states", ONE))
    rows = sum(states.manifest.summary[split] for split in ("train", "validation", "test", "now"))
    _, lists = core_seconds(lambda: write_all_interests(many.path, str(folder / "lists.parquet"), engine=ONE))
    _, ranked = core_seconds(lambda: write_audiences(many.path, folder / "a.parquet", texts, BEST, engine=ONE))
    live_labels = load(many.path).labels.live_mask().sum()
    return {
        "prepare": Cost(prepare / users, size(folder / "examples") / users, "60 events"),
        "corpus": Cost(writing / real, size(*tables) / real, "every example, now, and purchases; one process"),
        "mine": Cost(
            mining / real, size(folder / "mined") / real, f"{examples / real:.1f} examples, 4 samples of each"
        ),
        "states": Cost(looking / real, size(states.path) / real, f"{rows / real:.1f} rows: every example, and now"),
        "model": Cost(
            0.0, size(many.file("users"), many.file("users.parquet")) / users, "vectors, projections, histories"
        ),
        "lists of everyone": Cost(
            lists / users, size(folder / "lists.parquet") / users, f"{live_labels:,} labels, 10 kept"
        ),
        f"{len(texts):,} audiences": Cost(ranked / users, 0.0, f"the best {BEST:,} of each"),
    }


def _corpus(run: Path, out: Path) -> Artifact:
    """Once more, with as many purchases of a user as where users are many."""
    examples, labels, before = (artifacts.load(run / name) for name in ("examples", "labels", "corpus"))
    config = CorpusRun.model_validate(before.manifest.config)
    few = config.corpus.model_copy(update={"min_purchases": 0})
    return build_corpus(examples, labels, out, config.model_copy(update={"corpus": few}), 7)


def measured(folder: Path, users: int, seed: int) -> tuple[dict[str, Any], dict[str, str]]:
    found = costs(folder, users, seed)
    rows = [(stage, f"{1e3 * each.seconds:.3f}", f"{each.disk:,.0f}", each.basis) for stage, each in found.items()]
    show_table("what a user costs", ["stage", "ms of a core", "bytes", "per user"], rows)
    table = []
    for at in AT:
        hours = {stage: at * each.seconds / 3600 for stage, each in found.items() if each.seconds}
        machines = max(1, round(SPARE * sum(hours.values()) / CORES / NIGHT + 0.5))
        disk = at * sum(each.disk for each in found.values()) / 2**40
        table.append((f"{at:,}", *(f"{each:,.0f}" for each in hours.values()), f"{machines:,}", f"{disk:,.2f} TiB"))
    names = [stage for stage, each in found.items() if each.seconds]
    headings = [
        "users",
        *(f"{name}, core hours" for name in names),
        f"machines of {CORES} cores for {NIGHT:g} h",
        "disk",
    ]
    show_table("how large a cluster", headings, table)
    figures = {f"ms_{stage.replace(' ', '_')}": round(1e3 * each.seconds, 4) for stage, each in found.items()}
    return figures | {f"bytes_{stage.replace(' ', '_')}": round(each.disk) for stage, each in found.items()}, {}
