"""What the check finds, what is set aside, and what goes on."""

from __future__ import annotations

import json
import re
import tomllib
from datetime import datetime, timedelta
from pathlib import Path

import polars as pl
import pytest
from rich.console import Console

from merit.core.errors import DataError
from merit.data import check, validate
from merit.data.schema import SourceTables
from merit.data.sources import TablesSource, open_source

DAY = datetime(2024, 1, 1)


def tables(folder: Path, log: list[tuple], items: list[tuple], **settings) -> SourceTables:
    names = ["user_id", "item_id", "timestamp", "event"]
    pl.DataFrame(
        log, schema=dict(zip(names, [pl.String, pl.String, pl.Datetime, pl.String], strict=True)), orient="row"
    ).write_parquet(folder / "events.parquet")
    schema = {"item_id": pl.String, "title": pl.String, "tags": pl.List(pl.String), "vertical": pl.String}
    pl.DataFrame(items, schema=schema, orient="row").write_parquet(folder / "items.parquet")
    return open_source(
        TablesSource(
            interactions=folder / "events.parquet", items=folder / "items.parquet", **{"max_bad_share": 0.5, **settings}
        )
    )


def checked(source: SourceTables) -> validate.IndexedTables:
    valid = validate.validate(source)
    validate.collect(valid)
    return valid


def regular(users: int = 4, days: int = 10) -> list[tuple]:
    return [(f"u{user}", "a", DAY + timedelta(days=day), "purchase") for user in range(users) for day in range(days)]


ITEMS = [("a", "Tea", ["Drinks"], "Food"), ("b", "Pot", [], "Home")]


def test_a_healthy_pair_of_tables_is_ready(tmp_path) -> None:
    report = check.examine(tables(tmp_path, regular(), ITEMS))
    assert report.missing == ()
    assert (report.users, report.users_ready, report.events) == (4, 4, {"purchase": 40})
    assert (report.first, report.last) == (report.first.replace(day=1), report.first.replace(day=10))
    assert (report.tags, report.items_without_tags, report.items_never_seen) == (1, 1, 1)
    assert report.zones == {"UTC (assumed)": 40}
    assert check.Report.model_validate_json(report.model_dump_json()) == report


def test_bad_rows_unknown_items_and_duplicates_are_told_apart(tmp_path) -> None:
    events = [
        *regular(),
        regular()[0],
        (None, "a", DAY, "view"),
        ("u1", "nope", DAY, "view"),
        ("u1", "a", DAY, "stare"),
    ]
    items = [*ITEMS, ITEMS[0], ("b", "Pan", ["Other"], "Home"), (None, "x", [], None)]
    report = check.examine(tables(tmp_path, events, items))
    assert report.rows == check.BadRows(
        interactions=44, bad_interactions=2, unknown_items=1, items=5, bad_items=2, merged_items=1
    )
    assert report.repeated_interactions == 1
    reasons = {(Path(bad.file).name, bad.row): bad.reason for bad in report.bad}
    assert reasons[("events.parquet", 42)] == "user_id is empty"
    assert ("events.parquet", 44) not in reasons and report.unknown_events.words == {"stare": 1}
    assert "item_id 'b' means something else in" in reasons[("items.parquet", 4)]
    assert "row 2" in reasons[("items.parquet", 4)]


def strange(count: int) -> list[tuple]:
    """Rows of so many unknown words, the first of them twice."""
    words = ["Add to bag", *(f"word {number:02}" for number in range(count - 1))]
    return [("u1", "a", DAY, word) for word in [words[0], *words]]


def test_unknown_events_are_told_together_with_one_setting_for_all(tmp_path) -> None:
    report = check.examine(tables(tmp_path, [*regular(), *strange(2), ("", "a", DAY, "stare")], ITEMS))
    assert report.unknown_events.words == {"Add to bag": 2, "word 00": 1} and report.unknown_events.more == 0
    assert [bad.reason for bad in report.bad] == ["user_id is empty"]
    told = " ".join(str(part) for part in check.render(report))
    assert "'Add to bag' (2 rows), 'word 00' (1 row)." in told and told.count("events = {") == 1
    setting = tomllib.loads(re.search(r"events = \{.*?\}", told)[0].replace("…", "cart"))
    mended = check.examine(tables(tmp_path, [*regular(), *strange(2)], ITEMS, **setting))
    assert mended.unknown_events.words == {} and mended.events == {"cart": 3, "purchase": 40}


def test_thousands_of_unknown_events_are_another_column(tmp_path) -> None:
    report = check.examine(tables(tmp_path, [*regular(), *strange(30)], ITEMS))
    assert (len(report.unknown_events.words), report.unknown_events.more, report.bad) == (20, 10, ())
    assert "and 10 more (is it the right column?" in str(check.render(report)[3])


def test_a_run_is_refused_with_all_unknown_events_at_once(tmp_path) -> None:
    source = tables(tmp_path, [*strange(3), *regular(), ("", "a", DAY, "view")], ITEMS, max_bad_share=0.001)
    with pytest.raises(DataError, match=r"'Add to bag' \(2 rows\), 'word 00' \(1 row\), 'word 01'.* 5 of 45 rows"):
        checked(source)


def test_what_goes_on_is_clean_and_numbered_in_order_of_the_id(tmp_path) -> None:
    events = [("u1", "b", DAY, "buy"), ("u1", "nope", DAY, "view"), (None, "a", DAY, "view"), ("u1", "a", DAY, "view")]
    good = checked(tables(tmp_path, events, [ITEMS[1], ITEMS[0]]))
    assert good.items.schema["item"] == pl.UInt32
    assert good.items.select("item", "item_id").rows() == [(0, "a"), (1, "b")]
    table = good.interactions.collect()
    assert table.columns == ["user_id", "item_id", "timestamp", "event", "order_id", "item"]
    assert table.select("item_id", "item", "event").rows() == [("b", 1, "purchase"), ("a", 0, "view")]


def test_one_pass_answers_the_query_and_judges_the_table(tmp_path) -> None:
    good = validate.validate(tables(tmp_path, [*regular(), ("u1", "nope", DAY, "view")], ITEMS))
    (per_user, count), bad = validate.collect(
        good, good.interactions.group_by("user_id").len(), good.interactions.select(pl.len())
    )
    assert (per_user.height, count.item(), bad.unknown_items, bad.interactions) == (4, 40, 1, 41)
    plan = pl.explain_all([good.interactions.group_by("user_id").len(), good.indexed.select(pl.col("problem").count())])
    assert plan.count("Parquet SCAN") == 1


def test_too_many_bad_rows_end_it_with_one_message(tmp_path) -> None:
    events = [*regular(), ("", "a", DAY, "view"), ("u", "a", DAY.replace(year=1980), "view")]
    with pytest.raises(DataError) as caught:
        checked(tables(tmp_path, events, ITEMS, max_bad_share=0.001))
    for part in (
        "events.parquet, row 41: user_id is empty",
        "1 more of 42 rows",
        "--quarantine",
        "source.max_bad_share=0.0",
    ):
        assert part in str(caught.value)
    checked(tables(tmp_path, events, ITEMS, max_bad_share=0.052))  # the share the message proposes


@pytest.mark.parametrize(
    ("events", "items", "sentence"),
    [
        ([(*row[:3], "view") for row in regular()], ITEMS, "no purchases"),
        (regular(days=5), ITEMS, "span 4 days; at least 8"),
        (regular(users=2), ITEMS, "Only 2 users"),
        (regular(), [("a", "", [], "Food")], "No item has a tag or a title"),
        (regular(), [("z", "Tea", ["x"], "Food")], "are the ids of both tables written the same way"),
        ([], ITEMS, "no interactions"),
        ([("", "a", DAY, "view"), *regular()], ITEMS, "Too many bad rows"),
    ],
)
def test_what_is_missing_is_told_in_sentences(tmp_path, events, items, sentence) -> None:
    report = check.examine(tables(tmp_path, events, items, max_bad_share=0.001))
    assert any(sentence in line for line in report.missing), report.missing


def test_items_with_titles_alone_are_ready_and_a_note_names_the_setting(tmp_path) -> None:
    report = check.examine(tables(tmp_path, regular(), [("a", "Tea", [], "Food")]))
    assert not report.missing and any("tags.sources" in note for note in report.notes)


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".jsonl"])
def test_the_quarantine_holds_every_row_set_aside_with_its_values(tmp_path, suffix) -> None:
    events = [*regular(), (None, "a", DAY, "view"), ("u1", "nope", DAY, "view")]
    items = [*ITEMS, ("a", "Other", ["x"], None)]
    path = tmp_path / "new" / f"bad{suffix}"
    assert validate.quarantine(tables(tmp_path, events, items), path) == 3
    read = {".parquet": pl.read_parquet, ".csv": pl.read_csv, ".jsonl": pl.read_ndjson}[suffix]
    table = read(path)
    assert table.columns == ["table", "file", "row", "reason", "original"]
    assert table.sort("table", "row").select("table", "row").rows() == [
        ("interactions", 41),
        ("interactions", 42),
        ("items", 3),
    ]
    unknown = table.filter(reason="unknown item")["original"].item()
    assert json.loads(unknown)["item_id"] == "nope"
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_the_quarantine_needs_a_suffix_it_knows(tmp_path) -> None:
    with pytest.raises(DataError, match=r"bad\.xls: quarantine files end in"):
        validate.quarantine(tables(tmp_path, regular(), ITEMS), tmp_path / "bad.xls")


def test_texts_of_the_data_are_never_read_as_markup_or_dropped(tmp_path) -> None:
    events = [*regular(), ("u1", "a", DAY, "[bold]SEP[/bold] [red]")]
    report = check.examine(tables(tmp_path, events, ITEMS))
    console = Console(width=200, record=True, file=(tmp_path / "out").open("w"))
    for part in check.render(report):
        console.print(part)
    shown = console.export_text()
    assert "'[bold]SEP[/bold] [red]' (1 row)" in shown
    assert "ready for examples" in shown


def test_repeated_runs_give_the_same_items(tmp_path) -> None:
    source = tables(tmp_path, regular(), [*ITEMS, *ITEMS, ("a", "Else", ["y"], "Food")])
    assert checked(source).items.equals(checked(source).items)
    assert checked(source).items["title"].to_list() == ["Tea", "Pot"]
