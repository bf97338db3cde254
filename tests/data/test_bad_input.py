"""Hostile and broken input: one message that names the file, the row where there is one, and the remedy."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import polars as pl
import pytest

from merit.core.errors import DataError, StorageError
from merit.data import check, validate
from merit.data.sources import TablesSource, open_source

EVENTS = "user_id,item_id,timestamp,event\nu1,a,2024-01-01 10:00:00,view\nu2,a,2024-01-02 10:00:00,purchase\n"
ITEMS = "item_id,title,tags,vertical\na,Tea,Drinks,Food\n"


def run(
    folder: Path, events: str | bytes | None = EVENTS, items: str | bytes = ITEMS, name: str = "events.csv", **settings
):
    """Write both tables and take the way `prepare` takes."""
    for file, content in ((folder / name, events), (folder / "items.csv", items)):
        if content is not None:
            file.write_bytes(content if isinstance(content, bytes) else content.encode())
    source = TablesSource(interactions=folder / name, items=folder / "items.csv", **settings)
    good = validate.validate(open_source(source))
    validate.collect(good)
    return good.interactions.collect(engine="streaming"), good.items


def parquet(**columns) -> Callable[[Path], bytes]:
    def written(folder: Path) -> bytes:
        pl.DataFrame(columns).write_parquet(folder / "made.parquet")
        return (folder / "made.parquet").read_bytes()

    return written


def test_the_untouched_tables_are_good(tmp_path) -> None:
    events, items = run(tmp_path)
    assert (events.height, items.height) == (2, 1)


BROKEN = {
    "missing column": (
        EVENTS.replace("user_id", "usr"),
        "events.csv",
        ["'user_id'", "--set source.columns.user_id=usr"],
    ),
    "empty file": ("", "events.csv", ["is empty", "Export the table again"]),
    "no rows": (
        EVENTS.splitlines()[0] + "\n",
        "events.csv",
        ["holds no usable rows", "--set source.interactions=PATH"],
    ),
    "broken quote": (
        EVENTS.replace("u2,", '"u2,'),
        "events.csv",
        ["row 2", "double quote is never closed", "Close it"],
    ),
    "broken quote, gz": (
        gzip.compress(EVENTS.replace("u2,", '"u2,').encode()),
        "events.csv.gz",
        ["row 2", "double quote is never closed"],
    ),
    "quote in mid-field": (
        EVENTS.replace("u2,", '"u2"x,'),
        "events.csv",
        ["quoted field is damaged", "Mend the quotes"],
    ),
    "too many fields": (
        EVENTS.replace("purchase", "purchase,x,y"),
        "events.csv",
        ["row 2 has 6 fields", "double quotes"],
    ),
    "undecodable": (EVENTS.encode().replace(b"u2", b"\xe9\xff"), "events.csv", ["row 2", "not UTF-8", "iconv"]),
    "negative time": (
        EVENTS.replace("2024-01-02 10:00:00", "-86400"),
        "events.csv",
        ["row 2", "'-86400' is before 1990"],
    ),
    "far future": (
        EVENTS.replace("2024-01-02", "3024-01-02"),
        "events.csv",
        ["row 2", "lies in the future", "--quarantine"],
    ),
    "no time": (EVENTS.replace("2024-01-02 10:00:00", "noon"), "events.csv", ["row 2", "'noon' is not a time"]),
    "unknown suffix": (EVENTS, "events.xlsx", ["suffix does not tell the format", "Rename it"]),
    "not gzip": (EVENTS, "events.csv.gz", ["not compressed in spite of its name", "without .gz"]),
    "cut gzip": (gzip.compress(EVENTS.encode() * 50)[:-12], "events.csv.gz", ["cut off or damaged", "again"]),
    "json array": ('[{"user_id": 1}]', "events.json", ["one JSON array", "jq -c"]),
    "broken json": (
        '{"user_id": "u", "item_id": "a"}\n{"user_id":\n',
        "events.jsonl",
        ["row 2 is not JSON", "Mend or remove"],
    ),
    "csv called parquet": (EVENTS, "events.parquet", ["not Parquet in spite of its name", "again"]),
    "parquet called csv": (b"PAR1xxxxPAR1", "events.csv", ["is Parquet in spite of its name", ".parquet"]),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_interactions(tmp_path, case) -> None:
    content, name, parts = BROKEN[case]
    with pytest.raises(DataError) as caught:
        run(tmp_path, content, name=name)
    for part in (name, *parts):
        assert part in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_truncated_parquet(tmp_path) -> None:
    whole = parquet(user_id=["u"] * 1000, item_id=["a"] * 1000)(tmp_path)
    with pytest.raises(DataError, match=r"events\.parquet is truncated Parquet.*Copy or export it again"):
        run(tmp_path, whole[:-40], name="events.parquet")


def test_a_damaged_parquet_is_found_among_many(tmp_path) -> None:
    folder = tmp_path / "log"
    folder.mkdir()
    table = pl.DataFrame({"user_id": [f"u{i}" for i in range(3000)], "item_id": "a", "event": "view"})
    table = table.with_columns(timestamp=pl.lit(datetime(2024, 1, 1)))
    for part in range(3):
        table.write_parquet(folder / f"{part}.parquet")
    bytes_ = bytearray((folder / "1.parquet").read_bytes())
    bytes_[60:400] = bytes(340)
    (folder / "1.parquet").write_bytes(bytes_)
    (tmp_path / "items.csv").write_text(ITEMS)
    with pytest.raises(DataError, match=r"1\.parquet is damaged.*Copy or export it again"):
        validate.collect(
            validate.validate(open_source(TablesSource(interactions=folder, items=tmp_path / "items.csv")))
        )


@pytest.mark.parametrize("column", ["user_id", "timestamp", "event"])
def test_a_column_of_the_wrong_type(tmp_path, column) -> None:
    good = {"user_id": ["u"], "item_id": ["a"], "timestamp": [datetime(2024, 1, 1)], "event": ["view"]}
    content = parquet(**{**good, column: [{"nested": 1}]})(tmp_path)
    with pytest.raises(DataError) as caught:
        run(tmp_path, content, name="events.parquet")
    for part in ("events.parquet", f"'{column}'", "Struct", f"--set source.columns.{column}="):
        assert part in str(caught.value)


def test_missing_file_and_folder_without_data(tmp_path) -> None:
    with pytest.raises(DataError, match=r"nowhere\.csv does not exist.*--set source\.interactions=PATH"):
        run(tmp_path, None, name="nowhere.csv")
    (tmp_path / "void").mkdir()
    (tmp_path / "void" / "README.md").write_text("no data")
    with pytest.raises(DataError, match=r"void holds no data files.*\.parquet"):
        run(tmp_path, None, name="void")


def test_a_column_of_extra_tags_that_is_not_there(tmp_path) -> None:
    with pytest.raises(DataError, match=r"items\.csv has no column 'brnd'.*Nearest: brand"):
        run(tmp_path, items="item_id,title,brand\na,Tea,X\n", extra_tags=("brnd",))


def test_conflicting_item_ids(tmp_path) -> None:
    with pytest.raises(DataError) as caught:
        run(tmp_path, items=ITEMS + "a,Coffee,Drinks,Food\n")
    for part in (
        "items.csv, row 2",
        "item_id 'a' means something else in",
        "row 1",
        "--quarantine",
        "max_bad_share=0.55",
    ):
        assert part in str(caught.value)
    _, items = run(tmp_path, items=ITEMS + "a,Tea,Drinks,Food\n")  # the same twice is merged
    assert items.height == 1


def test_a_title_of_ten_megabytes(tmp_path) -> None:
    huge = ITEMS + f"b,{'x' * 10_000_000},Drinks,Food\n"
    with pytest.raises(DataError) as caught:
        run(tmp_path, items=huge)
    message = str(caught.value)
    for part in ("items.csv, row 2", "title has 10000000 characters, more than 2000", "source.max_title_chars"):
        assert part in message
    assert len(message) < 1000
    _, items = run(tmp_path, items=huge, max_bad_share=0.5)
    assert items["item_id"].to_list() == ["a"]


STRANGE = ["Tea 🍵 mug", "שלום עולם", "مرحبا", "a <s> b [SEP] <|endoftext|>", "mail jo@example.com", "half\ufffd"]


def test_strange_titles_are_kept_and_noted(tmp_path) -> None:
    rows = "".join(f"i{number},{title},Drinks,Food\n" for number, title in enumerate(STRANGE))
    _, items = run(tmp_path, items=ITEMS + rows)
    assert set(STRANGE) <= set(items["title"])
    source = TablesSource(interactions=tmp_path / "events.csv", items=tmp_path / "items.csv")
    notes = " ".join(check.examine(open_source(source)).notes)
    for part in (
        "control tokens",
        "emoji",
        "right-to-left",
        "e-mail addresses",
        "lost in an earlier",
        "items.csv, row 2",
    ):
        assert part in notes


def test_control_characters_do_not_reach_titles(tmp_path) -> None:
    _, items = run(tmp_path, items=ITEMS.replace("Tea", '"Te\x1b[31ma\x00 \tb"'))
    assert items["title"].item() == "Te [31ma b"


def test_a_file_that_may_not_be_read(tmp_path, monkeypatch) -> None:
    def refuse(path: Path, *_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    (tmp_path / "events.csv").write_text(EVENTS)
    (tmp_path / "items.csv").write_text(ITEMS)
    source = TablesSource(interactions=tmp_path / "events.csv", items=tmp_path / "items.csv")
    monkeypatch.setattr(Path, "open", refuse)  # the tests may run as root, whom no permission stops
    with pytest.raises(StorageError, match=r"events\.csv may not be read.*chmod"):
        open_source(source)


def test_a_full_disk_leaves_no_quarantine_behind(tmp_path, monkeypatch) -> None:
    run(tmp_path)
    source = TablesSource(interactions=tmp_path / "events.csv", items=tmp_path / "items.csv")

    def full(rows: pl.LazyFrame, path: Path) -> pl.LazyFrame:
        path.write_text("half")
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setitem(validate.SINKS, ".csv", full)
    with pytest.raises(StorageError, match="the disk is full"):
        validate.quarantine(open_source(source), tmp_path / "out" / "bad.csv")
    assert list((tmp_path / "out").iterdir()) == []
