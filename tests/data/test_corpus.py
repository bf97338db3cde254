"""The corpus, against counting event by event and against writing texts again."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from merit.core import artifacts
from merit.core.artifacts import Artifact
from merit.core.ragged import Ragged, column_lists
from merit.core.types import SPLITS
from merit.data import corpus
from merit.data.corpus import LABEL_COUNTS, NOW, PURCHASES, TRENDS, CorpusConfig, CorpusRun, build_corpus, read_table
from merit.data.examples import DAY
from merit.data.prepare import shards
from merit.data.texts import TOKENS, EncodedShop, encode_shop, read_shop, save, write_prompts
from merit.data.trends import WEEK, trends_of
from merit.evaluation.evaluate import truth_of_test_users
from merit.labels import space
from merit.labels.build import load_vectors
from merit.propensity.features import read_purchases, stateless


@pytest.fixture(scope="module")
def stages(made_text: Path) -> dict[str, Artifact]:
    return {name: artifacts.load(made_text / name) for name in ("examples", "labels", "corpus", "states")}


@pytest.fixture(scope="module")
def shop(stages: dict[str, Artifact]) -> EncodedShop:
    return read_shop(stages["corpus"])


def again(stages: dict[str, Artifact], out: Path, **settings: Any) -> Artifact:
    """The corpus once more, with other settings."""
    config = CorpusRun.model_validate(stages["corpus"].manifest.config)
    varied = config.model_copy(update={"corpus": CorpusConfig(**settings)})
    return build_corpus(stages["examples"], stages["labels"], out, varied, seed=5)


def test_the_shop_is_read_as_it_was_encoded(stages: dict[str, Artifact], shop: EncodedShop) -> None:
    items = pl.read_parquet(stages["examples"].file("items.parquet"))
    config = CorpusRun.model_validate(stages["corpus"].manifest.config)
    label_space = space.load(stages["labels"].path)
    encoded = encode_shop(items, stages["labels"], label_space, shop.vocabulary, config.text)
    for ours, theirs in (
        (shop.texts.titles, encoded.texts.titles),
        (shop.texts.labels, encoded.texts.labels),
        (shop.item_labels, encoded.item_labels),
    ):
        assert np.array_equal(ours.offsets, theirs.offsets) and np.array_equal(ours.values, theirs.values)
    assert np.array_equal(shop.paths.tokens, encoded.paths.tokens) and shop.paths.form == encoded.paths.form
    for split in (*SPLITS, NOW):
        table = read_table(stages["corpus"], split)
        written = write_prompts(column_lists(table["items"]), encoded, config.text)
        assert np.array_equal(column_lists(table["prompt"]).values, written.values)


@pytest.mark.parametrize("block", [corpus.LABELS, 7])
def test_trends_and_label_counts_are_those_of_the_labels_of_every_event(
    stages: dict[str, Artifact], shop: EncodedShop, block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpus, "LABELS", block)
    events = [
        (int(time), int(item), shard.users["split"][int(user)] == SPLITS[0])
        for shard in shards(stages["examples"])
        for time, item, user in zip(
            shard.events["timestamp"].to_physical(), shard.events["item"], shard.events["user"], strict=True
        )
    ]
    every = [
        ((shard.number, user), item)
        for shard in shards(stages["examples"])
        for user, item in shard.events.select("user", "item").iter_rows()
    ]
    first = min(time for time, _, _ in events)
    counts = np.zeros((1 + (max(time for time, _, _ in events) - first) // WEEK, len(shop.paths.offsets) - 1))
    for time, item, training in events:
        if training:
            np.add.at(counts[(time - first) // WEEK], shop.item_labels[item], 1)
    made = again(stages, tmp_path / "corpus")
    assert made.manifest.summary["first"] == first
    labels = [(user, label) for user, item in every for label in shop.item_labels[item].tolist()]
    totals = pl.read_parquet(made.file(LABEL_COUNTS))
    for name, slow in (
        ("events", Counter(label for _, label in labels)),
        ("users", Counter(label for _, label in set(labels))),
    ):
        assert totals[name].to_list() == [slow[label] for label in range(len(totals))]
    assert counts.sum() and np.array_equal(np.load(made.file(TRENDS)), trends_of(counts, counts.sum(axis=1)))


def _slow(examples: Artifact, item_labels: Ragged) -> Counter[Any]:
    """(user, gold, history with counts) of every purchase of a training user, once for each side."""
    found: Counter[Any] = Counter()
    for shard in shards(examples):
        rows = shard.events.with_columns(pl.col("timestamp").to_physical()).to_dicts()
        for user, name, split in shard.users.select("user", "user_id", "split").iter_rows():
            own = [row for row in rows if row["user"] == user]
            for bought in own if split == "train" else ():
                gold = tuple(sorted(item_labels[bought["item"]].tolist()))
                if bought["event"] != "purchase" or not gold:
                    continue
                for way in (-1, 1):
                    apart = [(way * (row["timestamp"] - bought["timestamp"]), row["item"]) for row in own]
                    seen = [item for far, item in apart if 7 * DAY < far <= 365 * DAY]
                    if len(seen) >= 3:
                        had = Counter(label for item in seen for label in item_labels[item].tolist())
                        found[name, gold, tuple(sorted(had.items()))] += 1
    return found


def test_the_factor_model_learns_from_both_sides_of_every_purchase_of_a_small_shop(
    stages: dict[str, Artifact], shop: EncodedShop, tmp_path: Path
) -> None:
    made = again(stages, tmp_path / "corpus")
    table = read_table(made, PURCHASES)
    fast = Counter(
        (user, tuple(sorted(gold)), tuple(sorted(zip(history, counts, strict=True))))
        for user, gold, history, counts in table.select("user_id", "gold", "history", "counts").iter_rows()
    )
    assert fast == _slow(stages["examples"], shop.item_labels)
    gold, known = read_purchases(made)
    assert len(gold) == len(known) == len(table) and known.words and known.trends
    assert len(known.gather(np.arange(3)).states) == 3


def test_a_large_shop_gives_as_many_of_each_user_as_it_is_set(stages: dict[str, Artifact], tmp_path: Path) -> None:
    few = read_table(again(stages, tmp_path / "few", purchases_per_user=2, min_purchases=0), PURCHASES)
    most = Counter(few["user_id"])
    assert set(most.values()) <= {1, 2, 3, 4} and max(most.values()) == 4  # two, from either side
    users = int(stages["examples"].manifest.summary["train_users"])
    more = read_table(again(stages, tmp_path / "more", purchases_per_user=2, min_purchases=5 * users), PURCHASES)
    assert max(Counter(more["user_id"]).values()) == 10


def test_without_purchases_the_factor_model_learns_from_the_examples(
    stages: dict[str, Artifact], tmp_path: Path
) -> None:
    without = again(stages, tmp_path / "corpus", purchases_per_user=0)
    assert f"{PURCHASES}.parquet" not in without.manifest.files
    gold, features = read_purchases(without)
    table, kept = stateless(stages["corpus"], "train")
    assert gold.values.tolist() == table["gold"].explode().to_list()
    assert features.history.values.tolist() == kept.history.values.tolist()


def test_a_shop_in_tokens_has_the_same_bytes_every_time(stages: dict[str, Artifact], tmp_path: Path) -> None:
    """Keys of safetensors' metadata come in any order, so that there must be one only."""
    shop = read_shop(stages["corpus"])
    for _ in range(12):
        save(shop, tmp_path)
        assert (tmp_path / TOKENS).read_bytes() == stages["corpus"].file(TOKENS).read_bytes()


def test_verticals_of_a_purchase_are_those_of_its_products(stages: dict[str, Artifact]) -> None:
    label_space = space.load(stages["labels"].path)
    truth = truth_of_test_users(stages["corpus"], label_space, load_vectors(stages["labels"]))
    items = pl.read_parquet(stages["examples"].file("items.parquet"))["vertical"]
    row = 0
    for part in shards(stages["examples"]):
        for targets in part.examples.filter(pl.col("split") == "test")["target_items"]:
            names = [truth.verticals[number] for number in truth.bought[row].tolist()]
            assert names == sorted({items[item] for item in targets})
            row += 1
    assert row == len(truth)
    assert truth.bought.lengths().tolist() == [1] * len(truth)  # one product each
    assert len(np.unique(truth.vertical[truth.gold[0]])) >= 1 and set(truth.verticals) >= set(items)
