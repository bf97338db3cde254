"""What a newcomer's export looks like: semicolons, dates by hand, own column names, tags with commas."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from merit.core.errors import DataError
from merit.data import check, sources, validate
from merit.data.sources.tables import TablesSource

LOG = """Client ref{0}SKU{0}When{0}What
u1{0}a{0}21.01.2024 20:20{0}buy
u1{0}a{0}2024-02-01{0}buy
u2{0}a{0}1.5.2024{0}buy
"""
ITEMS = 'Article,Product,Topics\na,Tent,"camping, hiking"\n'
NAMES = {"item_id": "Article", "title": "Product", "tags": "Topics"}
COLUMNS = {"user_id": "Client ref", "timestamp": "When", "event": "What"}


def source(place: Path, separator: str = ";", **more: object) -> TablesSource:
    (place / "log.csv").write_text(LOG.format(separator))
    (place / "items.csv").write_text(ITEMS)
    return TablesSource(interactions=place / "log.csv", items=place / "items.csv", **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_the_separator_is_that_of_the_header(separator: str, tmp_path: Path) -> None:
    asked = source(tmp_path, separator, columns=COLUMNS, item_columns=NAMES)
    assert check.examine(sources.open_source(asked)).rows.interactions == 3


def test_times_by_hand_are_read_as_they_are_said_to_be_written(tmp_path: Path) -> None:
    plain = sources.open_source(source(tmp_path, columns=COLUMNS, item_columns=NAMES))
    told = check.examine(plain)
    assert told.rows.bad_interactions == 2 and "source.time_formats" in told.bad[0].reason
    formats = ("%d.%m.%Y %H:%M", "%d.%m.%Y")
    mended = sources.open_source(source(tmp_path, columns=COLUMNS, item_columns=NAMES, time_formats=formats))
    times = mended.interactions.select(pl.col("timestamp").dt.strftime("%Y-%m-%d %H:%M")).collect()["timestamp"]
    assert times.to_list() == ["2024-01-21 20:20", "2024-02-01 00:00", "2024-05-01 00:00"]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_no_column_of_the_interactions_is_ever_held_whole(kind: str, tmp_path: Path) -> None:
    """polars says which parts of a plan do not stream. One of them for the names of events took a gigabyte."""
    rows = {"user_id": ["u1", "u2"], "item_id": ["a", "a"], "timestamp": ["2024-01-21", "2024-02-01"]}
    log, items = tmp_path / f"log.{kind}", tmp_path / "items.csv"
    getattr(pl.DataFrame(rows | {"event": ["Add to Cart", "buy"]}), f"write_{kind}")(log)
    items.write_text("item_id,title,tags\na,Tent,camping\n")
    good = validate.validate(sources.open_source(TablesSource(interactions=log, items=items)))
    assert good.interactions.collect()["event"].to_list() == ["cart", "purchase"]
    plan = good.interactions.show_graph(plan_stage="physical", engine="streaming", raw_output=True, show=False)
    assert plan and "scan" in plan
    held = [line for line in plan.splitlines() if "fillcolor" in line and "Legend" not in line]
    assert not held


def test_all_missing_columns_are_told_at_once_and_none_twice(tmp_path: Path) -> None:
    with pytest.raises(DataError) as refused:
        sources.open_source(source(tmp_path))
    told = str(refused.value)
    assert "for 'user_id' nor for 'timestamp'" in told and told.count("--set") == 2
    with pytest.raises(DataError, match=r"--set source\.columns\.timestamp=THEIRS") as refused:
        sources.open_source(source(tmp_path, columns={"user_id": "Client ref"}))
    assert "Nearest: Client ref" not in str(refused.value)


def test_tags_in_one_cell_are_noticed(tmp_path: Path) -> None:
    told = check.examine(sources.open_source(source(tmp_path, columns=COLUMNS, item_columns=NAMES)))
    assert any("source.tag_separator" in note for note in told.notes)
