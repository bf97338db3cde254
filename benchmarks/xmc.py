"""Extreme classification as such: documents → labels, our generators beside linear models, P@k and PSP@k.

    python -m benchmarks.xmc [--data PATH] [--seconds 300 | --steps N] [--budget 96] [--share 1] [--out runs/xmc]

Without --data: descriptions of Debian's packages → their tags (benchmarks.debtags), from what `apt-get update` left on
this machine; PATH may also be a Packages file or a folder of such, or a folder in the formats of the Extreme
Classification Repository (docs/xmc.md). Every method may train for --seconds; self-correction shares them out among
its two generators and the mining between. With --steps each generator trains for so many instead, on a machine that is
busy with other things. Every step is an artifact: a stopped run goes on where it was.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch

from benchmarks import debtags, harness, propensity_scored, xmc_files, xmc_peers, xmc_tables
from merit.bench.chain import Chain, PreparedDataset
from merit.bench.config import BenchConfig
from merit.core import console, provenance
from merit.core.artifacts import Artifact
from merit.core.errors import MissingDependency
from merit.core.pipeline import run
from merit.core.ragged import Ragged, owners, select
from merit.data.labelled import LabelledExamples
from merit.evaluation import tables
from merit.evaluation.evaluate import read_predictions
from merit.evaluation.trivial import popular
from merit.evaluation.uncertainty import Metric, Reals, interval, sample, weights
from merit.labels.space import LabelSpace

NAME = "documents"
KS = (1, 3, 5)
ASKED = 10  # labels of a list: the five that are judged, and some to spare for pairs that are filtered
SHOWN = [f"{metric}@{k}" for metric in ("P", "PSP") for k in KS] + [f"R@{ASKED}"]
OURS = ("teacher-forcing", "self-correction (β = 0)")
SOURCES = ("lbl.json", "lbl.json.gz", *xmc_files.LABELS, *(f"{name}.gz" for name in xmc_files.LABELS))


@dataclass(frozen=True)
class Row:
    method: str
    said: Ragged
    seconds: float
    """Of training."""
    documents: int


def settings(tables: Path, out: Path, seconds: float, steps: int | None, budget: int, quick: bool) -> BenchConfig:
    """A document is the whole prompt: no profile, and a text of as many tokens as the budget leaves."""
    prompt = {"budget": budget, "title_tokens": budget - 3, "profile_labels": 0}
    values: dict[str, Any] = {
        "out": out,
        "cache": out / "cache",
        "seconds": seconds,
        "steps": steps,
        "shares": {"stage_1": 0.4, "stage_2": 0.4},  # the rest is for mining
        "reference": "popularity",
        "groups": [{"methods": ("popularity", *OURS)}],
        "datasets": {
            NAME: {
                "source": {
                    "kind": "tables",
                    "interactions": tables / "interactions",
                    "items": tables / "items",
                    "max_title_chars": xmc_tables.MAX_CHARS,
                },
                "prepare": {"target": "order", "min_history": 1, "split": {"validation": 0.08}},  # a tenth of train
                "text": {"item_text": "title", "prompt": prompt},
            }
        },
        "labels": {
            "encoder": "hashed" if quick else "minilm",
            "policy": "none",
            "policy_reason": "a text set to compare methods on: nobody's interests are inferred",
        },
        "corpus": {"title_words": 0, "purchases_per_user": 0},  # those are for a propensity model
        # Labels of one facet are alike in words and yet no paraphrases of each other.
        "mining": {"samples": 2, "max_similarity": 0.95},
        "predict": {"budget": ASKED, "union": False, "exposure": False, "sampling": {"samples": 1}},
    }
    return BenchConfig.model_validate(values)


def folder_of(data: Path | None, out: Path, share: float) -> Path:
    """The data set: a folder in the repository's format, or one made from Debian's packages."""
    if data and any((data / name).is_file() for name in SOURCES):
        return data
    made = out / "debtags"
    console.tell(f"debtags: {debtags.make(data, made, share)}")
    return made


def ours(chain: Chain) -> Iterator[Row]:
    """Our generators, as decoded and by the likelihood of the first label."""
    for method in OURS:
        generator = chain.generator(method)
        seconds, number = chain.spent(*chain.before(generator)), int(generator.manifest.summary["examples"])
        for said in read_predictions(chain.predictions(generator)):
            assert said.ranked is not None
            yield Row(said.method if "," in said.method else f"{said.method}, as decoded", said.ranked, seconds, number)


def peers(ground: PreparedDataset, titles: pl.Series, seed: int) -> Iterator[Row]:
    """Linear models on words, from the same documents and with as many threads."""
    world, threads = ground.world, torch.get_num_threads()
    train, test = _texts(world.train, titles), _texts(world.test, titles)
    asked = xmc_peers.task(train, test, world.train.gold, len(world.labels), ground.seconds, threads, seed, ASKED)
    for name, method in xmc_peers.PEERS.items():
        try:
            found = method(asked)
        except MissingDependency as error:
            console.warn(str(error))
            continue
        yield Row(name, found.said, found.seconds, found.documents)


def worth_of(ground: PreparedDataset) -> Reals:
    """What a hit counts in PSP: by all documents that are not tested."""
    world = ground.world
    parts = (world.train.gold, world.validation.gold)
    counts = sum(propensity_scored.label_counts(gold, len(world.labels)) for gold in parts)
    return propensity_scored.inverse_propensities(np.asarray(counts), sum(map(len, parts)))


def idle_labels(folder: Path, documents: Sequence[str], known: LabelSpace) -> list[set[int]]:
    """By test document (its user id): labels that the data set says nothing about, neither right nor wrong."""
    files = xmc_files.find(folder)
    pairs = xmc_files.filtered(files, "test", xmc_files.count(files))
    ids = known.find([each.text for each in xmc_files.labels(files)]) if pairs else ()
    return [{int(ids[label]) for label in pairs.get(xmc_tables.line_of(each) - 1, ())} for each in documents]


def without(said: Ragged, idle: Sequence[set[int]]) -> Ragged:
    keep = [label not in idle[row] for row, label in zip(owners(said).tolist(), said.values.tolist(), strict=True)]
    return select(said, np.array(keep, dtype=bool))


def table(rows: list[tuple[Row, dict[str, Metric]]], seed: int) -> tuple[pl.DataFrame, dict[str, float]]:
    """Points with 95 % intervals over documents, the best P@1 first; and the bare figures."""
    lots = weights(len(next(iter(rows[0][1].values())).columns), seed)
    cells: list[dict[str, Any]] = []
    figures: dict[str, float] = {}
    for row, metrics in sorted(rows, key=lambda each: -each[1]["P@1"].value):
        found = {name: interval(drawn) for name, drawn in sample({name: metrics[name] for name in SHOWN}, lots).items()}
        told = {name: f"{100 * at.value:.1f} [{100 * at.low:.1f}, {100 * at.high:.1f}]" for name, at in found.items()}
        cells.append({"method": row.method} | told | {"training": f"{row.seconds:.0f} s", "documents": row.documents})
        figures |= {f"{row.method} {name}": round(100 * at.value, 2) for name, at in found.items()}
        figures[f"{row.method} seconds"] = round(row.seconds, 1)
    return pl.DataFrame(cells), figures


def read_in_full(ground: PreparedDataset) -> float:
    """The share of test documents whose whole text is in the prompt: of the others, the beginning is."""
    world, most = ground.world, ground.text.prompt.title_tokens
    return float(np.mean(world.text.test.lengths() < most + 3))


def compare(folder: Path, config: BenchConfig, seed: int) -> dict[str, float]:
    """Make, judge and print everything; the figures."""
    made = run(config.run_config(NAME), until="corpus")
    chosen = config.datasets[NAME].text
    ground = PreparedDataset(made["corpus"], made["labels"], config.backbone, chosen, config.seconds)
    chain = Chain(config, ground, config.out / NAME / f"seed-{seed}", seed)
    truth, world = ground.truth, ground.world
    rows = [Row("popularity", popular(truth, world.popularity, ASKED).at(ASKED), 0.0, len(world.train))]
    rows += [*ours(chain), *peers(ground, _titles(made["corpus"]), seed)]
    worth = worth_of(ground)
    idle = idle_labels(folder, [truth.user_ids[user] for user in truth.user], world.labels)
    judged = [
        (row, propensity_scored.measure(without(row.said, idle), truth.gold, worth, (*KS, ASKED))) for row in rows
    ]
    shown, figures = table(judged, seed)
    print(f"\n{tables.markdown(shown)}")
    sizes = {"train": len(world.train), "validation": len(world.validation), "test": len(truth)}
    facts = sizes | {"labels": len(world.labels), "labels_per_document": round(float(truth.gold.lengths().mean()), 2)}
    facts |= {"read_in_full": round(read_in_full(ground), 3), "threads": torch.get_num_threads()}
    print(" · ".join(f"{name.replace('_', ' ')} {value:,}" for name, value in facts.items()))
    return figures | facts


def main() -> None:
    parser = harness.parser(__doc__)
    parser.add_argument("--seconds", type=float, default=300.0, help="of training, for every method")
    parser.add_argument("--steps", type=int, help="of each generator, instead of as many as fit into the time")
    parser.add_argument("--budget", type=int, default=96, help="tokens of a prompt")
    parser.add_argument("--share", type=float, default=1.0, help="of Debian's packages")
    parser.add_argument("--out", type=Path, default=Path("runs/xmc"))
    given = parser.parse_args()
    console.set_up_logging()
    quick = given.quick
    seconds, steps, budget, share = (
        (10.0, 10, 32, 0.03) if quick else (given.seconds, given.steps, given.budget, given.share)
    )
    out = given.out / ("quick" if quick else "full")
    folder = folder_of(given.data, out, share)
    tables = out / "tables"
    config = settings(tables, out, seconds, steps, budget, quick)
    xmc_tables.write(folder, tables, config.seed)
    figures = compare(folder, config, given.seed)
    print(json.dumps(figures | {"commit": provenance.commit(), "seed": given.seed}, ensure_ascii=False), flush=True)


def _texts(examples: LabelledExamples, titles: pl.Series) -> list[str]:
    """A document's history is its text alone."""
    return titles.gather(examples.items.values).to_list()


def _titles(corpus: Artifact) -> pl.Series:
    return pl.read_parquet(corpus.file("items.parquet"))["title"]


if __name__ == "__main__":
    harness.run(main)
