"""The paper's ablation on real data: every objective, the temper, several seeds, same steps, one table.

    python -m benchmarks.objectives --data FOLDER [--tags brand] [--seeds 1 2 3] [--steps 1200] [--out runs/objectives]

FOLDER holds interactions.parquet and items.parquet; without it, the Complete Journey data is used. Every cell is an
artifact: a run that was stopped goes on where it was. `--quick` is one seed of few steps, to see that it works.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from benchmarks import harness
from merit.core import artifacts, config, console, provenance
from merit.core.artifacts import Artifact
from merit.core.pipeline import run
from merit.core.ragged import Ragged
from merit.core.settings import RunConfig
from merit.evaluation import tables
from merit.evaluation.classification import MetricKey, Metrics, measure
from merit.evaluation.evaluate import evaluate, read_predictions, show_results, training_popularity, truth_of_test_users
from merit.evaluation.exposure_bias import LOST
from merit.evaluation.predictions import Predictions
from merit.evaluation.trivial import BASELINES
from merit.generator.mining import mine
from merit.generator.model import ObjectiveConfig
from merit.generator.predict import predict
from merit.generator.train import train_generator
from merit.generator.worker import DecodeJob
from merit.labels import space
from merit.labels.build import load_vectors

VARIANTS: dict[str, dict[str, Any]] = {
    "self-correction-0": {"objective": "self-correction", "beta": 0.0},
    "self-correction-0.5": {"objective": "self-correction", "beta": 0.5},
    "self-correction-1": {"objective": "self-correction", "beta": 1.0},
    "permutation-invariance": {"objective": "permutation-invariance", "beta": None},
    "cross-entropy-invariance": {"objective": "cross-entropy-invariance", "beta": None},
}

Judged = list[tuple[Predictions, Metrics]]
OURS = ("self-correction (β = 0)", "self-correction (β = 0), likelihood ranking")
DUELS: tables.Columns = {
    "free length": MetricKey("recall", "exact"),
    **{f"@{budget}": MetricKey("recall", "exact", budget) for budget in (5, 10, 20)},
    "new labels @20": MetricKey("recall", "exact", 20, "novel"),
}

COMPACT: tables.Columns = {
    "free length": MetricKey("recall", "exact"),
    "precision": MetricKey("precision", "exact"),
    "F1": MetricKey("f1", "exact"),
    "labels": MetricKey("predictions"),
    **{name: key for name, key in DUELS.items() if key.budget},
    "lost after mistakes": LOST,
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
        "reads": "text",
        "stage_1": {"steps": steps},
        "stage_2": {"steps": steps},
    }
    return config.build(RunConfig, values, [*overrides])


def predictions_of(run_config: RunConfig, seed: int, made: dict[str, Artifact]) -> dict[str, Artifact]:
    """Train and decode every variant of one seed; what is there already is kept."""
    folder = run_config.out / f"seed-{seed}"
    shop = (made["corpus"], made["labels"])

    def trained(name: str, how: ObjectiveConfig, mined: Artifact | None) -> Artifact:
        return kept(folder / name, "generator") or train_generator(
            *shop, folder / name, run_config.generator(how), seed, mined=mined
        )

    def decoded(name: str, generator: Artifact) -> Artifact:
        place = folder / f"{name}-predictions"
        return kept(place, "predictions") or predict(DecodeJob(generator, *shop, run_config.predict, seed), place)

    first = trained("teacher-forcing", run_config.stage_1, None)
    mined = kept(folder / "mined", "mined") or mine(DecodeJob(first, *shop, run_config.mining, seed), folder / "mined")
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
    made = dict(run(run_config, until="corpus"))
    said = {name: each for seed in seeds for name, each in predictions_of(run_config, seed, made).items()}
    shop = (made["corpus"], made["labels"])
    results = evaluate(*shop, arguments.out / "results", run_config.evaluation, 7, **said)
    show_results(results)
    print(f"\n{tables.markdown(compact(pl.read_parquet(results.file('figures.parquet'))))}\n")
    console.tell(f"All figures, soft matches and verticals among them: {results.path}")
    known = space.load(shop[1].path)
    truth = truth_of_test_users(shop[0], known, load_vectors(shop[1]))
    popularity = training_popularity(known)
    lists = [make(truth, popularity) for make in BASELINES.values()]
    lists += [each for artifact in said.values() for each in read_predictions(artifact)]
    print(f"\n## How many different lists of ten there are, of {len(truth)}\n\n{tables.markdown(variety(lists))}")
    judged = [(each, measure(each, truth, run_config.evaluation)) for each in lists]
    for ours in OURS:
        print(f"\n## {ours}: exact recall minus that of each of the others, in points\n")
        print(tables.markdown(duels(ours, judged, truth.users, DUELS)))
    print(json.dumps(figures(pl.read_parquet(results.file("figures.parquet"))) | {"commit": provenance.commit()}))


def compact(found: pl.DataFrame) -> pl.DataFrame:
    """One table for a page: exact figures in points with intervals, the best at ten labels first."""
    order = tables.pick(found, DUELS["@10"]).sort("value", descending=True).select("method")
    cells = tables.headline(found, COMPACT, ()).drop("users", "seeds", "commit", "command")
    return order.join(cells, on="method", maintain_order="left")


def variety(lists: list[Predictions]) -> pl.DataFrame:
    """Different sets of ten labels, by method: a model that says the same to everyone has learnt popularity."""
    rows = [(each.method, len({frozenset(row.tolist()) for row in _rows(each.at(10))})) for each in lists]
    found = pl.DataFrame(rows, schema=["method", "different"], orient="row").group_by("method", maintain_order=True)
    return found.agg(by_seed=pl.col("different").cast(pl.String).str.join(" / "))


def _rows(lists: Ragged) -> Iterator[NDArray[np.int32]]:
    return (lists[row] for row in range(len(lists)))


def duels(ours: str, judged: Judged, users: int, columns: tables.Columns) -> pl.DataFrame:
    """One method minus each other, on the same users, with 95 % intervals, in points."""
    methods: dict[str, Judged] = {}
    for said, found in judged:
        methods.setdefault(said.method, []).append((said, {key: found[key] for key in columns.values()}))
    rows = []
    for other in methods.keys() - {ours}:
        both = tables.compare([*methods[ours], *methods[other]], users, 7, other)
        found = both.filter(pl.col("method") == ours)
        row = {name: tables.pick(found, key).row(0, named=True) for name, key in columns.items()}
        rows.append({"against": other} | {name: apart(each) for name, each in row.items()})
    return pl.DataFrame(rows).sort("against")


def apart(row: dict[str, Any]) -> str:
    return "{:+.1f} [{:+.1f}, {:+.1f}]".format(*(100 * row[name] for name in ("gain", "gain_low", "gain_high")))


def figures(found: pl.DataFrame) -> dict[str, float]:
    """Exact recall, in points, of every method at free length and at 5, 10, 20."""
    told, budgets = {}, {str(k): MetricKey("recall", "exact", k) for k in (5, 10, 20)}
    for name, key in {"free": MetricKey("recall", "exact"), **budgets}.items():
        for method, value in tables.pick(found, key).select("method", "value").iter_rows():
            told[f"{method} @{name}"] = round(100 * value, 1)
    return told


if __name__ == "__main__":
    harness.run(main)
