"""Who buys something of an interest within 7, 28 and 90 days, all test users counted whether they shop or not.

    python -m benchmarks.windows                     # Complete Journey, from an installed package
    python -m benchmarks.windows --data FOLDER       # with interactions.parquet and items.parquet
    python -m benchmarks.windows --quick             # 600 households, few users for the cost

A quick model of all but the last 90 days; what happens in these it has never seen. Recall is the share of all buyers of
100 interests among the best 1, 5 and 20 % of the users for each, against how often a user bought of that interest
(ties go to who shops more), how often a user shops, recency, frequency and amount of those purchases (quintiles added
up), and the linear model of the next purchase. Intervals over users. The cost is that of a window's scores over a
million users against that of an interest's, exact as an audience has them.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl

import merit
from benchmarks import campaigns, harness
from merit.campaigns.audiences.audience import ranking
from merit.core import config, console
from merit.core.errors import DataError
from merit.core.pipeline import run
from merit.core.ragged import owners
from merit.core.seeds import stream
from merit.core.settings import RunConfig
from merit.core.types import Ints
from merit.data.schema import EVENT_NAMES
from merit.evaluation import tables, uncertainty
from merit.evaluation.uncertainty import Estimate, Metric
from merit.propensity.purchases import Mask, PurchaseHistories, Reals
from merit.retrieval.model import Model
from merit.retrieval.windows import WindowQuery

DAYS = (7, 28, 90)
PARTS = (1, 5, 20)  # percent of the users
MERIT, HISTORY, ACTIVITY, RFM, LINEAR = "merit", "own history", "activity", "RFM", "linear"
INTERESTS, LEAST = 100, 20  # with at least so many buyers in 28 days
HOUSEHOLDS = 600
EVENTS = 50  # of a user, where the cost is measured


def trained(interactions: pl.DataFrame, items: pl.DataFrame, out: Path, seed: int) -> Model:
    """A quick model."""
    out.mkdir(parents=True, exist_ok=True)
    tables_ = {"interactions": interactions, "items": items}
    for name, table in tables_.items():
        table.write_parquet(out / f"{name}.parquet")
    source = {"kind": "tables"} | {name: str(out / f"{name}.parquet") for name in tables_}
    values = {"preset": "quick", "seed": seed, "source": source, "out": str(out / "run"), "cache": str(out / "cache")}
    run(config.build(RunConfig, values))
    return merit.load(out / "run")


def wanted_of(model: Model, label: int) -> Mask:
    """By item: whether it carries the label."""
    wanted = np.zeros(len(model.windows.item_labels), dtype=bool)
    wanted[owners(model.windows.item_labels)[model.windows.item_labels.values == label]] = True
    return wanted


def methods(model: Model, label: int, wanted: Mask, purchases: PurchaseHistories, days: int) -> dict[str, Reals]:
    """By method, the score of all users of the model."""
    shops, buyers, own = purchases.activity(), purchases.buyers(wanted), np.zeros((3, len(purchases)))
    own[0] = -np.inf  # never
    own[:, buyers.users] = -buyers.activity.last, buyers.activity.days, buyers.activity.lines
    tie = shops.days / (1 + shops.days.max())
    window = model.windows.window(days)
    return {
        MERIT: model.audience_scores(WindowQuery(f"{label} {days}", wanted, window)),
        HISTORY: own[1] + tie,
        ACTIVITY: shops.days,
        RFM: np.where(own[1] > 0, sum(quintiles(values, own[1] > 0) for values in own), 0) + tie,
        LINEAR: model.audience_scores(model.labels.texts[label]),
    }


def quintiles(values: Reals, among: Mask) -> Reals:
    """1 to 5 among some users; equal values have equal quintiles."""
    edges = np.quantile(values[among], [0.2, 0.4, 0.6, 0.8])
    return np.searchsorted(edges, values) + 1.0


def best(scores: Reals, among: Mask, percent: int) -> Mask:
    """The best users, one at least."""
    chosen = np.zeros(len(scores), dtype=bool)
    chosen[ranking(scores, among)[: max(1, round(percent * among.sum() / 100))]] = True
    return chosen


def measured(model: Model, later: pl.DataFrame, tested: Mask, seed: int) -> dict[int, dict[str, Any]]:
    """By days: recall of each method, and the calibration error of ours."""
    purchases, users = (
        model.windows.purchases(),
        pl.DataFrame({"user_id": model.users["user_id"]}).with_row_index("user"),
    )
    numbers = model.items.select("item_id", "item")
    events = later.join(users, on="user_id").join(numbers, on="item_id").select("user", "item", "day")
    labels = chosen_labels(model, events, seed)
    found: dict[int, dict[str, Any]] = {}
    for days in DAYS:
        bought = events.filter(pl.col("day") < days)
        sums: dict[tuple[str, int], Reals] = {}
        chances, outcomes = [], []
        for label in labels.tolist():
            wanted, did = wanted_of(model, label), np.zeros(len(users), dtype=bool)
            did[bought["user"].to_numpy()[wanted[bought["item"].to_numpy()]]] = True
            did &= tested
            scores = methods(model, label, wanted, purchases, days)
            chances.append(scores[MERIT][tested])
            outcomes.append(did[tested])
            for method, score in scores.items():
                for percent in PARTS:
                    caught = did & best(score, tested, percent)
                    total = sums.setdefault((method, percent), np.zeros((len(users), 2)))
                    total += np.stack([caught, did], axis=1)
        found[days] = {"recall": {key: Metric(total[tested]) for key, total in sums.items()}}
        found[days]["ece"] = error(np.concatenate(chances), np.concatenate(outcomes))
    return found


def chosen_labels(model: Model, events: pl.DataFrame, seed: int) -> Ints:
    """Live labels that enough users bought in the four weeks, at random."""
    month, lists = events.filter(pl.col("day") < 28), model.windows.item_labels
    items, users = (month[name].to_numpy().astype(np.int64) for name in ("item", "user"))
    if not len(users):
        raise DataError("Nobody whom the model knows bought anything in the four weeks behind its data.")
    labels, sizes = lists.take(items)
    pairs = np.unique(labels.astype(np.int64) * (1 + users.max()) + np.repeat(users, sizes)) // (1 + users.max())
    enough = np.flatnonzero((np.bincount(pairs, minlength=len(model.labels)) >= LEAST) & model.labels.live_mask())
    return np.sort(stream(seed, "interests").permutation(enough)[:INTERESTS])


def error(chances: Reals, outcomes: Mask) -> float:
    """The expected calibration error in twenty bins of equal width."""
    place = np.minimum((20 * chances).astype(np.int64), 19)
    apart = np.bincount(place, weights=chances - outcomes, minlength=20)
    return float(np.abs(apart).sum() / len(chances))


def cost(model: Model, users: int) -> dict[str, float]:
    """Seconds of the scores of an interest, exact, and of a window, over so many users made of those there are."""
    stored, times = model.stored_users(), -(-users // len(model.users))
    lists = [pl.col(name).list.tail(EVENTS) for name in ("items", "days", "bought", "history", "counts")]
    part = stored.with_columns(lists)
    copies = [part.with_columns(pl.format("{}-{}", pl.col("user_id"), pl.lit(copy))) for copy in range(times)]
    many = model.for_users(pl.concat(copies).head(users).rechunk())
    label = int(np.bincount(model.windows.item_labels.values).argmax())
    query = WindowQuery("cost", wanted_of(model, label), many.windows.window(28))
    ratio = harness.alternate(
        lambda: many.audience_scores(query),
        lambda: many.audience_scores(model.labels.texts[label], exact=True),
        rounds=3,
    )
    _, rough = harness.timed(lambda: many.audience_scores(model.labels.texts[label]))
    return {"seconds": ratio.ours, "exact": ratio.other, "rough": rough}


def report(data: Path | None, quick: bool, users: int, seed: int, out: Path) -> None:
    """Train, look at what came later, and print it."""
    if data:
        events, items = (pl.read_parquet(data / f"{name}.parquet") for name in ("interactions", "items"))
    else:
        events, items = campaigns.shop(HOUSEHOLDS if quick else None)
    cut = events["timestamp"].max() - timedelta(days=max(DAYS))  # type: ignore[operator]
    past, later = events.filter(pl.col("timestamp") < cut), events.filter(pl.col("timestamp") >= cut)
    model = trained(past, items.join(past, on="item_id", how="semi"), out, seed)
    end = datetime.combine(model.windows.end, datetime.min.time())
    day = (pl.col("timestamp").dt.replace_time_zone(None) - end).dt.total_days()
    if "event" in later.columns:
        purchases = ["purchase", *(name for name, event in EVENT_NAMES.items() if event == "purchase")]
        later = later.filter(pl.col("event").cast(pl.String).str.to_lowercase().is_in(purchases))
    later = later.with_columns(pl.col("user_id", "item_id").cast(pl.String), day=day).filter(pl.col("day") >= 0)
    test = pl.read_parquet(out / "run/corpus/test.parquet", columns=["user_id"])["user_id"]
    tested = model.users["user_id"].is_in(test.implode()).to_numpy()
    found = measured(model, later, tested, seed)
    rows, figures = [], {"users": int(tested.sum())}
    for days, part in found.items():
        drawn = uncertainty.sample(part["recall"], uncertainty.weights(int(tested.sum()), seed))
        figures[f"ece_{days}"] = round(part["ece"], 4)
        for (method, percent), value in drawn.items():
            apart = uncertainty.minus(drawn[MERIT, percent], value)
            rows.append(
                (days, method, percent, points(uncertainty.interval(value)), points(uncertainty.interval(apart)))
            )
        gain = uncertainty.interval(uncertainty.minus(drawn[MERIT, 5], drawn[HISTORY, 5]))
        figures[f"recall_5_over_history_{days}"] = [
            round(100 * value, 2) for value in (gain.value, gain.low, gain.high)
        ]
    schema = ["days", "method", "best %", "recall", "merit less this"]
    print(tables.markdown(pl.DataFrame(rows, schema=schema, orient="row")))
    figures["recall_5_over_history"] = figures["recall_5_over_history_28"][0]
    taken = cost(model, users)
    figures |= {name: round(value, 3) for name, value in taken.items()}
    figures |= {"cost_ratio": round(taken["seconds"] / taken["exact"], 2), "cost_users": users}
    harness.finish("windows", figures, seed)


def points(estimate: Estimate) -> str:
    return f"{100 * estimate.value:.1f} [{100 * estimate.low:.1f}, {100 * estimate.high:.1f}]"


def main() -> None:
    parser = harness.parser(__doc__)
    parser.add_argument("--users", type=int, help="for the cost; a million, or 20,000 with --quick")
    arguments = parser.parse_args()
    console.set_up_logging(quiet=True)
    users = arguments.users or (20_000 if arguments.quick else 1_000_000)
    with TemporaryDirectory() as temporary:
        report(arguments.data, arguments.quick, users, arguments.seed, Path(temporary))


if __name__ == "__main__":
    harness.run(main)
