"""What the product learns from, against counting event by event."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from merit.core import artifacts
from merit.core.artifacts import Artifact
from merit.core.ragged import Ragged
from merit.data.examples import DAY
from merit.data.prepare import shards
from merit.data.texts import EncodedShop
from merit.generator.model import load_shop
from merit.labels import space
from merit.propensity.states import PURCHASES, StatesConfig, _purchases, read_purchases, read_states


@pytest.fixture(scope="module")
def shop(made: Path) -> EncodedShop:
    return load_shop(*(artifacts.load(made / name) for name in ("stage-2", "examples", "labels")))[0]


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


def test_the_product_learns_from_both_sides_of_every_purchase_of_a_small_shop(made: Path, shop: EncodedShop) -> None:
    table = pl.read_parquet(made / f"states/{PURCHASES}.parquet")
    fast = Counter(
        (user, tuple(sorted(gold)), tuple(sorted(zip(history, counts, strict=True))))
        for user, gold, history, counts in table.select("user_id", "gold", "history", "counts").iter_rows()
    )
    assert fast == _slow(artifacts.load(made / "examples"), shop.item_labels)
    gold, known = read_purchases(artifacts.load(made / "states"))
    assert len(gold) == len(known) == len(table) and known.words and known.trends
    assert len(known.take(np.arange(3)).counts) == 3


def test_a_large_shop_gives_as_many_of_each_user_as_it_is_told(made: Path, shop: EncodedShop) -> None:
    examples = artifacts.load(made / "examples")
    found = _purchases(examples, shop, StatesConfig(purchases=2, enough=0), seed=5)[PURCHASES]
    most = Counter(found.user_ids)
    assert set(most.values()) <= {1, 2, 3, 4} and max(most.values()) == 4  # two, from either side
    users = len(set(pl.read_parquet(made / "states/train.parquet")["user_id"]))
    more = _purchases(examples, shop, StatesConfig(purchases=2, enough=5 * users), seed=5)[PURCHASES]
    assert max(Counter(more.user_ids).values()) == 10


def test_without_purchases_it_learns_from_the_examples(made: Path, shop: EncodedShop, tmp_path: Path) -> None:
    examples = artifacts.load(made / "examples")
    assert _purchases(examples, shop, StatesConfig(purchases=0), seed=5) == {}
    states = artifacts.load(made / "states")
    with artifacts.writing(tmp_path / "states", "states", config=StatesConfig(), seed=1, parents={}) as draft:
        for name in states.manifest.files:
            if name != f"{PURCHASES}.parquet":
                (draft.path / name).write_bytes(states.file(name).read_bytes())
    gold, known = read_purchases(artifacts.load(tmp_path / "states"))
    table, kept = read_states(states, "train")
    assert gold.values.tolist() == table["gold"].explode().to_list()
    assert known.history.values.tolist() == kept.history.values.tolist()
    assert len(space.load(made / "labels")) > gold.values.max()
