"""The paper's ablation on real data: every objective, the temper, several seeds, same steps, one table.

    python -m benchmarks.objectives --data FOLDER [--tags brand] [--seeds 1 2 3] [--steps 1200] [--out runs/objectives]

FOLDER holds interactions.parquet and items.parquet; without it, the Complete Journey data is used. Every cell is an
artifact: a run that was stopped goes on where it was. `--quick` is one seed of few steps, to see that it works.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl

from benchmarks import harness
from merit import artifacts, config, console
from merit.artifacts import Artifact
from merit.evaluation import tables
from merit.evaluation.classification import Key
from merit.stages.evaluate import evaluate, show_results
from merit.stages.generator import ObjectiveConfig, train_generator
from merit.stages.mine import mine
from merit.stages.predict import predict
from merit.stages.run import RunConfig, run

VARIANTS: dict[str, dict[str, Any]] = {
    "permutation-invariance": {"objective": "permutation-invariance"},
    "cross-entropy-invariance": {"objective": "cross-entropy-invariance"},
    "self-correction": {"objective": "self-correction"},
    "self-correction-0.5": {"objective": "self-correction", "beta": 0.5},
    "self-correction-0": {"objective": "self-correction", "beta": 0.0},
}


def settings(data: Path | None, tags: list[str], steps: int, out: Path, overrides: list[str]) -> RunConfig:
    source: dict[str, Any] = {"kind": "complete-journey"}
    if data:
        source = {"kind": "tables", "extra_tags": tags}
        source |= {name: str(data / f"{name}.parquet") for name in ("interactions", "items")}
    values = {
        "seed": 7,  # of the split: the same users are tested with every seed of the weights
        "out": str(out),
        "source": source,
        "stage_1": {"objective": "teacher-forcing", "steps": steps},
        "stage_2": {"steps": steps},
    }
    return config.build(RunConfig, values, [*overrides])


def predictions_of(run_config: RunConfig, seed: int, made: dict[str, Artifact]) -> dict[str, Artifact]:
    """Train and decode every variant of one seed; what is there already is kept."""
    folder = run_config.out / f"seed-{seed}"
    shop = (made["examples"], made["labels"])

    def trained(name: str, how: ObjectiveConfig, mined: Artifact | None) -> Artifact:
        return kept(folder / name, "generator") or train_generator(
            *shop, mined, folder / name, run_config.generator(how), seed
        )

    def decoded(name: str, generator: Artifact) -> Artifact:
        place = folder / f"{name}-predictions"
        return kept(place, "predictions") or predict(generator, *shop, place, run_config.predict, seed)

    first = trained("teacher-forcing", run_config.stage_1, None)
    mined = kept(folder / "mined", "mined") or mine(first, *shop, folder / "mined", run_config.mining, seed)
    found = {f"teacher-forcing-{seed}": decoded("teacher-forcing", first)}
    for name, changes in VARIANTS.items():
        how = run_config.stage_2.model_copy(update=changes)
        found[f"{name}-{seed}"] = decoded(name, trained(name, how, mined))
        console.tell(f"{name}, seed {seed}: done")
    return found


def kept(folder: Path, kind: str) -> Artifact | None:
    return artifacts.load(folder, kind) if (folder / artifacts.MANIFEST).exists() else None


def main() -> None:
    parser = harness.parser(__doc__)
    parser.add_argument("--tags", nargs="*", default=[])
    parser.add_argument("--seeds", nargs="*", type=int, default=[1, 2, 3])
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--out", type=Path, default=Path("runs/objectives"))
    parser.add_argument("--set", action="append", default=[], help="override a setting")
    arguments = parser.parse_args()
    console.set_up_logging()
    seeds, steps = ([1], 20) if arguments.quick else (arguments.seeds, arguments.steps)
    run_config = settings(arguments.data, arguments.tags, steps, arguments.out, arguments.set)
    made = dict(run(run_config, until="labels"))
    said = {name: each for seed in seeds for name, each in predictions_of(run_config, seed, made).items()}
    results = evaluate(said, made["examples"], made["labels"], arguments.out / "results", run_config.evaluation, 7)
    show_results(results)
    print(results.file("results.md").read_text())
    print(json.dumps(figures(pl.read_parquet(results.file("figures.parquet"))) | {"commit": harness.commit()}))


def figures(found: pl.DataFrame) -> dict[str, float]:
    """Exact recall, in points, of every method at free length and at 5, 10, 20."""
    told, budgets = {}, {str(k): Key("recall", "exact", k) for k in (5, 10, 20)}
    for name, key in {"free": Key("recall", "exact"), **budgets}.items():
        for method, value in tables.pick(found, key).select("method", "value").iter_rows():
            told[f"{method} @{name}"] = round(100 * value, 1)
    return told


if __name__ == "__main__":
    harness.run(main)
