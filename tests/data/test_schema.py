"""Column names, times, events, ids: what others write and what we make of it."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from zoneinfo import ZoneInfo

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from merit.core.errors import ConfigError, DataError
from merit.data import normalise, times
from merit.data.schema import EVENT_NAMES, FILE, INTERACTION_NAMES, ITEM_NAMES, ROW, ParseOptions, resolve

WITHIN = st.datetimes(datetime(1990, 1, 2), datetime(2035, 1, 1))
OFFSETS = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))


def instants(values: list[object], dtype: pl.DataType | None = None, zone: str = "UTC") -> list[datetime | None]:
    frame = pl.DataFrame({"t": pl.Series(values, dtype=dtype)})
    return frame.select(times.instants(pl.col("t"), frame["t"].dtype, zone))["t"].to_list()


def to_ms(at: datetime) -> datetime:
    return at.replace(microsecond=at.microsecond // 1000 * 1000)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(WITHIN, OFFSETS, st.sampled_from(["T", " "])), min_size=1, max_size=20))
def test_mixed_zones_in_one_text_column_come_out_as_python_reads_them(rows) -> None:
    texts = [at.replace(tzinfo=zone).isoformat(sep) for at, zone, sep in rows]
    assert instants(texts) == [to_ms(datetime.fromisoformat(text).astimezone(UTC)) for text in texts]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(WITHIN, min_size=1, max_size=20), st.sampled_from(["seconds", "milliseconds", "microseconds", "minutes"])
)
def test_times_without_zone_are_read_in_the_zone_of_the_settings(rows, precision) -> None:
    zone = ZoneInfo("America/New_York")
    texts = [at.isoformat(" ", precision) for at in rows]
    for text, found in zip(texts, instants(texts, zone="America/New_York"), strict=True):
        expected = datetime.fromisoformat(text).replace(tzinfo=zone).astimezone(UTC)  # fold=0: the first of two
        skipped = expected.astimezone(zone).replace(tzinfo=None) != datetime.fromisoformat(text)
        assert found == (None if skipped else to_ms(expected))


@settings(max_examples=60, deadline=None)
@given(st.lists(WITHIN, min_size=1, max_size=20), st.sampled_from([1, 10**3, 10**6, 10**9]), st.booleans())
def test_epochs_tell_their_unit_by_their_size(rows, per_second, as_text) -> None:
    whole = [at.replace(tzinfo=UTC, microsecond=0) for at in rows]
    numbers = [int(at.timestamp()) * per_second for at in whole]
    assert instants([str(number) for number in numbers] if as_text else numbers) == whole


def test_clocks_going_back_and_forward() -> None:
    twice, never = datetime(2021, 11, 7, 1, 30), datetime(2021, 3, 14, 2, 30)
    assert instants([twice, never], zone="America/New_York") == [datetime(2021, 11, 7, 5, 30, tzinfo=UTC), None]


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_typed_times_keep_their_instant(unit) -> None:
    at = datetime(2020, 5, 17, 12, 30, 15, 123000)
    aware = at.replace(tzinfo=ZoneInfo("Asia/Tokyo"))
    assert instants([at], pl.Datetime(unit)) == [at.replace(tzinfo=UTC)]
    assert instants([aware], pl.Datetime(unit, "Asia/Tokyo")) == [aware.astimezone(UTC)]
    assert instants([date(2020, 5, 17)]) == [datetime(2020, 5, 17, tzinfo=UTC)]


def test_impossible_times_are_null_and_never_a_crash() -> None:
    assert instants(["2021-13-01", "soon", "", "9" * 30, "2021-02-30 10:00:00"]) == [None] * 5
    assert instants([float("nan"), float("inf"), 1e300]) == [None] * 3
    extreme = pl.Series([2**63 - 1, -(2**63) + 1]).cast(pl.Datetime("us"))
    frame = pl.DataFrame({"user_id": ["a", "b"], "item_id": ["x", "x"], "timestamp": extreme, "event": ["buy", "buy"]})
    problems = normalised(frame, zone="Europe/Berlin")["problem"]
    assert problems.str.contains("timestamp").all()


def read(frame: pl.DataFrame) -> pl.LazyFrame:
    """A table as a reader hands it on."""
    return frame.with_row_index(ROW, 1).lazy().with_columns(pl.lit("t.parquet").alias(FILE))


def normalised(frame: pl.DataFrame, zone: str = "UTC", text: bool = False) -> pl.DataFrame:
    mapping = resolve(frame.columns, INTERACTION_NAMES, {}, "t.parquet", "source.columns")
    return normalise.interactions(read(frame), mapping, "t.parquet", ParseOptions(time_zone=zone), text).collect()


def row(**values: object) -> pl.DataFrame:
    return pl.DataFrame(
        {"user_id": ["u"], "item_id": ["i"], "timestamp": [datetime(2020, 1, 1)], "event": ["view"]}
    ).with_columns(**{name: pl.Series([value]) for name, value in values.items()})


def test_the_normalised_columns_have_the_promised_types() -> None:
    table = normalised(row())
    assert table.schema == {
        "user_id": pl.String,
        "item_id": pl.String,
        "timestamp": pl.Datetime("ms", "UTC"),
        "event": pl.Enum(["view", "click", "cart", "purchase"]),
        "order_id": pl.String,
        "problem": pl.String,
        "file": pl.String,
        "row": pl.UInt64,
        "zone": pl.String,
        "original": table.schema["original"],
    }
    assert table["problem"].to_list() == [None]


@pytest.mark.parametrize(("value", "expected"), [(12, "12"), (12.0, "12"), ("012", "012"), (b"ab", "ab")])
def test_ids_become_text_without_a_decimal_point(value, expected) -> None:
    assert normalised(row(user_id=value))["user_id"].to_list() == [expected]


def test_ids_from_formats_without_types_are_tidied() -> None:
    table = normalised(row(user_id=" 17850.0 ", timestamp="2020-01-01"), text=True)
    assert table["user_id"].to_list() == ["17850"]


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"user_id": None}, "user_id is empty"),
        ({"item_id": ""}, "item_id is empty"),
        ({"user_id": 1.5}, "user_id 1.5 is not a whole number"),
        ({"user_id": "x" * 600}, "user_id is longer than 512 bytes"),
        ({"timestamp": -5}, "timestamp '-5' is before 1990-01-01"),
        ({"timestamp": "yesterday"}, "timestamp 'yesterday' is not a time"),
        ({"timestamp": datetime(2999, 1, 1)}, "lies in the future"),
        ({"event": "refund"}, "event 'refund' is not known"),
        ({"event": "re\x1b[31mfund"}, "event 're [31mfund' is not known"),
        ({"event": None}, "event is empty"),
    ],
)
def test_each_problem_is_told_in_words_with_its_value(values, reason) -> None:
    assert reason in normalised(row(**values))["problem"].item()


def test_times_up_to_two_days_ahead_are_a_clock_that_is_off() -> None:
    now = datetime.now(UTC).replace(tzinfo=None)
    assert normalised(row(timestamp=now + timedelta(days=1)))["problem"].item() is None
    assert "future" in normalised(row(timestamp=now + timedelta(days=3)))["problem"].item()


@pytest.mark.parametrize(("theirs", "ours"), [*EVENT_NAMES.items(), ("Add To Cart", "cart"), ("VIEW", "view")])
def test_event_names_of_ga4_and_others(theirs, ours) -> None:
    assert normalised(row(event=theirs))["event"].item() == ours


def test_columns_are_recognised_whatever_their_case() -> None:
    found = ["Household_Key", "ASIN", "unixReviewTime", "Event Name", "InvoiceNo", "other"]
    assert resolve(found, INTERACTION_NAMES, {}, "f.csv", "source.columns") == {
        "user_id": "Household_Key",
        "item_id": "ASIN",
        "timestamp": "unixReviewTime",
        "event": "Event Name",
        "order_id": "InvoiceNo",
    }


def test_our_own_names_win_and_given_ones_win_over_them() -> None:
    found = ["product_id", "item_id", "title", "categories", "category"]
    assert resolve(found, ITEM_NAMES, {}, "f", "s")["item_id"] == "item_id"
    mapping = resolve(found, ITEM_NAMES, {"item_id": "PRODUCT_ID"}, "f", "s")
    assert (mapping["item_id"], mapping["tags"], mapping["vertical"]) == ("product_id", "categories", "category")


def test_a_missing_column_names_file_columns_guess_and_remedy() -> None:
    with pytest.raises(DataError) as caught:
        resolve(["usr_nr", "item_id", "timestamp"], INTERACTION_NAMES, {}, "shop/log.csv", "source.columns")
    for part in ("shop/log.csv", "'user_id'", "usr_nr, item_id, timestamp", "--set source.columns.user_id=usr_nr"):
        assert part in str(caught.value)


def test_a_mapping_to_nothing_is_told() -> None:
    with pytest.raises(DataError, match="no column 'custmer'"):
        resolve(["customer", "item_id"], INTERACTION_NAMES, {"user_id": "custmer"}, "f.csv", "source.columns")
    with pytest.raises(ConfigError, match="user_idd: no such column"):
        resolve(["customer"], INTERACTION_NAMES, {"user_idd": "customer"}, "f.csv", "source.columns")


@pytest.mark.parametrize(
    "tags",
    [
        ["Hair  Care", "Creams, Gels", "", None, "Hair Care"],
        "Hair Care|Creams, Gels|",
        '["Hair Care", "Creams, Gels"]',
        "['Hair Care', 'Creams, Gels']",
        [["Hair Care"], ["Creams, Gels", "Hair Care"]],
    ],
)
def test_tags_are_read_however_they_are_written(tags) -> None:
    frame = pl.DataFrame({"item_id": ["x"], "title": ["t"], "tags": pl.Series([tags])})
    mapping = {name: name for name in ("item_id", "title", "tags")}
    table = normalise.items(read(frame), mapping, (), "f", ParseOptions()).collect()
    assert table["tags"].to_list() == [["Hair Care", "Creams, Gels"]]
    assert table["vertical"].to_list() == ["other"]


def test_a_column_of_our_type_is_not_touched_and_unused_ones_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    at = pl.Series([datetime(2020, 1, 1)]).cast(pl.Datetime("ms", "UTC"))
    row(timestamp=at.item()).with_columns(timestamp=at, unused=pl.lit("x")).write_parquet(path)
    mapping = {name: name for name in ("user_id", "item_id", "timestamp", "event")}
    scan = pl.scan_parquet(path, row_index_name=ROW, include_file_paths=FILE)
    plan = normalise.interactions(scan, mapping, "f", ParseOptions()).select("timestamp").explain()
    assert "PROJECT 1/5 COLUMNS" in plan
    assert "cast" not in plan.lower()
