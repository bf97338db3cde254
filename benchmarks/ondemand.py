"""From two frames to answers, and answers about histories that are not stored: how long both take, and if they fit.

    python -m benchmarks.ondemand                        # the demo's data: a minute on 2 idle cores
    python -m benchmarks.ondemand --standard runs/demo   # and the same of a standard model, with its generator
    python -m benchmarks.ondemand --quick                # a planted shop

A history is that of a stored user, sent whole: all events of the data. It is timed alone, warm, from the frame of
events to ten interests; then by eight threads at once. `same_as_stored`: ranking equal, probabilities within 1e-6.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl

import merit
from benchmarks import harness
from merit.core.seeds import stream
from merit.data import planted
from merit.data.sources import CompleteJourneySource, open_source
from merit.retrieval.model import Model

CLIENTS = 8
TOLERANCE = 1e-6
Figures = dict[str, Any]


def tables(quick: bool, seed: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Interactions and items, as a caller has them in memory."""
    if quick:
        with TemporaryDirectory() as name:
            planted.write(planted.shop(planted.PlantedConfig(users=400), seed), Path(name))
            return pl.read_parquet(f"{name}/interactions.parquet"), pl.read_parquet(f"{name}/items.parquet")
    source = open_source(CompleteJourneySource())
    interactions = source.interactions.filter(pl.col("problem").is_null())
    columns = ("user_id", "item_id", "timestamp", "event", "order_id")
    items = source.items.filter(pl.col("problem").is_null()).select("item_id", "title", "tags", "vertical")
    kept = interactions.select(columns).join(items.select("item_id"), on="item_id", how="semi")
    return kept.collect(), items.collect()


def asked(model: Model, interactions: pl.DataFrame, users: int, seed: int) -> tuple[Figures, bool]:
    """Milliseconds of one history, alone and among eight, and whether answers are the stored ones."""
    stored = model.users["user_id"]
    chosen = stored.gather(np.sort(stream(seed, "ondemand").permutation(len(stored))[:users]))
    events = interactions.select("user_id", "item_id", "timestamp").filter(pl.col("user_id").is_in(chosen.implode()))
    histories = [part for _, part in sorted(events.partition_by("user_id", as_dict=True).items())]

    def answer(history: pl.DataFrame) -> float:
        begin = time.perf_counter()
        model.with_histories(history).interests(history["user_id"][0], 10)
        return 1000 * (time.perf_counter() - begin)

    for history in histories[:3]:
        answer(history)  # the first ones pay for what is read once
    alone = [answer(history) for history in histories]
    with ThreadPoolExecutor(CLIENTS) as pool:
        together = list(pool.map(answer, histories))
    figures = {
        "p50_ms": _percentile(alone, 50),
        "p99_ms": _percentile(alone, 99),
        f"p50_ms_{CLIENTS}_clients": _percentile(together, 50),
        f"p99_ms_{CLIENTS}_clients": _percentile(together, 99),
    }
    k = min(20, model.live)
    one, other = model.interests(chosen, k), model.with_histories(events, users=chosen).interests(chosen, k)
    off = (one["probability"] - other["probability"]).abs().max()
    return figures, bool(one["interest"].equals(other["interest"]) and float(off) <= TOLERANCE)  # type: ignore[arg-type]


def _percentile(values: Sequence[float], percent: float) -> float:
    return round(float(np.percentile(values, percent)), 2)


def main() -> None:
    parser = harness.parser(__doc__)
    parser.add_argument("--standard", type=Path, help="the run of a standard model of the demo's data")
    parser.add_argument("--out", type=Path, help="keep the quick run there; by default it is removed")
    given = parser.parse_args()
    users = 50 if given.quick else 200
    interactions, items = tables(given.quick, given.seed)
    with TemporaryDirectory() as name:
        out = given.out or Path(name) / "run"
        settings: dict[str, Any] = {"labels": {"encoder": "hashed"}} if given.quick else {}
        begin, cpu = time.perf_counter(), time.process_time()
        model = merit.fit(interactions, items, "quick", out, seed=given.seed, cache=str(out / "cache"), **settings)
        model.interests(model.users["user_id"][:10], 10)
        seconds = {
            "fit_seconds": round(time.perf_counter() - begin, 1),
            "fit_core_seconds": round(time.process_time() - cpu, 1),
        }
        quick, same = asked(model, interactions, users, given.seed)
        ranked = pl.read_parquet(out / "results" / "figures.parquet")
        standard: Figures = {"p50_ms": None}
        if given.standard:
            standard, alike = asked(merit.load(given.standard), interactions, users // 10, given.seed)
            standard["same_as_stored"] = alike
        figures = (
            seconds
            | {f"recall_at_{k}": _recall(ranked, k) for k in (5, 10, 20)}
            | {f"quick_{key}": value for key, value in quick.items()}
            | {f"standard_{key}": value for key, value in standard.items()}
        )
        harness.finish("ondemand", figures | {"same_as_stored": same, "refresh_share": None}, given.seed)


def _recall(figures: pl.DataFrame, k: int) -> float:
    """Exact recall of the quick model's lists on test users, in points."""
    rows = figures.filter(method="quick", metric="recall", match="exact", budget=k, part="all")
    return round(100 * float(rows["value"][0]), 1)


if __name__ == "__main__":
    harness.run(main)
