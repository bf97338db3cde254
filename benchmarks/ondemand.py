"""From two frames to answers, answers about histories that are not stored, and a refresh: how long they take, and if
they fit.

    python -m benchmarks.ondemand                             # the demo's data: minutes on 2 idle cores
    python -m benchmarks.ondemand --standard runs/ondemand    # and of a standard model, made there if it is not yet
    python -m benchmarks.ondemand --quick                     # a planted shop, both presets
    python -m benchmarks.ondemand --large 291000              # and a quick model of random weights with so many labels
    python -m benchmarks.ondemand --rest                      # and the same through `merit serve`

The last two weeks of the log are hidden from the run. A history is that of a stored user, sent whole. It is timed
alone, warm, from the frame of events to ten interests; then by eight threads at once. `same_as_stored`: ranking equal,
probabilities within 1e-6. Then the first of the two weeks is refreshed in: `refresh_share` is the time of that over
the time of the run, of the standard model where there is one. On a purchase of everyone who bought in the second week,
`recall_before` and `log_loss_before` are of the model as it was trained, `…_after` of the refreshed one.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl

import merit
from benchmarks import harness, light, ondemand_large
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


def sent(model: Model, interactions: pl.DataFrame, users: int, seed: int) -> pl.DataFrame:
    """All events of some stored users, as if they were new."""
    stored = model.users["user_id"]
    chosen = stored.gather(np.sort(stream(seed, "ondemand").permutation(len(stored))[:users]))
    return interactions.select("user_id", "item_id", "timestamp").filter(pl.col("user_id").is_in(chosen.implode()))


def same_as_stored(model: Model, events: pl.DataFrame) -> bool:
    """Whether these users, who are stored, get the stored ranking, and probabilities within TOLERANCE."""
    k, users = min(20, model.live), events["user_id"].unique(maintain_order=True)
    one, other = model.interests(users, k), model.with_histories(events, users=users).interests(users, k)
    off = (one["probability"] - other["probability"]).abs().max()
    return bool(one["interest"].equals(other["interest"]) and float(off) <= TOLERANCE)  # type: ignore[arg-type]


def large(labels: int, users: int, seed: int) -> Figures:
    """The same of a model of random weights."""
    with TemporaryDirectory() as name:
        model, events = ondemand_large.make(Path(name), labels, seed), ondemand_large.histories(labels, users, seed)
        return latencies(model, events)


def through_rest(run: Path, events: pl.DataFrame) -> Figures:
    """Milliseconds of one history by HTTP, a connection each, from one client and from eight at once."""
    at = pl.col("timestamp").dt.to_string("iso:strict")
    histories = [part.select("item_id", at=at).to_dicts() for part in _by_user(events)]
    with TemporaryDirectory() as state, light.serving(Path(sys.executable), run, Path(state)) as (address, secret):
        return _clocked(lambda history: light.ask(address, secret, history), histories)


def cost(model: Model, events: pl.DataFrame) -> Figures:
    """Core seconds of a million users: asked one by one, a thousand at a time, and stored ones in batch."""
    histories, users = _by_user(events), model.users["user_id"]

    def core_seconds(work: Callable[[], object], users: int) -> float:
        begin = time.process_time()
        work()
        return round((time.process_time() - begin) / users * 1e6, 0)

    def one_by_one() -> None:
        for history in histories:
            model.with_histories(history).interests(history["user_id"][0], 10)

    def together() -> None:
        model.with_histories(events).interests([history["user_id"][0] for history in histories], 10)

    return {
        "one_by_one": core_seconds(one_by_one, len(histories)),
        "together": core_seconds(together, len(histories)),
        "batch": core_seconds(lambda: model.interests(users, 10), len(users)),
    }


def _by_user(events: pl.DataFrame) -> list[pl.DataFrame]:
    return [part for _, part in sorted(events.partition_by("user_id", as_dict=True).items())]


def asked(model: Model, interactions: pl.DataFrame, users: int, seed: int) -> Figures:
    """How long answers about new histories take, what a million cost, and whether they are those of stored users."""
    events = sent(model, interactions, users, seed)
    per_million = {f"core_seconds_per_million_{key}": value for key, value in cost(model, events).items()}
    return latencies(model, events) | per_million | {"same_as_stored": same_as_stored(model, events)}


def latencies(model: Model, events: pl.DataFrame) -> Figures:
    """Milliseconds of one history, warm, alone and among eight."""
    return _clocked(
        lambda history: model.with_histories(history).interests(history["user_id"][0], 10), _by_user(events)
    )


def _clocked(answer: Callable[[Any], object], histories: Sequence[Any]) -> Figures:
    def milliseconds(history: Any) -> float:
        begin = time.perf_counter()
        answer(history)
        return 1000 * (time.perf_counter() - begin)

    for history in histories[:3]:
        milliseconds(history)  # the first ones pay for what is read once
    alone = [milliseconds(history) for history in histories]
    with ThreadPoolExecutor(CLIENTS) as pool:
        together = list(pool.map(milliseconds, histories))
    return {
        "p50_ms": _percentile(alone, 50),
        "p99_ms": _percentile(alone, 99),
        f"p50_ms_{CLIENTS}_clients": _percentile(together, 50),
        f"p99_ms_{CLIENTS}_clients": _percentile(together, 99),
    }


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
    parser.add_argument("--large", type=int, help="a model of random weights with so many labels, too")
    parser.add_argument("--rest", action="store_true", help="through the REST service, too")
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
        quick, more = asked(model, known, users, given.seed) | refreshed(out, grown, later), {}
        events = sent(model, known, users, given.seed)
        if given.rest:
            more |= {f"rest_{key}": value for key, value in through_rest(out, events).items()}
        if given.large:
            more |= {f"large_{key}": value for key, value in large(given.large, users, given.seed).items()}
        ranked = pl.read_parquet(out / "results" / "figures.parquet")
        standard: Figures = {"p50_ms": None}
        if standard_out:
            trained = merit.fit(known, items, "standard", standard_out, **settings | (NETWORK if given.quick else {}))
            standard = asked(trained, known, users, given.seed) | refreshed(standard_out, grown, later)
            if given.rest:
                of_standard = through_rest(standard_out, sent(trained, known, users, given.seed))
                more |= {f"rest_standard_{key}": value for key, value in of_standard.items()}
        figures = (
            seconds
            | {f"recall_at_{k}": _recall(ranked, k) for k in (5, 10, 20)}
            | {f"quick_{key}": value for key, value in quick.items()}
            | {f"standard_{key}": value for key, value in standard.items()}
            | more
        )
        share = standard.get("refresh_share", quick["refresh_share"])
        same = all(part.get("same_as_stored", True) for part in (quick, standard))
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
