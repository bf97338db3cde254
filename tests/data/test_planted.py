"""The planted shop: what is planted is there, and nothing else is."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from pydantic import ValidationError

from merit.data.planted import START, PlantedConfig, PlantedShop, ceiling, shelf_table, shop, write

CONFIG = PlantedConfig()


@pytest.fixture(scope="module")
def planted() -> PlantedShop:
    return shop(CONFIG, seed=7)


def _late_purchases(planted: PlantedShop, days: int) -> pl.DataFrame:
    """Purchases after the drift with the item's tags as gold: what the truth speaks about."""
    half = pl.lit(START) + pl.duration(days=days // 2)
    bought = planted.interactions.filter(pl.col("event") == "purchase", pl.col("timestamp") >= half)
    return bought.join(planted.items.select("item_id", gold="tags"), on="item_id")


def _recall(gold: pl.Expr, guess: pl.Expr) -> pl.Expr:
    return gold.list.set_intersection(guess).list.len() / gold.list.len()


def _user_recalls(planted: PlantedShop, days: int, k: int) -> pl.DataFrame:
    """Recall at k of the oracle and of popularity, a mean per user."""
    early = planted.interactions.join(planted.items, on="item_id").filter(pl.col("event") == "purchase")
    popular = early["tags"].explode().value_counts(sort=True)["tags"].head(k).to_list()
    table = _late_purchases(planted, days).join(planted.truth, on="user_id")
    oracle = _recall(pl.col("gold"), pl.col("labels").list.head(k)).alias("oracle")
    trivial = _recall(pl.col("gold"), pl.lit(pl.Series([popular])).first()).alias("popular")
    return table.select("user_id", oracle, trivial).group_by("user_id").mean()


def test_the_same_seed_gives_the_same_shop_and_another_seed_another(planted: PlantedShop) -> None:
    again, other = shop(CONFIG, seed=7), shop(CONFIG, seed=8)
    for name in ("interactions", "items", "truth", "regions"):
        assert getattr(again, name).equals(getattr(planted, name))
    assert not other.interactions.equals(planted.interactions)
    assert not other.truth.equals(planted.truth)


def test_more_users_do_not_change_the_others(planted: PlantedShop) -> None:
    more = shop(PlantedConfig(users=450), seed=7)
    kept = pl.col("user_id").is_in(planted.truth["user_id"].to_list())
    assert more.interactions.filter(kept).equals(planted.interactions)
    assert more.truth.filter(kept).equals(planted.truth)


def test_tables_fulfil_the_input_contract(planted: PlantedShop) -> None:
    schema = planted.interactions.schema
    assert schema["timestamp"] == pl.Datetime("ms", "UTC")
    assert {schema[name] for name in ("user_id", "item_id", "event", "order_id")} == {pl.String}
    assert planted.items.schema["tags"] == pl.List(pl.String)
    assert set(planted.interactions["event"].unique()) == {"view", "click", "cart", "purchase"}
    assert planted.interactions.select("user_id", "timestamp").equals(
        planted.interactions.select("user_id", "timestamp").sort("user_id", "timestamp")
    )
    assert planted.interactions["user_id"].n_unique() == CONFIG.users
    assert len(planted.interactions) / CONFIG.users == pytest.approx(CONFIG.events, rel=0.15)
    bought = pl.col("event") == "purchase"
    assert planted.interactions.select((bought == pl.col("order_id").is_not_null()).all()).item()
    assert (
        planted.items["tags"]
        .list.eval(pl.element().n_unique())
        .explode()
        .equals(planted.items["tags"].list.len().cast(pl.UInt32))
    )


def test_all_words_are_distinct_and_cover_the_verticals() -> None:
    words = shelf_table(24, 8)
    assert len(words) == words["label"].n_unique() == 192
    assert words["region"].n_unique() == 24
    assert shelf_table(8, 1)["vertical"].n_unique() == 8


def test_truth_is_a_distribution_and_likeliest_first(planted: PlantedShop) -> None:
    mass = planted.truth["probabilities"].list.sum().to_numpy()
    np.testing.assert_allclose(mass, 1.0, atol=1e-9)
    probabilities = np.stack(planted.truth["probabilities"].to_list())
    assert (np.diff(probabilities, axis=1) <= 0).all() and (probabilities > 0).all()
    assert planted.truth["labels"].list.n_unique().unique().to_list() == [72]


def test_interests_of_a_user_are_unrelated(planted: PlantedShop) -> None:
    vertical = dict(planted.regions.select("region", "vertical").iter_rows())
    for regions in planted.truth["regions"].to_list():
        assert 2 <= len(regions) <= 3
        assert len({vertical[name] for name in regions}) == len(regions)


def test_popularity_is_skewed_as_asked() -> None:
    def top_tenth(skew: float) -> float:
        planted = shop(PlantedConfig(popularity_skew=skew), seed=3)
        labels = planted.interactions.join(planted.items, on="item_id")["tags"].explode()
        counts = labels.value_counts(sort=True)["count"]
        return float(counts.head(7).sum() / counts.sum())

    flat, default, steep = (top_tenth(skew) for skew in (0.0, 0.8, 1.5))
    assert flat < 0.2
    assert 0.23 < default < 0.4 < steep


def _same_region_share(planted: PlantedShop) -> float:
    """Among pairs of items of one visit (by order), the share from one region."""
    region = dict(planted.regions.select("label", "region").iter_rows())
    home = {item: region[tags[0]] for item, tags in planted.items.select("item_id", "tags").iter_rows()}
    orders = planted.interactions.drop_nulls("order_id").group_by("order_id").agg("item_id")["item_id"].to_list()
    pairs = [home[a] == home[b] for order in orders for a, b in combinations(order, 2)]
    return float(np.mean(pairs))


def test_labels_of_a_region_cooccur_in_baskets_as_strongly_as_asked(planted: PlantedShop) -> None:
    loose = shop(PlantedConfig(cascade=0.0), seed=7)
    assert _same_region_share(planted) > _same_region_share(loose) + 0.2


def test_labels_of_a_region_cooccur_in_tags(planted: PlantedShop) -> None:
    region = dict(planted.regions.select("label", "region").iter_rows())
    pairs = [(a, b) for tags in planted.items["tags"].to_list() for a, b in combinations(tags, 2)]
    assert len(pairs) > len(planted.items) / 2
    assert all(region[a] == region[b] for a, b in pairs)
    assert shop(PlantedConfig(cascade=0.0), seed=7).items["tags"].list.len().max() == 1


def test_cascade_leaves_the_choice_of_items_alone() -> None:
    """Popular items and interests stay; only what is bought together changes."""
    tight, loose = (shop(PlantedConfig(users=3000, cascade=value), seed=7) for value in (0.9, 0.0))
    counts = [
        planted.items.select("item_id").join(planted.interactions.group_by("item_id").len(), on="item_id", how="left")
        for planted in (tight, loose)
    ]
    a, b = (np.sqrt(count["len"].fill_null(0).to_numpy()) for count in counts)
    assert np.corrcoef(a, b)[0, 1] > 0.98
    assert tight.truth["regions"].equals(loose.truth["regions"])


def test_drift_moves_truth_and_behaviour() -> None:
    config = PlantedConfig(users=600, drift=0.5, noise=0.0)
    planted = shop(config, seed=5)
    moved = planted.truth.filter("drifted")
    assert len(moved) == pytest.approx(300, abs=60)
    assert (moved["regions"].list.set_difference(moved["regions_before"]).list.len() == 1).all()
    still = planted.truth.filter(~pl.col("drifted"))
    assert still["regions"].equals(still["regions_before"].rename("regions"))

    region = planted.items.join(planted.regions, left_on=pl.col("tags").list.first(), right_on="label").select(
        "item_id", "region"
    )
    late = _late_purchases(planted, config.days).join(region, on="item_id").join(moved, on="user_id")
    assert late["region"].is_in(late["regions"]).all()
    assert not late["region"].is_in(late["regions_before"]).all()


@pytest.mark.parametrize("k", [2, 10])
def test_the_oracle_reaches_its_ceiling(k: int) -> None:
    """The ceiling is a promise about purchases to come: it must be neither missed nor passed."""
    config = PlantedConfig(users=3000)
    planted = shop(config, seed=11)
    promised = pl.col("probabilities").list.head(k).list.sum()
    known = planted.truth.join(_user_recalls(planted, config.days, k), on="user_id")
    gap = known.select(pl.col("oracle") - promised).to_series().to_numpy()
    error = gap.std() / np.sqrt(len(gap))
    assert abs(gap.mean()) < 4 * error < 0.02
    assert ceiling(planted, 72) == pytest.approx(1.0)


@pytest.mark.parametrize("parts", ["repeat", "noise", "drift", "cascade", "drift repeat"])
def test_true_shares_are_the_shares_of_what_is_bought(parts: str) -> None:
    """Σ p·o − Σ p² is zero on average if p is what o is drawn from, whichever part of the plant is strong.

    It is negative for a p that is sure of the wrong labels; drifted users show whether the truth is the later one."""
    strong: dict[str, Any] = {part: 0.9 * (part in parts) for part in ("repeat", "noise", "drift", "cascade")}
    config = PlantedConfig(users=3000, taste=3.0, **strong)
    planted = shop(config, seed=11)
    people = planted.truth.filter("drifted") if "drift" in parts else planted.truth
    wide = people.explode("labels", "probabilities").rename({"labels": "label", "probabilities": "p"})
    bought = _late_purchases(planted, config.days).with_columns(o=1 / pl.col("gold").list.len()).explode("gold")
    totals = bought.group_by("user_id", label="gold").agg(pl.col("o").sum())
    observed = totals.with_columns(pl.col("o") / pl.col("o").sum().over("user_id"))
    joined = wide.join(observed, on=["user_id", "label"], how="left").filter(pl.col("o").count().over("user_id") > 0)
    each = joined.group_by("user_id").agg(gap=(pl.col("p") * (pl.col("o").fill_null(0.0) - pl.col("p"))).sum())
    gap = each["gap"].to_numpy()
    assert abs(gap.mean()) < 4 * gap.std() / np.sqrt(len(gap))


def test_the_truth_knows_the_favourites() -> None:
    """Two items of a region take most of it: whoever knows them can expect more."""
    often, never = (ceiling(shop(PlantedConfig(repeat=share), seed=7), 3) for share in (0.9, 0.0))
    assert often > never + 0.05


def test_the_oracle_beats_popularity_by_a_wide_margin(planted: PlantedShop) -> None:
    recalls = _user_recalls(planted, CONFIG.days, 10)
    gain = (recalls["oracle"] - recalls["popular"]).to_numpy()
    error = gain.std() / np.sqrt(len(gain))
    assert gain.mean() - 4 * error > 0.25


def _counts(planted: PlantedShop, table: pl.DataFrame, row: str) -> tuple[list[str], np.ndarray]:
    """How often each label occurs in each row (user, order)."""
    names = planted.regions["label"].to_list()
    wide = (
        table.join(planted.items, on="item_id")
        .explode("tags")
        .pivot("tags", index=row, values="event", aggregate_function="len")
    )
    return wide[row].to_list(), wide.select(pl.col(name) for name in names).fill_null(0).to_numpy().astype(float)


def _follow(cooccurrence: np.ndarray, first: int, k: int) -> list[int]:
    """Start with one label and go on to what occurs most with those said so far: a cascade."""
    said = [first]
    while len(said) < k:
        score = cooccurrence[said].mean(axis=0)
        score[said] = -1
        said.append(int(score.argmax()))
    return said


def test_following_cooccurrence_stays_in_one_region_and_misses_the_others(planted: PlantedShop) -> None:
    """The failure this shop is for: the same histories, read by frequency, cover more regions and more gold."""
    half = pl.lit(START) + pl.duration(days=CONFIG.days // 2)
    users, history = _counts(planted, planted.interactions.filter(pl.col("timestamp") < half), "user_id")
    _, orders = _counts(planted, planted.interactions.drop_nulls("order_id"), "order_id")
    together = (orders > 0).T.astype(float) @ (orders > 0)
    together /= together.sum(axis=1, keepdims=True)
    region, k = np.repeat(np.arange(CONFIG.regions), CONFIG.labels_per_region), 6
    chains = {user: _follow(together, int(row.argmax()), k) for user, row in zip(users, history, strict=True)}
    counted = {user: np.argsort(-row, kind="stable")[:k] for user, row in zip(users, history, strict=True)}

    def covered(guess: dict[str, list[int]] | dict[str, np.ndarray]) -> float:
        return float(np.mean([len(set(region[each])) for each in guess.values()]))

    def recall(guess: dict[str, list[int]] | dict[str, np.ndarray]) -> np.ndarray:
        names = planted.regions["label"].to_list()
        gold = [
            (u, g) for u, g in _late_purchases(planted, CONFIG.days).select("user_id", "gold").iter_rows() if u in guess
        ]
        return np.array(
            [np.mean([tag in {names[place] for place in guess[user]} for tag in tags]) for user, tags in gold]
        )

    assert covered(chains) < 1.1 and covered(counted) > 1.7
    gain = recall(counted) - recall(chains)
    assert gain.mean() - 4 * gain.std() / np.sqrt(len(gain)) > 0


def test_written_tables_read_back(planted: PlantedShop, tmp_path: Path) -> None:
    folder = tmp_path / "shop"
    write(planted, folder)
    for name in ("interactions", "items", "truth"):
        assert pl.read_parquet(folder / f"{name}.parquet").equals(getattr(planted, name))


@pytest.mark.parametrize("wrong", [{"interests": (3, 2)}, {"interests": (2, 8)}, {"items": 71}, {"regions": 25}])
def test_impossible_shops_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        PlantedConfig(**wrong)  # type: ignore[arg-type]
