"""From two frames to answers, answers about histories that are not stored, and a refresh: how long they take, and if
they fit.

    python -m benchmarks.ondemand                             # the demo's data: minutes on 2 idle cores
    python -m benchmarks.ondemand --standard runs/ondemand    # and of a standard model, made there if it is not yet
    python -m benchmarks.ondemand --quick                     # a planted shop, both presets

The last two weeks of the log are hidden from the run. A history is that of a stored user, sent whole. It is timed
alone, warm, from the frame of events to ten interests; then by eight threads at once. `same_as_stored`: ranking equal,
probabilities within 1e-6. Then the first of the two weeks is refreshed in: `refresh_share` is the time of that over
the time of the run, of the standard model where there is one. On a purchase of everyone who bought in the second week,
`recall_before` and `log_loss_before` are of the model as it was trained, `…_after` of the refreshed one.
"""

from __future__ import annotations

import shutil
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
from merit.core import timings
from merit.core.ragged import Ragged
from merit.core.seeds import stream
from merit.data import planted
from merit.data.sources import CompleteJourneySource, open_source
from merit.labels import space
from merit.refresh import watch
from merit.refresh.refresh import refresh
from merit.refresh.seen import Period
from merit.retrieval.model import Model

CLIENTS = 8
TOLERANCE = 1e-6
Figures = dict[str, Any]
SMALL: Figures = {"labels": {"encoder": "hashed"}, "evaluation": {"resamples": 100}, "ranking": {"resamples": 100}}
NETWORK: Figures = {"item_generator": {"train": {"steps": 40}}, "predict": {"exposure": False}}


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


def refreshed(run: Path, grown: pl.DataFrame, later: pl.DataFrame) -> Figures:
    """A copy of a run with one more week, what that took, and how both versions foresee the week behind it."""
    with TemporaryDirectory() as name:
        copy, table = Path(name) / "run", Path(name) / "grown.parquet"
        shutil.copytree(run, copy)
        grown.write_parquet(table)
        before = merit.load(copy)
        begin = time.perf_counter()
        refresh(copy, source={"interactions": str(table)})
        seconds = time.perf_counter() - begin
        trained = sum(timing.seconds for stage, timing in timings.read(run).items() if stage != "refresh")
        figures: Figures = {"refresh_seconds": round(seconds, 2), "refresh_share": round(seconds / trained, 4)}
        after = merit.load(copy)
        bought = _bought(after, later, before.users["user_id"])
        for when, model in (("before", before), ("after", after)):
            if kept := watch.judge(model, bought, fewest=1):
                figures |= {f"recall_{when}": kept.recall_at_10, f"log_loss_{when}": kept.log_loss}
        return figures


def _bought(model: Model, later: pl.DataFrame, users: pl.Series) -> Period:
    """The labels of one purchase, the first, of each of these users."""
    items = pl.read_parquet(model.artifact.file("items.parquet"))
    own = space.load(model.artifact.file("labels"))
    item_labels = Ragged(*space.item_labels(own, items))
    bought = later.filter(pl.col("event") == "purchase", pl.col("user_id").is_in(users.implode()))
    rows = bought.join(items.select("item_id", "item"), on="item_id").sort("timestamp", "user_id", "item")
    rows = rows.filter(pl.Series(item_labels.lengths()[rows["item"].to_numpy()] > 0)).unique("user_id", keep="first")
    return Period(np.zeros(0, np.int64), rows["user_id"].to_list(), item_labels.gather(rows["item"].to_numpy()))


def main() -> None:
    parser = harness.parser(__doc__)
    parser.add_argument("--standard", type=Path, help="the folder of a standard run; what is made already is kept")
    parser.add_argument("--out", type=Path, help="keep the quick run there; by default it is removed")
    given = parser.parse_args()
    users = 50 if given.quick else 200
    interactions, items = tables(given.quick, given.seed)
    known, grown, later = (_part(interactions, *days) for days in ((None, 14), (None, 7), (7, 0)))
    with TemporaryDirectory() as name:
        out, standard_out = given.out or Path(name) / "run", given.standard or (given.quick and Path(name) / "standard")
        settings: Figures = {"seed": given.seed, "cache": str(Path(name) / "cache")} | (SMALL if given.quick else {})
        begin, cpu = time.perf_counter(), time.process_time()
        model = merit.fit(known, items, "quick", out, **settings)
        model.interests(model.users["user_id"][:10], 10)
        seconds = {
            "fit_seconds": round(time.perf_counter() - begin, 1),
            "fit_core_seconds": round(time.process_time() - cpu, 1),
        }
        quick, same = asked(model, known, users, given.seed)
        quick |= refreshed(out, grown, later)
        ranked = pl.read_parquet(out / "results" / "figures.parquet")
        standard: Figures = {"p50_ms": None}
        if standard_out:
            trained = merit.fit(known, items, "standard", standard_out, **settings | (NETWORK if given.quick else {}))
            standard, alike = asked(trained, known, users // 10, given.seed)
            standard |= {"same_as_stored": alike} | refreshed(standard_out, grown, later)
        figures = (
            seconds
            | {f"recall_at_{k}": _recall(ranked, k) for k in (5, 10, 20)}
            | {f"quick_{key}": value for key, value in quick.items()}
            | {f"standard_{key}": value for key, value in standard.items()}
        )
        share = standard.get("refresh_share", quick["refresh_share"])
        harness.finish("ondemand", figures | {"same_as_stored": same, "refresh_share": share}, given.seed)


def _part(interactions: pl.DataFrame, first: int | None, last: int) -> pl.DataFrame:
    """From so many days before the end to so many."""
    at, end = pl.col("timestamp"), pl.lit(interactions["timestamp"].max())
    kept = interactions.filter(at <= end - pl.duration(days=last))
    return kept if first is None else kept.filter(at > end - pl.duration(days=first))


def _recall(figures: pl.DataFrame, k: int) -> float:
    """Exact recall of the quick model's lists on test users, in points."""
    rows = figures.filter(method="quick", metric="recall", match="exact", budget=k, part="all")
    return round(100 * float(rows["value"][0]), 1)


if __name__ == "__main__":
    harness.run(main)
