"""What padding costs: batches of examples at random, of like prompts, and of like length in all.

    python -m benchmarks.bucketing [--data FOLDER] [--tags brand] [--steps 300]

FOLDER holds interactions.parquet and items.parquet; without it, the Complete Journey data is used. For each way: the
share of padding, the time of a step measured in turns with batches at random, and the loss on validation users after
the same number of steps, with its paired difference to batches at random. `--quick` is a planted shop, to see that it
works.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks import harness
from benchmarks.objectives import settings
from merit.baselines.generative import corpus_of
from merit.core import console
from merit.core.artifacts import Artifact
from merit.core.pipeline import run
from merit.core.ragged import Ragged, column_lists
from merit.core.settings import RunConfig
from merit.data import planted
from merit.data.corpus import read_table
from merit.data.texts import read_shop
from merit.generator import backbone
from merit.generator.batches import Bucketing, bucket_lengths, epoch_batches
from merit.generator.training import TrainConfig, loss_of, train
from merit.objective.collate import OBJECTIVES, Corpus, collate

OBJECTIVE = OBJECTIVES["cross-entropy-invariance"]  # sets and the uniform temper, as in stage 2, and needs no mining
RANDOM = "none"
WAYS = get_args(Bucketing)
LOOKED_AT = 100  # batches whose padding is counted


class Case(NamedTuple):
    """All that is the same for every way."""

    fresh: Callable[[], Any]
    corpus: Corpus
    held_out: Corpus
    config: TrainConfig
    seed: int

    def batches(self, way: Any) -> list[NDArray[np.int64]]:
        config = self.config.model_copy(update={"bucketing": way})
        return epoch_batches(bucket_lengths(self.corpus, config), config.batch_size, 0, self.seed)


def case_of(run_config: RunConfig, corpus: Artifact, seed: int) -> Case:
    shop = read_shop(corpus)
    paths, words = Ragged(shop.paths.offsets, shop.paths.tokens), shop.vocabulary

    def part(split: str) -> Corpus:
        table = read_table(corpus, split, "prompt", "gold")
        return corpus_of(column_lists(table["prompt"]), column_lists(table["gold"]), paths, words)

    fresh = partial(backbone.make, run_config.backbone, words, seed)
    return Case(fresh, part("train"), part("validation"), run_config.stage_2, seed)


def padding(case: Case, way: str) -> dict[str, float]:
    """The share of padding, and the positions paid for by an example."""
    batches = case.batches(way)
    chosen = np.linspace(0, len(batches) - 1, min(LOOKED_AT, len(batches))).astype(int)
    made = [collate(case.corpus, batches[at].tolist(), 0, OBJECTIVE, case.config, case.seed) for at in chosen]
    paid = sum(each.input_ids.numel() for each in made)
    padded = sum(each.padding * each.input_ids.numel() for each in made)
    examples = sum(len(each.input_ids) for each in made)
    return {f"{way}, padded share": round(padded / paid, 4), f"{way}, positions per example": round(paid / examples, 1)}


def stepping(case: Case, model: Any, way: str) -> Callable[[], None]:
    """Collating a batch, reading it and the way back: the next batch with every call."""
    batches = cycle([batch for batch in case.batches(way) if len(batch) == case.config.batch_size])

    def step() -> None:
        batch = collate(case.corpus, next(batches).tolist(), 0, OBJECTIVE, case.config, case.seed)
        loss_of(model, batch, OBJECTIVE.beta)[0].backward()
        model.zero_grad(set_to_none=True)

    return step


def times(case: Case, rounds: int) -> dict[str, float]:
    model, told = case.fresh(), {}
    torch.set_flush_denormal(True)  # as training does
    for way in WAYS[1:]:
        ratio = harness.alternate(stepping(case, model, way), stepping(case, model, RANDOM), rounds, repeat=5)
        told[f"{way}, ms per step"] = round(1000 * ratio.ours, 1)
        told[f"{way}, speedup over {RANDOM}"] = round(ratio.speedup, 3)
    torch.set_flush_denormal(False)
    return told


def losses(case: Case, folder: Path) -> dict[str, float]:
    """On validation users after the same steps; differences with their standard errors over users."""
    found = {}
    for way in WAYS:
        model = case.fresh()
        train(model, case.corpus, OBJECTIVE, case.config.model_copy(update={"bucketing": way}), case.seed, folder / way)
        found[way] = judged(model, case)
    told = {f"{way}, validation loss": round(float(each.mean()), 4) for way, each in found.items()}
    for way in WAYS[1:]:
        off = found[way] - found[RANDOM]
        told[f"{way}, loss to {RANDOM}"] = round(float(off.mean()), 4)
        told[f"{way}, loss to {RANDOM}, standard error"] = round(float(off.std() / len(off) ** 0.5), 4)
    return told


def judged(model: Any, case: Case) -> NDArray[np.float64]:
    """The loss of every validation example."""
    parts = []
    for rows in np.array_split(np.arange(len(case.held_out)), max(1, len(case.held_out) // case.config.batch_size)):
        batch = collate(case.held_out, rows.tolist(), 0, OBJECTIVE, case.config, case.seed)
        with torch.no_grad():
            each = loss_of(model, batch, OBJECTIVE.beta)[1] * batch.weights * len(rows)
        lines = batch.rows // batch.input_ids.shape[1]
        parts.append(np.bincount(lines.numpy(), each.double().numpy(), minlength=len(rows)))
    return np.concatenate(parts)


def measured(run_config: RunConfig, seed: int, rounds: int, folder: Path) -> dict[str, float]:
    made = run(run_config, until="corpus")
    case = case_of(run_config, made["corpus"], seed)
    shares = {name: value for way in WAYS for name, value in padding(case, way).items()}
    return shares | times(case, rounds) | losses(case, folder)


QUICK = ["labels.encoder=hashed", "backbone.width=64", "backbone.layers=2", "backbone.vocabulary=1600"]


def main() -> None:
    parser = harness.parser(__doc__)
    parser.add_argument("--tags", nargs="*", default=[])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--out", type=Path, default=Path("runs/bucketing"))
    parser.add_argument("--set", action="append", default=[], help="override a setting")
    arguments = parser.parse_args()
    console.set_up_logging()
    with TemporaryDirectory() as place:
        folder = Path(place)
        if arguments.quick:
            planted.write(planted.shop(planted.PlantedConfig(users=200), arguments.seed), folder)
            overrides = [*QUICK, "stage_2.batch_size=16", f"cache={folder / 'cache'}", *arguments.set]
            run_config = settings(folder, [], 20, folder / "run", overrides)
        else:
            out = arguments.out / (arguments.data.name if arguments.data else "complete-journey")
            run_config = settings(arguments.data, arguments.tags, arguments.steps, out, arguments.set)
        figures = measured(run_config, arguments.seed, 5 if arguments.quick else 15, folder / "trained")
    harness.finish("bucketing", figures, arguments.seed)


if __name__ == "__main__":
    harness.run(main)
