"""What peers gain from what the factor model reads: title words, recent popularity, reversed histories.

    python -m benchmarks.peers --data FOLDER [--tags brand] [--methods linear ALS] [--seconds 120] [--each]

FOLDER holds interactions.parquet and items.parquet; without it, the Complete Journey data is used. Every method runs
without these three and with all of them; with --each also with one at a time. Lists are kept in --out: a stopped run
goes on where it was, and the table has all that is there. `--quick` is a planted shop.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl

from benchmarks import harness
from benchmarks.objectives import settings
from merit.baselines.methods import OFFERED, READS, method
from merit.baselines.world import World, make_world
from merit.core import console
from merit.core.artifacts import Artifact
from merit.core.pipeline import run
from merit.core.settings import RunConfig
from merit.data import planted
from merit.evaluation import predictions, tables
from merit.evaluation.classification import EvaluationConfig, MetricKey, measure
from merit.evaluation.evaluate import truth_of_test_users
from merit.evaluation.predictions import Truth
from merit.labels import space
from merit.labels.build import load_vectors

PEERS = ("linear", "ALS", "label tree", "SASRec")
BARE, ALL = "without", "with all"
COLUMNS: tables.Columns = {
    **{f"@{budget}": MetricKey("recall", "exact", budget) for budget in (5, 10, 20)},
    "new @20": MetricKey("recall", "exact", 20, "novel"),
}


def offers(name: str, each: bool) -> Iterator[tuple[str, tuple[str, ...]]]:
    """What a method is given, by what stands in the table for it."""
    usual = tuple(read for read in READS[name] if read not in OFFERED)
    yield BARE, usual
    if each:
        yield from ((f"with {read}", (*usual, read)) for read in OFFERED)
    yield ALL, READS[name]


def answered(world: World, name: str, what: str, reads: tuple[str, ...], seed: int, out: Path) -> None:
    """Keep the lists of a method that is given this, and what it cost."""
    place = out / f"{name} {what} {world.seconds:g} s seed {seed}.parquet"
    if place.exists():
        return
    answer = method(name)(world.offered(reads), seed)
    place.with_suffix(".json").write_text(json.dumps(answer.summary), encoding="utf-8")
    predictions.write(place, answer.predictions(f"{name}, {what}", seed))
    console.tell(f"{name}, {what}, seed {seed}: {answer.summary['train_seconds']:.1f} s")


def compared(out: Path, truth: Truth, evaluation: EvaluationConfig) -> pl.DataFrame:
    """Every method without and with what is offered, in points, and what that gains with its 95 % interval."""
    read = [(predictions.read(file), json.loads(file.with_suffix(".json").read_text())) for file in lists_in(out)]
    judged = [(lists, measure(lists, truth, evaluation), summary) for lists, summary in read]
    rows: list[pl.DataFrame] = []
    for name in PEERS:
        own = [one for one in judged if one[0].method.startswith(f"{name}, ")]
        if own:
            wanted = [(lists, {key: found[key] for key in COLUMNS.values()}) for lists, found, _ in own]
            figures = tables.compare(wanted, truth.users, 7, f"{name}, {BARE}", evaluation.resamples)
            seconds = {lists.method: round(summary["train_seconds"], 1) for lists, _, summary in own}
            taken = pl.DataFrame({"method": list(seconds), "seconds": list(seconds.values())})
            shown = tables.headline(figures, COLUMNS, tuple(COLUMNS)).drop("commit", "command", "users")
            rows.append(shown.join(taken, on="method", maintain_order="left"))
    return pl.concat(rows)


def lists_in(out: Path) -> list[Path]:
    return sorted(out.glob("* seed *.parquet"))


def measured(run_config: RunConfig, methods: list[str], seeds: list[int], seconds: float, each: bool) -> dict[str, Any]:
    made: Mapping[str, Artifact] = run(run_config, until="corpus")
    corpus, labels, out = made["corpus"], made["labels"], run_config.out / "peers"
    out.mkdir(exist_ok=True)
    world = make_world(corpus, labels, run_config.backbone, run_config.text, seconds)
    for name in methods:
        for seed in seeds:
            for what, reads in offers(name, each):
                answered(world, name, what, reads, seed, out)
    truth = truth_of_test_users(corpus, space.load(labels.path), load_vectors(labels))
    table = compared(out, truth, run_config.evaluation)
    print(f"\n{tables.markdown(table)}\n")
    gained = table.filter(pl.col("method").str.ends_with(ALL))
    return {
        f"{row['method'].removesuffix(f', {ALL}')} {name}": row[f"Δ {name}"]
        for row in gained.iter_rows(named=True)
        for name in COLUMNS
    }


def main() -> None:
    parser = harness.parser(__doc__)
    parser.add_argument("--tags", nargs="*", default=[])
    parser.add_argument("--methods", nargs="*", default=list(PEERS), choices=PEERS)
    parser.add_argument("--seeds", nargs="*", type=int, default=[1])
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--each", action="store_true", help="also with one thing at a time")
    parser.add_argument("--out", type=Path, default=Path("runs/peers"))
    parser.add_argument("--set", action="append", default=[], help="override a setting")
    arguments = parser.parse_args()
    console.set_up_logging()
    with TemporaryDirectory() as temporary:
        folder, out, methods = arguments.data, arguments.out, arguments.methods
        overrides = list(arguments.set)
        if arguments.quick:
            folder = out = Path(temporary)
            planted.write(planted.shop(planted.PlantedConfig(users=200, events=40), arguments.seed), folder)
            methods, overrides = methods[:2], [*overrides, "labels.encoder=hashed", f"cache={folder / 'cache'}"]
        elif folder:
            out = out / folder.name
        run_config = settings(folder, arguments.tags, 1, out, overrides)
        seconds = min(2.0, arguments.seconds) if arguments.quick else arguments.seconds
        figures = measured(run_config, methods, arguments.seeds, seconds, arguments.each)
    harness.finish("peers", figures, arguments.seed)


if __name__ == "__main__":
    harness.run(main)
