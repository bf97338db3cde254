"""Tables as broken exports leave them: every row goes on, is set aside with a reason, or the file is refused."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from merit.core.errors import MeritError
from merit.data import validate
from merit.data.sources import TablesSource, open_source
from tests.fuzz.words import PLAIN, TEXT, cases, edited

ITEMS = "item_id,title,tags,vertical\na,Tea,Drinks,Food\nb,Coffee,Drinks|Hot,Food\n"
EVENTS = "user_id,item_id,timestamp,event\n" + "".join(f"u{n},a,2024-01-0{n} 10:00:00,view\n" for n in range(1, 8))
times = st.sampled_from(
    ["2024-01-01", "2024-01-01T10:00:00+02:00", "1704103200", "1704103200000", "0", "2199-01-01", ""]
)
rows = st.lists(
    st.tuples(
        TEXT | st.sampled_from(["u1", "u2"]), st.sampled_from(["a", "b", "c", ""]), times | TEXT, TEXT | st.just("view")
    ),
    min_size=1,
    max_size=8,
)


def sifted(folder: Path, events: Path, items: Path) -> tuple[int, validate.BadRows, pl.DataFrame]:
    """The way `prepare` takes, however many rows are bad."""
    tables = open_source(TablesSource(interactions=events, items=items, max_bad_share=1.0))
    good = validate.validate(tables)
    [found], bad = validate.collect(good, good.interactions)
    validate.quarantine(tables, folder / "aside.parquet")
    return len(found), bad, pl.read_parquet(folder / "aside.parquet")


@cases(20)
@given(rows=rows, suffix=st.sampled_from([".csv", ".jsonl", ".parquet"]))
def test_every_row_goes_on_or_is_set_aside(
    rows: list[tuple[str, str, str, str]], suffix: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("rows")
    (folder / "items.csv").write_text(ITEMS)
    table = pl.DataFrame(rows, schema=["user_id", "item_id", "timestamp", "event"], orient="row")
    file = folder / f"events{suffix}"
    {".csv": table.write_csv, ".jsonl": table.write_ndjson, ".parquet": table.write_parquet}[suffix](file)
    try:
        good, bad, aside = sifted(folder, file, folder / "items.csv")
    except MeritError as error:
        assert str(folder) in str(error)
        return
    assert bad.interactions == len(rows) == good + bad.bad_interactions + bad.unknown_items
    assert len(aside) == bad.bad_interactions + bad.unknown_items + bad.bad_items


@cases(20)
@given(
    content=st.binary(max_size=120) | edited(EVENTS).map(lambda text: text.encode("utf-8", "surrogatepass")),
    suffix=st.sampled_from([".csv", ".jsonl", ".parquet", ".csv.gz"]),
)
@example(content=b'\x00{"user_id": "u1"}\n', suffix=".jsonl")  # looks like half of UTF-16 to json
def test_any_file_is_read_or_refused_by_its_name(
    content: bytes, suffix: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("files")
    (folder / "items.csv").write_text(ITEMS)
    file = folder / f"events{suffix}"
    file.write_bytes(content)
    try:
        good, bad, _ = sifted(folder, file, folder / "items.csv")
    except MeritError as error:
        assert str(folder) in str(error)
        return
    assert bad.interactions == good + bad.bad_interactions + bad.unknown_items


@cases(20)
@given(
    lines=st.lists(
        st.dictionaries(st.sampled_from(["item_id", "title", "tags", "vertical"]), PLAIN), min_size=1, max_size=5
    )
)
def test_any_items_are_read_or_refused(
    lines: list[dict[str, object]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("items")
    (folder / "events.csv").write_text(EVENTS)
    (folder / "items.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    try:
        _, bad, _ = sifted(folder, folder / "events.csv", folder / "items.jsonl")
    except MeritError as error:
        assert str(folder) in str(error)
        return
    assert bad.items == len(lines)
