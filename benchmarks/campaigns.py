"""A back-test on the 27 real campaigns of Complete Journey: whom the retailer chose, and whom merit would have chosen.

    python -m benchmarks.campaigns [--steps 600] [--share-days 14] [--campaigns 8 13] [--out runs/campaigns]
    python -m benchmarks.campaigns --quick        # one campaign, 400 households, a toy model: to see that it works

For each campaign a model is trained on what was known before its start (campaigns that start within --share-days of
each other share the model of the first), and an audience of the retailer's size is chosen: by merit, by how often a
household had bought the campaign's products, by how often it shops. What counts is who buys the campaign's products
in its window. `merit` scores them by the chance of a purchase within that window, as an audience with `within` and
`products` does; `next purchase` by the weighted combination of the campaign's labels: P(label) × the share of that
label's past purchases that were products of the campaign, as an audience without a window does.

**Nobody was assigned at random.** Treated households got coupons, and the retailer chose lively ones. So every figure
comes in three readings: as seen; with all who redeemed counted as if they had not bought, the most that coupons can
have added; and among households that got nothing, where no method has an advantage (and the retailer no audience).
Redeemers can only be treated households: there, the figure is how many of them the first half of a ranking holds.
Every step is an artifact: a stopped run goes on where it was.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.stats import binomtest  # type: ignore[import-untyped]

import merit
from benchmarks import harness
from benchmarks.objectives import settings
from merit.campaigns.audiences.audience import ranking
from merit.campaigns.audiences.forecast import CombinedScores, Forecast, Reals, ReliabilityBins, combined, forecast
from merit.campaigns.audiences.products import category_of
from merit.campaigns.audiences.request import Within
from merit.campaigns.audiences.windows import reliability_of
from merit.core import console
from merit.core.errors import DataError
from merit.core.pipeline import run
from merit.data.sources.complete_journey import CompleteJourneySource, _folder, open_complete_journey
from merit.evaluation import tables, uncertainty
from merit.evaluation.uncertainty import Estimate, Metric
from merit.retrieval.model import Model

Mask = NDArray[np.bool_]
RETAILER, NEXT, MERIT, HISTORY, ACTIVITY = "retailer", "next purchase", "merit", "product history", "activity"
READINGS = ("as seen", "without redeemers", "untreated only", "redeemers in the first half", "new to the category")
QUICK_HOUSEHOLDS = 400
TOY = [
    *("labels.encoder=hashed", "backbone.width=32", "backbone.layers=1", "states.labels=3", "propensity.fit.epochs=2"),
    *("propensity.model.labels=2", "propensity.model.width=32", "propensity.model.layers=1"),
    *("predict.exposure=false", "predict.union=false", "predict.likelihood=false"),
    *("prepare.per_train_user=1", "mining.samples=1", "mining.max_labels=3", "predict.sampling.samples=1"),
    *("stage_1.batch_size=16", "stage_2.batch_size=16", "text.prompt.budget=32"),
    *("predict.budget=5", "evaluation.resamples=100", "ranking.resamples=100"),
]


@dataclass(frozen=True)
class Campaign:
    number: int
    kind: str
    start: datetime
    end: datetime
    treated: pl.Series
    redeemers: pl.Series
    products: pl.Series


@dataclass(frozen=True)
class Rows:
    """One campaign, one row per household the model knew: who was chosen by whom, and what happened."""

    campaign: Campaign
    household: NDArray[np.int64]
    treated: Mask
    redeemed: Mask
    bought: Mask
    scores: dict[str, Reals]
    new: Mask
    """Who had bought nothing of the products' categories."""
    reliability: ReliabilityBins


# --- what there is ---------------------------------------------------------------------------------------------------


def all_campaigns() -> list[Campaign]:
    """By start."""

    def read(name: str) -> pl.DataFrame:
        return pl.read_parquet(_folder() / f"{name}.parquet")

    told, sent, coupons, redeemed = map(read, ("campaign_descriptions", "campaigns", "coupons", "coupon_redemptions"))

    def of(frame: pl.DataFrame, column: str, number: int) -> pl.Series:
        return frame.filter(pl.col("campaign_id") == number)[column].unique().sort().cast(pl.String)

    return [
        Campaign(
            number,
            kind,
            start,
            end + timedelta(days=1),  # the last day counts
            of(sent, "household_id", number),
            of(redeemed, "household_id", number),
            of(coupons, "product_id", number),
        )
        for number, kind, start, end in told.sort("start_date", "campaign_id").iter_rows()
    ]


def usable(
    every: list[Campaign], events: pl.DataFrame, history_days: int, window_days: int
) -> tuple[list[Campaign], list[str]]:
    """Those with a past to learn from and a window to look at, and why the others are left out."""
    first, last = (events["timestamp"].dt.replace_time_zone(None).sort()[place] for place in (0, -1))
    kept, left = [], []
    for each in every:
        if each.start < first + timedelta(days=history_days):
            left.append(f"campaign {each.number}: begins {each.start:%Y-%m-%d}, too early to have learnt anything")
        elif last < each.start + timedelta(days=window_days):
            left.append(f"campaign {each.number}: begins {each.start:%Y-%m-%d}, and the data ends {last:%Y-%m-%d}")
        else:
            kept.append(each)
    return kept, left


def groups(campaigns: list[Campaign], share_days: int) -> Iterator[list[Campaign]]:
    """Campaigns that share a model: none starts more than so many days after the first."""
    rest = campaigns
    while rest:
        last = rest[0].start + timedelta(days=share_days)
        yield [each for each in rest if each.start <= last]
        rest = [each for each in rest if each.start > last]


def shop(households: int | None) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Purchases and products with readable tags; of the first households by id where fewer are wanted."""
    tables_ = open_complete_journey(CompleteJourneySource())
    names = ["user_id", "item_id", "timestamp", "event", "order_id"]
    events = tables_.interactions.select(names).drop_nulls(names[:3]).collect(engine="streaming")
    items = tables_.items.select("item_id", "title", "tags", "vertical").drop_nulls("item_id").collect()
    if households:
        some = events["user_id"].unique().sort().head(households)
        events = events.filter(pl.col("user_id").is_in(some.implode()))
    return events, items


# --- scores before the start -----------------------------------------------------------------------------------------


def model_before(
    cut: datetime, events: pl.DataFrame, items: pl.DataFrame, out: Path, steps: int, how: list[str]
) -> Model:
    """A model that has seen nothing from the cut on."""
    data = out / "data"
    if not data.exists():
        data.mkdir(parents=True)
        past = before(events, cut)
        past.write_parquet(data / "interactions.parquet")
        items.join(past, on="item_id", how="semi").write_parquet(data / "items.parquet")  # what had been sold by then
    run(settings(data, [], steps, out / "run", how))
    return merit.load(out / "run")


def before(events: pl.DataFrame, cut: datetime) -> pl.DataFrame:
    return events.filter(pl.col("timestamp").dt.replace_time_zone(None) < cut)


def label_weights(model: Model, past: pl.DataFrame, items: pl.DataFrame, products: pl.Series) -> dict[str, float]:
    """Live labels, and which share of a label's purchases were products of the campaign. The finest tag speaks."""
    finest = items.select("item_id", label=pl.col("tags").list.drop_nulls().list.last()).drop_nulls()
    ours = pl.col("item_id").is_in(products.implode())
    told = past.join(finest, on="item_id").group_by("label").agg(share=ours.mean()).filter(pl.col("share") > 0)
    told = told.sort("label")
    numbers = model.labels.find(told["label"].to_list())
    live = model.labels.live_mask()
    shares: dict[str, float] = {}
    for number, share in zip(numbers.tolist(), told["share"].to_list(), strict=True):
        if number >= 0 and live[number]:
            text = model.labels.texts[number]
            shares[text] = max(share, shares.get(text, 0.0))
    if not shares:
        raise DataError("No label of this campaign may be used: all are blocked, or none of its products was sold.")
    return shares


def scores_of(
    model: Model, past: pl.DataFrame, items: pl.DataFrame, products: pl.Series, within: Within
) -> dict[str, Reals]:
    """How much each method wants each of the model's users."""
    users = model.users["user_id"]
    weights = label_weights(model, past, items, products)
    table = model.score(users, list(weights))["probability"].to_numpy().reshape(len(users), -1)
    columns = zip(table.T, weights.values(), strict=True)

    def counted(rows: pl.DataFrame, what: pl.Expr) -> Reals:
        by_user = rows.group_by("user_id").agg(count=what)
        joined = users.to_frame().join(by_user, on="user_id", how="left", maintain_order="left")
        return joined["count"].fill_null(0).to_numpy().astype(np.float64)

    def baskets(rows: pl.DataFrame) -> Reals:
        return counted(rows, pl.col("order_id").n_unique())

    next_one = np.minimum(combined(columns, "weighted").score * sum(weights.values()), 1 - 1e-12)
    lively = baskets(past)
    windows, wanted = model.windows, model.items["item_id"].is_in(products.implode()).to_numpy()
    own = baskets(past.filter(pl.col("item_id").is_in(products.implode())))
    return {
        MERIT: windows.probabilities(wanted, windows.window(within.days, within.start))[model.visible().rows],
        NEXT: next_one,
        HISTORY: own + lively / (1 + lively.max()),  # equal counts go to who shops more
        ACTIVITY: lively,
    }


def observe(campaign: Campaign, model: Model, events: pl.DataFrame, items: pl.DataFrame, cut: datetime) -> Rows:
    users = model.users["user_id"]
    time = pl.col("timestamp").dt.replace_time_zone(None)
    window = events.filter(time >= campaign.start, time < campaign.end)
    buyers = window.filter(pl.col("item_id").is_in(campaign.products.implode()))["user_id"].unique()
    treated, redeemed, bought = (
        users.is_in(some.implode()).to_numpy() for some in (campaign.treated, campaign.redeemers, buyers)
    )
    days = min((campaign.end - campaign.start).days, model.windows.longest)  # of two months of data, not much is learnt
    within = Within(days=days, start=campaign.start.date())
    scores = scores_of(model, before(events, cut), items, campaign.products, within)
    wanted = model.items["item_id"].is_in(campaign.products.implode()).to_numpy()
    new = ~model.windows.bought(category_of(model.windows.item_labels, wanted))[model.visible().rows]
    household = users.cast(pl.Int64).to_numpy()
    return Rows(campaign, household, treated, redeemed, bought, scores, new, reliability_of(model.windows.learnt))


# --- readings --------------------------------------------------------------------------------------------------------


def first(scores: Reals, among: Mask, count: int) -> Mask:
    chosen = np.zeros(len(scores), dtype=bool)
    chosen[ranking(scores, among)[:count]] = True
    return chosen


def readings(rows: Rows) -> dict[tuple[str, str], tuple[Mask, Mask]]:
    """(method, reading) → which households count, and which of them did it."""
    everyone, size = np.ones(len(rows.treated), dtype=bool), int(rows.treated.sum())
    choices = {RETAILER: rows.treated} | {name: first(each, everyone, size) for name, each in rows.scores.items()}
    found = {}
    for name, chosen in choices.items():
        found[name, READINGS[0]] = (chosen, chosen & rows.bought)
        found[name, READINGS[1]] = (chosen, chosen & rows.bought & ~(rows.treated & rows.redeemed))
    free = ~rows.treated
    for name, each in rows.scores.items():
        chosen = first(each, rows.new, min(size, int(rows.new.sum()) // 2))
        found[name, READINGS[4]] = (chosen, chosen & rows.bought)
    found["anyone", READINGS[4]] = (rows.new, rows.new & rows.bought)
    for name, each in rows.scores.items():
        chosen = first(each, free, min(size, int(free.sum()) // 2))
        found[name, READINGS[2]] = (chosen, chosen & rows.bought)
        half, caught = first(each, rows.treated, size // 2), rows.treated & rows.redeemed
        found[name, READINGS[3]] = (caught, caught & half)
    found["anyone", READINGS[2]] = (free, free & rows.bought)
    return found


def pooled(seen: list[Rows], seed: int) -> dict[tuple[str, str], tuple[Estimate, Estimate | None]]:
    """Over all campaigns: each figure, and its difference to the product history, with households drawn again."""
    ids, columns = np.unique(np.concatenate([rows.household for rows in seen])), {}
    for rows in seen:
        place = np.searchsorted(ids, rows.household)
        for key, (counted, did) in readings(rows).items():
            sums = columns.setdefault(key, np.zeros((len(ids), 2)))
            sums[place] += np.stack([did, counted], axis=1)
    metrics: Mapping[tuple[str, str], Metric] = {key: Metric(sums) for key, sums in columns.items()}
    drawn = uncertainty.sample(metrics, uncertainty.weights(len(ids), seed))
    against = {reading: drawn[HISTORY, reading] for reading in READINGS}
    return {
        (method, reading): (
            uncertainty.interval(each),
            None if method == HISTORY else uncertainty.interval(uncertainty.minus(each, against[reading])),
        )
        for (method, reading), each in drawn.items()
    }


def points(estimate: Estimate | None) -> str:
    if estimate is None:
        return ""
    return f"{100 * estimate.value:.1f} ({100 * estimate.low:.1f} to {100 * estimate.high:.1f})"


def pooled_table(found: dict[tuple[str, str], tuple[Estimate, Estimate | None]]) -> pl.DataFrame:
    return pl.DataFrame(
        [
            {"reading": reading, "method": method, "%": points(value), "Δ to product history": points(apart)}
            for reading in READINGS
            for (method, of), (value, apart) in found.items()
            if of == reading
        ]
    )


def share(did: int, counted: int) -> str:
    """In points, with Wilson's 95 % interval: a household is one trial of a campaign."""
    if not counted:
        return "–"
    found = binomtest(did, counted).proportion_ci(method="wilson")
    return f"{100 * did / counted:.1f} [{100 * found.low:.1f}, {100 * found.high:.1f}]"


def campaign_table(seen: list[Rows]) -> pl.DataFrame:
    """Every campaign: who of each audience bought, as seen, and how much of merit's audience the retailer chose too."""
    made = []
    for rows in seen:
        told, each = readings(rows), rows.campaign
        line: dict[str, object] = {
            "campaign": f"{each.number} ({each.kind})",
            "start": f"{each.start:%Y-%m-%d}",
            "households": int(rows.treated.sum()),
            "redeemed": int((rows.treated & rows.redeemed).sum()),
        }
        for name in (RETAILER, MERIT, NEXT, HISTORY, ACTIVITY):
            counted, did = told[name, READINGS[0]]
            line[name] = share(int(did.sum()), int(counted.sum()))
        ours = told[MERIT, READINGS[0]][0]
        promise, happened, _ = promised(rows, ours & ~rows.treated)
        line["expected of the untreated"] = f"{promise.low:.0f} to {promise.high:.0f}, {happened} bought"
        line["merit's also treated"] = f"{100 * (ours & rows.treated).sum() / max(1, ours.sum()):.0f}"
        made.append(line)
    return pl.DataFrame(made)


def promised(rows: Rows, chosen: Mask) -> tuple[Forecast, int, bool]:
    """The forecast for these households, how many of them bought, and whether that is within the interval."""
    scores = rows.scores[MERIT][chosen]
    promise = forecast(CombinedScores(scores, scores, scores), rows.reliability, None)
    happened = int(rows.bought[chosen].sum())
    return promise, happened, promise.low <= happened <= promise.high


def covered(seen: list[Rows]) -> dict[str, str]:
    """How many forecasts hold the buyers: of merit's audience as seen, and of those in it whom nobody treated."""
    counts = {}
    for reading, among in (("as seen", lambda rows: True), ("untreated only", lambda rows: ~rows.treated)):
        held = [promised(rows, readings(rows)[MERIT, READINGS[0]][0] & among(rows))[2] for rows in seen]
        counts[reading] = f"{sum(held)} of {len(held)}"
    return counts


def main() -> None:
    parser = harness.parser(__doc__)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--share-days", type=int, default=14)
    parser.add_argument("--history-days", type=int, default=60, help="of purchases before the first campaign used")
    parser.add_argument("--window-days", type=int, default=14, help="of outcomes that the data must hold")
    parser.add_argument("--campaigns", nargs="*", type=int, default=[])
    parser.add_argument("--out", type=Path, default=Path("runs/campaigns"))
    parser.add_argument("--set", action="append", default=[], help="override a setting of the run")
    arguments = parser.parse_args()
    console.set_up_logging(quiet=True)
    with TemporaryDirectory() as temporary:
        if arguments.quick:
            arguments.campaigns, arguments.steps, arguments.out = [14], 10, Path(temporary)
            arguments.set = [*TOY, *arguments.set, f"cache={temporary}/cache"]
        report(arguments)


def report(asked: Namespace) -> None:
    events, items = shop(QUICK_HOUSEHOLDS if asked.quick else None)
    kept, left = usable(all_campaigns(), events, asked.history_days, asked.window_days)
    wanted = [each for each in kept if not asked.campaigns or each.number in asked.campaigns]
    seen = []
    for group in groups(wanted, asked.share_days):
        cut = group[0].start
        model = model_before(cut, events, items, asked.out / f"{cut:%Y-%m-%d}", asked.steps, asked.set)
        seen += [observe(each, model, events, items, cut) for each in group]
    if not seen:
        raise DataError(f"None of these campaigns can be used. {' '.join(left)}")
    found = pooled(seen, asked.seed)
    print(tables.markdown(campaign_table(seen)))
    print(tables.markdown(pooled_table(found)))
    print("\n".join(f"Left out, {line}." for line in left))
    coverage = covered(seen)
    print(f"Forecasts that hold the buyers of merit's audience: {coverage}.")
    figures = {f"{method}, {reading}": round(100 * value.value, 2) for (method, reading), (value, _) in found.items()}
    figures |= {
        f"{method}, {reading}, over history": [round(100 * end, 2) for end in (apart.low, apart.high)]
        for (method, reading), (_, apart) in found.items()
        if apart and method == MERIT
    }
    harness.finish("campaigns", {"campaigns": len(seen)} | figures | {"covered": coverage}, asked.seed)


if __name__ == "__main__":
    harness.run(main)
