"""Examples in labels, against counting by hand."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import polars as pl
import pytest

from merit.core.ragged import Ragged
from merit.data import labelled
from merit.data.labelled import label_examples
from merit.data.planted import PlantedConfig, shop, write
from merit.data.prepare import PrepareConfig, PrepareRun, prepare, shards
from merit.data.sources import TablesSource


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory):  # type: ignore[no-untyped-def]
    folder: Path = tmp_path_factory.mktemp("shop")
    write(shop(PlantedConfig(users=60), seed=7), folder)
    source = TablesSource(kind="tables", interactions=folder / "interactions.parquet", items=folder / "items.parquet")
    return prepare(folder / "examples", PrepareRun(source=source, prepare=PrepareConfig(shards=3, target="order")), 7)


@pytest.mark.parametrize("block", [labelled.BLOCK, 40])
def test_equals_counting_by_hand(made, block: int, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(labelled, "BLOCK", block)
    items = pl.read_parquet(made.file("items.parquet"))
    names = sorted({tag for tags in items["tags"] for tag in tags})
    labels = [[names.index(tag) for tag in tags] for tags in items["tags"]]
    ragged = Ragged.of(labels)
    total = 0
    for part in shards(made):
        found = label_examples(part.users, part.events, part.examples, "train", ragged)
        row = 0
        events = part.events.to_dicts()
        ids = dict(part.users.select("user", "user_id").iter_rows())
        for example in part.examples.filter(pl.col("split") == "train").to_dicts():
            seen = events[example["history_start"] : example["history_stop"]]
            after = [each for each in events[example["history_stop"] :] if each["user"] == example["user"]]
            counts = Counter(label for each in seen for label in labels[each["item"]])
            buys = Counter(label for each in seen if each["event"] == "purchase" for label in labels[each["item"]])
            gold = list(dict.fromkeys(label for item in example["target_items"] for label in labels[item]))
            later = {label for each in after if each["event"] == "purchase" for label in labels[each["item"]]}
            start, stop = found.history.offsets[row : row + 2]
            own = found.history[row].tolist()
            assert found.gold[row].tolist() == gold
            assert found.target_items[row].tolist() == [item for item in example["target_items"] if labels[item]]
            assert dict(zip(own, found.counts[start:stop].tolist(), strict=True)) == counts
            assert dict(zip(own, found.purchases[start:stop].tolist(), strict=True)) == {n: buys[n] for n in counts}
            assert set(found.later[row].tolist()) == later >= set(gold)
            assert found.items[row].tolist() == [each["item"] for each in seen]
            assert found.user_ids[row] == ids[example["user"]]
            row += 1
        assert row == len(found)
        total += row
    assert total > 50
