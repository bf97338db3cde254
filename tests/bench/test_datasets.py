"""Every data set of the project's grid is read by its path, here from small tables of the same columns and events."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from benchmarks.phrases import written
from merit.bench.config import BenchConfig
from merit.bench.grid import bench
from merit.bench.withheld import targets_among, withhold
from merit.core import artifacts, config
from merit.core.errors import DataError
from merit.core.pipeline import run
from merit.core.ragged import column_lists
from merit.data import planted
from merit.data.corpus import read_examples, read_table
from tests.bench.small import settings

ROOT = Path(__file__).parents[2]
EVENTS = {
    "amazon_beauty": "review",
    "online_retail_ii": "purchase",
    "movietweetings_keywords": "rating",
    "ifdb_played": "played",
}
LEARNERS = 40


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of all data sets, each a planted shop with the names of its own."""
    place = tmp_path_factory.mktemp("data")
    shop = planted.shop(planted.PlantedConfig(users=100, events=30), seed=3)
    bought = shop.interactions.filter(event="purchase").drop("order_id")
    for name, event in EVENTS.items():
        (place / name).mkdir()
        bought.with_columns(event=pl.lit(event)).write_parquet(place / name / "interactions.parquet")
        items = shop.items.with_columns(brand=pl.format("brand {}", pl.col("vertical")), genres=pl.col("tags"))
        items.write_parquet(place / name / "items.parquet")
    written(place / "amazon_beauty", place / "amazon_beauty_phrases", least=5, most=0.2, alone=False)
    return place


def loaded(folder: Path, out: Path) -> BenchConfig:
    small = [f"data={folder}", f"out={out}", f"results={out}", f"cache={folder / 'cache'}", "labels.encoder=hashed"]
    small += ["groups=[{methods=['trivial','linear']}]", "variants={}", "evaluation.resamples=100"]
    small += [f"datasets.amazon_beauty_200.prepare.split.users={LEARNERS}", "backbone.vocabulary=1400"]
    return config.load(BenchConfig, ROOT / "configs/bench.toml", small)


NAMES = [name for name in config.load(BenchConfig, ROOT / "configs/bench.toml").datasets if name != "complete-journey"]


@pytest.mark.parametrize("name", NAMES)
def test_a_data_set_is_read_by_its_path(name: str, folder: Path, tmp_path: Path) -> None:
    outcome = bench(loaded(folder, tmp_path), [name])
    assert outcome.failures == {}
    assert {row[0] for row in outcome.results[0].figures} | set(outcome.results[0].seeds) == {"trivial", "linear"}
    summary = artifacts.load(tmp_path / name / "examples").manifest.summary
    if name.endswith("_200"):
        assert summary["train_users"] < LEARNERS < summary["users"]
    if name.endswith("_phrases"):
        assert outcome.results[0].labels > len(
            pl.read_parquet(folder / "amazon_beauty/items.parquet")["tags"].explode().unique()
        )


def test_withheld_labels_are_asked_for_alone_and_never_taught(folder: Path, tmp_path: Path) -> None:
    shop = run(loaded(folder, tmp_path).run_config("online_retail_ii"), until="corpus")
    corpus, labels = shop["corpus"], shop["labels"]
    made = withhold(corpus, labels, tmp_path / "withheld", 0.3, 7)
    asked = np.unique(read_examples(made, "test").gold.values)
    assert 0 < len(asked) <= made.manifest.summary["withheld"] < 0.5 * labels.manifest.summary["live"]
    for name in ("train", "validation", "purchases"):
        taught = read_table(made, name, "gold", "later")
        assert not set(asked) & {*column_lists(taught["gold"]).values, *column_lists(taught["later"]).values}, name
        assert taught["gold"].list.len().min() > 0  # type: ignore[operator]
    before, after = (read_table(one, "test", "user_id", "when", "gold", "prompt") for one in (corpus, made))
    rows = before.join(after, on=["user_id", "when"], suffix="_after")
    assert 0 < len(after) == len(rows) < len(before)
    for gold, left in rows.select("gold", "gold_after").iter_rows():
        assert left == [label for label in gold if label in asked]
    assert rows["prompt"].equals(rows["prompt_after"].alias("prompt"))
    assert withhold(corpus, labels, tmp_path / "withheld", 0.3, 7).manifest.hash == made.manifest.hash
    with pytest.raises(DataError, match="No example"):
        withhold(corpus, labels, tmp_path / "nothing", 1e-9, 7)


def test_only_wanted_targets_stay() -> None:
    table = pl.DataFrame({"gold": [[1, 2], [2], [0]], "later": [[2], [0, 1], []], "when": [3, 4, 5]})
    kept = targets_among(table, np.array([True, True, False]))
    assert kept.rows() == [([1], [], 3), ([0], [], 5)]


@pytest.mark.slow
def test_the_papers_baselines_answer_several_purchases_of_a_user(tmp_path: Path) -> None:
    """With next to no training: the page of several purchases has them too."""
    methods = ["linear", "DEXML-DS", "DEXML-STk", "GROOV", "XLGen-MCG", "XLGen-BCL", "PatchRec"]
    several = [
        "datasets.planted.prepare.per_test_user=3",
        "reference=linear",
        "ranking_reference=linear",
        "seconds=0.1",
    ]
    outcome = bench(settings(tmp_path, [{"methods": methods}], *several), ["planted"])
    assert outcome.failures == {}
    assert list(outcome.results[0].seeds) == methods
    corpus = artifacts.load(tmp_path / "bench/planted/corpus")
    assert len(read_examples(corpus, "test")) > 1.5 * outcome.results[0].users
