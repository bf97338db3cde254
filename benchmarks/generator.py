"""The item generator: does it decode what it knows, and does it know more than the models it starts from?

    python -m benchmarks.generator --data FOLDER [--tags brand] [--seeds 1 2 3] [--out runs/generator] [--set …]

FOLDER holds interactions.parquet and items.parquet; without it, the Complete Journey data is used, and with --quick a
small planted shop. Rows: popularity, the linear model of `merit.baselines`, the factor model that the generator starts
from, and by kind of prefix (none: lists are not read, the default; own: drawn from the model itself; mixed: the
paper's; gold: teacher forcing) what a generator writes, and what it knows at its first position. Differences are of
pooled recall, with their standard error over users. --set changes a setting of the run, --items one of the generator
(train.steps=600).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks import harness
from benchmarks.objectives import kept
from merit.baselines.linear import linear
from merit.baselines.world import make_world
from merit.core import config, console
from merit.core.artifacts import Artifact
from merit.core.pipeline import run
from merit.core.ragged import Ragged, owners, pair_keys
from merit.core.settings import RunConfig
from merit.core.types import Floats, Ints
from merit.data import planted
from merit.data.corpus import read_table
from merit.evaluation.evaluate import training_popularity, truth_of_test_users
from merit.evaluation.predictions import Predictions, Truth, top
from merit.evaluation.trivial import popular, trivial
from merit.generator.decoding import DecodeConfig
from merit.generator.items.histories import COLUMNS
from merit.generator.items.model import NAMES, ItemsConfig, load_items
from merit.generator.items.prefixes import Prefixes
from merit.generator.items.train import train_items
from merit.labels import space
from merit.labels.build import load_vectors
from merit.propensity.linear import FactorsRun, train_factors

BUDGETS = (5, 10, 20)
PEER_SECONDS = 120.0
OURS = NAMES[ItemsConfig().train.prefixes]
QUICK = ["network.width=32", "network.layers=1", "network.heads=2", "train.steps=120"]


def settings(arguments: Any, folder: Path) -> RunConfig:
    """Of the run that makes examples, labels and the corpus."""
    source: dict[str, Any] = {"kind": "complete-journey"}
    if arguments.quick:
        planted.write(planted.shop(planted.PlantedConfig(users=400), arguments.seed), folder / "shop")
        source = {"kind": "tables"} | {name: str(folder / f"shop/{name}.parquet") for name in ("interactions", "items")}
    elif arguments.data:
        source = {"kind": "tables", "extra_tags": arguments.tags}
        source |= {name: str(arguments.data / f"{name}.parquet") for name in ("interactions", "items")}
    values = {"seed": 7, "out": str(folder), "source": source}
    hashed = {"labels": {"encoder": "hashed"}} if arguments.quick else {}
    return config.build(RunConfig, values | hashed, arguments.set)


def generators(
    run_config: RunConfig, made: dict[str, Artifact], changes: list[str], prefixes: list[str], folder: Path, seed: int
) -> Iterator[tuple[str, Artifact]]:
    """A factor model with two folds, and a generator for each kind of prefix."""
    shop = {name: made[name] for name in ("corpus", "labels")}
    run_folds = FactorsRun.model_validate(run_config.factors.model_dump() | {"folds": 2})
    place = folder / f"factors-{seed}"
    factors = kept(place, "factors") or train_factors(**shop, out=place, config=run_folds, seed=seed)
    yield "factors", factors
    for kind in prefixes:
        items = config.build(ItemsConfig, {"train": {"prefixes": kind}}, changes)
        place = folder / f"{kind}-{config.digest(items)[:8]}-{seed}"
        found = kept(place, "generator") or train_items(**shop, factors=factors, out=place, config=items, seed=seed)
        yield kind, found


def predictions(made: dict[str, Artifact], generator: Artifact, kind: Prefixes, seed: int) -> Iterator[Predictions]:
    """What the generator starts from, what it knows at its first position, and what it writes."""
    items = load_items(generator, made["corpus"], made["labels"])
    inputs = items.inputs(read_table(made["corpus"], "test", *COLUMNS))
    if NAMES[kind] == OURS:
        prior = items.prior.of(inputs, np.arange(len(inputs)), items.live).numpy()
        yield Predictions("factor model", seed, _best(prior, items.live), _best(prior, items.live))
    first = _best(items.likelihood(inputs)(items.live), items.live)
    yield Predictions(f"{NAMES[kind]}, first position", seed, first, first)
    most = max(BUDGETS)
    free = items.decode(inputs, DecodeConfig(max_labels=most), seed)
    ranked = items.decode(inputs, DecodeConfig(max_labels=most, fixed_budget=True), seed)
    yield Predictions(NAMES[kind], seed, free, ranked)


def _best(scores: Floats, live: Ints) -> Ragged:
    grid = np.full((len(scores), int(live.max()) + 1), -np.inf, np.float32)
    grid[:, live] = scores
    return top(grid, live)


class Judged:
    """Hits of one method by user: at budgets, of new labels at the largest, and at free length."""

    def __init__(self, method: Predictions, truth: Truth) -> None:
        self.user, users = truth.user, truth.users
        gold, old = (pair_keys(lists, truth.labels) for lists in (truth.gold, truth.history))
        new = ~np.isin(gold, old)
        self.golds = {False: self._by_user(truth.gold, np.ones(len(gold)), users)}
        self.golds[True] = self._by_user(truth.gold, new, users)
        self.hits: dict[str, np.ndarray[Any, Any]] = {}
        for name, budget in {"free": None, **{f"@{budget}": budget for budget in BUDGETS}}.items():
            right = np.isin(gold, pair_keys(method.at(budget), truth.labels))
            self.hits[name] = self._by_user(truth.gold, right, users)
            if budget == max(BUDGETS):
                self.hits[f"new @{budget}"] = self._by_user(truth.gold, right & new, users)
        self.said = float(len(method.free.values))
        tens = method.at(10)
        lists = {tuple(sorted(tens[row].tolist())) for row in range(len(truth))}
        self.own_lists = len(lists) / len(truth)
        self.labels = self.said / len(truth)

    def _by_user(self, lists: Ragged, amounts: Any, users: int) -> np.ndarray[Any, Any]:
        return np.bincount(self.user[owners(lists)], weights=amounts, minlength=users)

    def recall(self, name: str) -> float:
        """In points."""
        return 100 * float(self.hits[name].sum() / self.golds[name.startswith("new")].sum())

    def precision(self) -> float:
        """In points, at free length."""
        return 100 * float(self.hits["free"].sum() / max(1.0, self.said))

    def over(self, other: Judged, name: str) -> tuple[float, float]:
        """The difference in points, and its standard error."""
        golds = self.golds[name.startswith("new")]
        more, total = self.hits[name] - other.hits[name], golds.sum()
        difference = more.sum() / total
        return 100 * float(difference), 100 * float(np.sqrt(((more - difference * golds) ** 2).sum()) / total)


def main() -> None:
    parser = harness.parser(__doc__)
    parser.add_argument("--tags", nargs="*", default=[])
    parser.add_argument("--seeds", nargs="*", type=int, default=[1])
    parser.add_argument("--prefixes", nargs="*", default=list(NAMES), choices=list(NAMES))
    parser.add_argument("--out", type=Path, help="keeps what is made")
    parser.add_argument("--set", action="append", default=[], help="a setting of the run")
    parser.add_argument("--items", action="append", default=[], help="a setting of the generator")
    parser.add_argument("--no-peer", action="store_true", help="without the linear model")
    arguments = parser.parse_args()
    console.set_up_logging()
    with TemporaryDirectory() as temporary:
        report(arguments, arguments.out or Path(temporary))


def report(arguments: Any, folder: Path) -> None:
    """All rows, the mean over seeds, and the last line."""
    run_config = settings(arguments, folder)
    made = dict(run(run_config, until="corpus"))
    corpus, labels = made["corpus"], made["labels"]
    label_space = space.load(labels.path)
    truth = truth_of_test_users(corpus, label_space, load_vectors(labels))
    popularity = training_popularity(label_space)
    rows: dict[str, list[Judged]] = {}

    def judge(method: Predictions) -> None:
        rows.setdefault(method.method, []).append(Judged(method, truth))

    for method in (trivial(truth, popularity), popular(truth, popularity)):
        judge(method)
    for seed in arguments.seeds:
        if not arguments.no_peer:
            seconds = PEER_SECONDS / (20 if arguments.quick else 1)
            world = make_world(corpus, labels, run_config.backbone, run_config.text, seconds)
            judge(linear(world, seed).predictions("linear", seed))
        changes = [*(QUICK if arguments.quick else ()), *arguments.items]
        for kind, artifact in generators(run_config, made, changes, arguments.prefixes, folder, seed):
            console.tell(f"{kind}: {json.dumps(artifact.manifest.summary)}")
            if kind != "factors":
                for method in predictions(made, artifact, kind, seed):
                    judge(method)
    names = ["@5", "@10", "@20", "new @20", "free"]
    base = "linear" if "linear" in rows else "factor model"
    columns = ["method", *names, "precision", "labels", "own lists"]
    console.show_table(
        f"{len(truth):,} examples of {truth.users:,} users, {len(label_space):,} labels; in points",
        columns,
        [(method, *_row(judged, names)) for method, judged in rows.items()],
    )
    for other in {base: 0, "factor model": 0} if "factor model" in rows else {}:
        console.show_table(
            f"over the {other}, ± standard error over users",
            ["method", *names[:4]],
            [
                (method, *(_difference(judged, rows[other], name) for name in names[:4]))
                for method, judged in rows.items()
                if method != other
            ],
        )
    harness.finish("generator", figures(rows, base), arguments.seed)


def figures(rows: dict[str, list[Judged]], base: str) -> dict[str, float]:
    """The last line."""

    def over(one: str, other: str) -> float:
        if one not in rows or other not in rows:
            return float("nan")
        return _mean(rows[one], "@10") - _mean(rows[other], "@10")

    return {
        "decoded_over_linear_10": round(over(OURS, base), 2),
        "decoded_over_mixture_10": round(over(OURS, NAMES["mixed"]), 2),
        "first_over_decoded_10": round(over(f"{OURS}, first position", OURS), 2),
        "own_lists": round(float(np.mean([one.own_lists for one in rows[OURS]])), 3),
    }


def _mean(judged: list[Judged], name: str) -> float:
    return float(np.mean([one.recall(name) for one in judged]))


def _row(judged: list[Judged], names: list[str]) -> list[str]:
    shown = [f"{_mean(judged, name):.1f}" for name in names]
    others = (float(np.mean([value(one) for one in judged])) for value in (Judged.precision, lambda one: one.labels))
    return [*shown, *(f"{value:.1f}" for value in others), f"{np.mean([one.own_lists for one in judged]):.0%}"]


def _difference(judged: list[Judged], others: list[Judged], name: str) -> str:
    """The mean over seeds, where the other has them too; the error is that of one seed, and so too large."""
    pairs = [one.over(other, name) for one, other in zip(judged, others * len(judged), strict=False)]
    difference, error = (float(np.mean(values)) for values in zip(*pairs, strict=True))
    return f"{difference:+.2f} ± {error:.2f}"


if __name__ == "__main__":
    harness.run(main)
