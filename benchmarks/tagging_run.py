"""Interests from tags that were mined or completed: what the quick preset learns (`benchmarks.tagging --run`)."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl

from merit.baselines.linear import linear
from merit.baselines.world import make_world
from merit.core import config, presets, seeds
from merit.core.artifacts import Artifact
from merit.core.console import show_table
from merit.core.errors import ConfigError
from merit.core.ragged import Ragged, head, pair_keys
from merit.core.shared import SharedRun
from merit.data.corpus import read_examples, read_table
from merit.data.texts import TextConfig
from merit.evaluation import predictions
from merit.evaluation.predictions import top
from merit.evaluation.uncertainty import Metric, interval, minus, sample, weights
from merit.generator.backbone import BackboneConfig
from merit.labels import space

HIDDEN, CUT, SECONDS = 0.3, 10, 120.0
Made = dict[str, Artifact]


def figures(data: Path | None, least: int, encoder: str, cache: Path, seed: int) -> dict[str, Any]:
    """Recall at 10 of quick models on full, mined, hidden and completed tags."""
    if data is None:
        raise ConfigError("This needs a folder of two tables. Name it with --data FOLDER.")
    items = pl.read_parquet(data / "items.parquet")
    with TemporaryDirectory() as temporary:

        def run(table: pl.DataFrame, name: str, tags: dict[str, Any]) -> Made:
            place = Path(temporary) / name
            place.mkdir()
            table.write_parquet(place / "items.parquet")
            source = {"interactions": str(data / "interactions.parquet"), "items": str(place / "items.parquet")}
            values = {"source": {"kind": "tables"} | source, "labels": {"encoder": encoder}, "tags": tags}
            values |= {"preset": "quick", "seed": seed, "cache": str(cache), "out": str(place / "run")}
            return presets.run(config.build(SharedRun, values), until="ranking")

        bare = items.drop("tags", *(name for name in ("vertical",) if name in items.columns))
        tags = {"sources": ["mine"], "mine": {"least": least, "quality": 0.0 if least == 1 else 0.45}, "most": 16}
        mined = run(bare, "mined", tags)
        ours = _against_others(mined, seed)
        hidden = _hidden(items, seed)
        made = {
            "full": run(items, "full", {}),
            "hidden": run(hidden, "hidden", {}),
            "completed": run(hidden, "completed", {"sources": ["complete"]}),
        }
        return ours | _against_full(made, seed)


def _hidden(items: pl.DataFrame, seed: int) -> pl.DataFrame:
    """The items, with the tags of three in ten taken away; their verticals too, which are tags often enough."""
    gone = np.zeros(len(items), bool)
    gone[seeds.stream(seed, "benchmark", "hidden").permutation(len(items))[: int(HIDDEN * len(items))]] = True
    mask = pl.Series(gone)
    hidden = items.with_columns(tags=pl.when(~mask).then("tags").otherwise(pl.lit([], pl.List(pl.String))))
    return hidden.with_columns(vertical=pl.when(~mask).then("vertical")) if "vertical" in items.columns else hidden


def _recalls(lists: Ragged, gold: Ragged, width: int) -> Metric:
    """Hits and gold labels of each example; test users have one."""
    hits = np.isin(pair_keys(gold, width), pair_keys(head(lists, CUT), width))
    owner = np.repeat(np.arange(len(gold)), gold.lengths())
    return Metric(np.stack([np.bincount(owner, hits, len(gold)), gold.lengths()], axis=1).astype(float))


def _against_others(made: Made, seed: int) -> dict[str, Any]:
    """The quick model on mined labels, beside popularity and the linear model."""
    world = make_world(made["corpus"], made["labels"], BackboneConfig(), TextConfig(), SECONDS)
    gold, live = read_examples(made["corpus"], "test").gold, world.live
    ranked = predictions.read(made["ranking"].file("predictions-0.parquet")).at(CUT)
    popular = top(world.popularity[None].astype(np.float32), live, CUT)
    lists = {
        "quick": ranked,
        "popularity": Ragged.of([popular[0].tolist()] * len(gold)),
        "linear": linear(world, seed).ranked,
    }
    metrics = {name: _recalls(rows, gold, len(world.labels)) for name, rows in lists.items()}
    drawn = sample(metrics, weights(len(gold), seed))
    ahead = {name: interval(minus(drawn["quick"], drawn[name])) for name in ("popularity", "linear")}
    rows = [(name, f"{metric.value:.4f}", _shown(ahead.get(name))) for name, metric in metrics.items()]
    show_table(
        f"Recall at {CUT}, {len(live):,} mined labels, {len(gold):,} users",
        ["method", "recall", "quick is ahead by"],
        rows,
    )
    found = {f"mined_{name}_recall_{CUT}": round(metric.value, 4) for name, metric in metrics.items()}
    bounds = {f"mined_over_{name}": [round(gain.low, 4), round(gain.high, 4)] for name, gain in ahead.items()}
    return {"mined_labels": len(live)} | found | bounds


def _shown(gain: Any) -> str:
    return f"{gain.value:.4f} [{gain.low:.4f}, {gain.high:.4f}]" if gain else ""


def _against_full(made: dict[str, Made], seed: int) -> dict[str, Any]:
    """Models of full, hidden and completed tags, all judged by full tags on the users that all of them have."""
    truth_space = space.load(made["full"]["labels"].path)
    parts = {name: _by_user(run, truth_space) for name, run in made.items()}
    users = sorted(set.intersection(*(set(lists) for lists, _ in parts.values())))
    gold = Ragged.of([parts["full"][1][user] for user in users])
    metrics = {
        name: _recalls(Ragged.of([lists[user] for user in users]), gold, len(truth_space))
        for name, (lists, _) in parts.items()
    }
    drawn = sample(metrics, weights(len(users), seed))
    lost = {name: interval(minus(drawn["full"], drawn[name])) for name in ("hidden", "completed")}
    rows = [(name, f"{metric.value:.4f}", _shown(lost.get(name))) for name, metric in metrics.items()]
    show_table(
        f"Recall at {CUT} of full tags, {len(users):,} users", ["tags", "recall", "full tags are ahead by"], rows
    )
    found = {f"{name}_recall_{CUT}": round(metric.value, 4) for name, metric in metrics.items()}
    return found | {f"lost_by_{name}": [round(loss.low, 4), round(loss.high, 4)] for name, loss in lost.items()}


def _by_user(made: Made, truth: space.LabelSpace) -> tuple[dict[Any, list[int]], dict[Any, list[int]]]:
    """Predicted and gold labels of each test purchase, as labels of `truth`; those it does not have are left out."""
    own = space.load(made["labels"].path)
    number = truth.find(own.texts)
    table = read_table(made["corpus"], "test", "user_id", "when", "target_items")
    keys = [(user, when, tuple(items)) for user, when, items in table.rows()]
    lists = head(predictions.read(made["ranking"].file("predictions-0.parquet")).at(CUT), CUT)
    gold = read_examples(made["corpus"], "test").gold
    return tuple(  # type: ignore[return-value]
        {key: [int(number[label]) for label in rows[at] if number[label] >= 0] for at, key in enumerate(keys)}
        for rows in (lists, gold)
    )
