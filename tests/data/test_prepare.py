"""prepare on real files: what comes out, and above all what does not."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from merit.core import artifacts
from merit.core.errors import DataError, MissingArtifact
from merit.core.ragged import Ragged
from merit.data.planted import PlantedConfig, shop, write
from merit.data.prepare import PrepareConfig, PrepareRun, prepare, shards
from merit.data.prompt import Controls, PromptConfig, tokenise
from merit.data.sources import TablesSource
from tests.data.one_prompt import prompt_of

START = datetime(2024, 1, 1, tzinfo=UTC)
PURCHASE = START + timedelta(days=400)
ZONES = ["+00:00", "+05:30", "-08:00", "+14:00", "Z"]


def source(folder: Path, **more: Any) -> TablesSource:
    tables = [next(folder.glob(f"{name}.*")) for name in ("interactions", "items")]
    return TablesSource(kind="tables", interactions=tables[0], items=tables[1], **more)


def planted(folder: Path, users: int = 60) -> TablesSource:
    write(shop(PlantedConfig(users=users), seed=7), folder)
    return source(folder)


def run(out: Path, tables: TablesSource, seed: int = 7, **settings: Any) -> artifacts.Artifact:
    return prepare(out, PrepareRun(source=tables, prepare=PrepareConfig(**settings)), seed)


def test_users_in_users_out(tmp_path: Path) -> None:
    tables = planted(tmp_path / "shop")
    made = run(tmp_path / "examples", tables)
    interactions = pl.read_parquet(tables.interactions)
    users = pl.concat([shard.users for shard in shards(made)])
    assert sorted(users["user_id"]) == sorted(interactions["user_id"].unique())
    assert sum(len(shard.events) for shard in shards(made)) == len(interactions) == made.manifest.summary["events"]


def test_splits_share_no_user(tmp_path: Path) -> None:
    made = run(tmp_path / "examples", planted(tmp_path / "shop"))
    for shard in shards(made):
        assert (shard.examples.group_by("user").agg(pl.col("split").n_unique())["split"] == 1).all()


def test_row_order_and_file_format_do_not_matter(tmp_path: Path) -> None:
    tables = planted(tmp_path / "a")
    one = run(tmp_path / "one", tables)
    (tmp_path / "b").mkdir()
    shuffled = pl.read_parquet(tables.interactions).sample(fraction=1.0, shuffle=True, seed=3)
    shuffled.write_ndjson(tmp_path / "b" / "interactions.jsonl")
    pl.read_parquet(tables.items).reverse().write_ndjson(tmp_path / "b" / "items.jsonl")
    two = run(tmp_path / "two", source(tmp_path / "b"))
    same = [name for name in one.manifest.files if name != "quarantine.parquet"]
    assert {name: one.manifest.files[name] for name in same} == {name: two.manifest.files[name] for name in same}


def test_the_number_of_shards_changes_no_example(tmp_path: Path) -> None:
    tables = planted(tmp_path / "shop")
    seen = []
    for count in (1, 3, 50):
        made = run(tmp_path / f"by-{count}", tables, shards=count)
        parts = []
        for shard in shards(made):
            histories = [
                shard.events["item"][start:stop].to_list()
                for start, stop in shard.examples.select("history_start", "history_stop").iter_rows()
            ]
            parts.append(
                shard.examples.with_columns(history=pl.Series(histories, dtype=pl.List(pl.UInt32)))
                .join(shard.users.select("user", "user_id"), on="user")
                .select("user_id", "timestamp", "split", "target_items", "history")
            )
        seen.append(pl.concat(parts).sort("user_id", "timestamp", "target_items"))
    assert seen[0].equals(seen[1]) and seen[0].equals(seen[2])


def test_counts_are_of_training_users_only(tmp_path: Path) -> None:
    made = run(tmp_path / "examples", planted(tmp_path / "shop"), shards=2)
    expected: dict[int, int] = {}
    for shard in shards(made):
        training = set(shard.users.filter(pl.col("split") == "train")["user"])
        for user, item in shard.events.select("user", "item").iter_rows():
            expected[item] = expected.get(item, 0) + (user in training)
    counted = dict(pl.read_parquet(made.file("item_counts.parquet")).iter_rows())
    assert {item: count for item, count in counted.items() if count} == {i: c for i, c in expected.items() if c}


def test_too_little_data_says_what_is_missing(tmp_path: Path) -> None:
    frame = shop(PlantedConfig(users=20), seed=7)
    early = frame.interactions.filter(pl.col("timestamp") < pl.col("timestamp").min() + pl.duration(days=3))
    (tmp_path / "shop").mkdir()
    early.write_parquet(tmp_path / "shop" / "interactions.parquet")
    frame.items.write_parquet(tmp_path / "shop" / "items.parquet")
    with pytest.raises(DataError, match="between 365 and 7 days before"):
        run(tmp_path / "examples", source(tmp_path / "shop"))
    with pytest.raises(MissingArtifact):
        artifacts.load(tmp_path / "examples")
    assert [path.name for path in tmp_path.iterdir()] == ["shop"]


def in_zone(at: datetime, zone: str) -> str:
    """The same instant, written down in another zone."""
    shift = timedelta() if zone == "Z" else datetime.strptime(zone, "%z").utcoffset()
    assert shift is not None
    return (at.replace(tzinfo=None) + shift).isoformat(timespec="milliseconds") + zone


offsets = st.one_of(
    st.integers(-7 * 86_400_000, 40 * 86_400_000),  # anywhere from the boundary on
    st.sampled_from([-7 * 86_400_000, -7 * 86_400_000 + 1, -1, 0, 1]),  # on it, and next to it
)


@given(st.lists(st.tuples(offsets, st.sampled_from(ZONES)), min_size=1, max_size=6), st.sampled_from(ZONES))
@settings(max_examples=25, deadline=None)
def test_a_canary_at_or_after_the_boundary_never_reaches_a_prompt(
    tmp_path_factory: pytest.TempPathFactory, canaries: list[tuple[int, str]], zone: str
) -> None:
    """t - 7 d itself is already too late; one millisecond before it is not. Every event is in a zone of its own."""
    folder = tmp_path_factory.mktemp("canary")
    events = []
    for user in range(12):
        past = [(PURCHASE - timedelta(days=d), "old") for d in (8, 30, 300)]
        past.append((PURCHASE - timedelta(days=7, milliseconds=1), "last moment"))
        events += [(f"u{user}", item, in_zone(at, zone), "view") for at, item in past]
        events.append((f"u{user}", "bought", in_zone(PURCHASE, zone), "purchase"))
        late = [(PURCHASE + timedelta(milliseconds=off), z) for off, z in canaries]
        events += [(f"u{user}", "canary", in_zone(at, z), "view") for at, z in late]
    frame = pl.DataFrame(events, schema=["user_id", "item_id", "timestamp", "event"], orient="row")
    frame.sample(fraction=1.0, shuffle=True, seed=1).write_csv(folder / "interactions.csv")
    items = [{"item_id": name, "title": name, "tags": [name]} for name in ("old", "last moment", "bought", "canary")]
    (folder / "items.jsonl").write_text("\n".join(map(json.dumps, items)))

    made = run(folder / "examples", source(folder))
    titles = pl.read_parquet(made.file("items.parquet"))["title"].to_list()
    names = {name: 10 + place for place, name in enumerate(titles)}
    marks = Controls(0, 1, 2, 3)
    texts = tokenise(titles, titles, lambda all_: [[names[text]] for text in all_], marks, PromptConfig())
    for shard in shards(made):
        for row in shard.examples.iter_rows(named=True):
            history = shard.events["item"][row["history_start"] : row["history_stop"]].to_numpy()
            own = Ragged.of([[place] for place in range(len(titles))])
            prompt = prompt_of(history, own, texts, PromptConfig()).tokens
            assert names["canary"] not in prompt
            assert names["last moment"] in prompt
            assert np.count_nonzero(prompt == names["old"]) == 4  # three times recent, once in the profile
