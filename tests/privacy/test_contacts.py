"""E-mail addresses and phone numbers in item texts: found in the forms people write, and never told."""

from __future__ import annotations

import logging
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from merit.core import console
from merit.data import check, validate
from merit.data.sources import CompleteJourneySource, TablesSource, open_source
from merit.privacy import contacts

EMAILS = [
    "write to jo.doe+x@mail.example.co.uk",
    "jo@example.com",
    "JO (at) example (dot) com",
    "jo [at] ex-am.org",
]
PHONES = [
    *("Bike, call 0171 1234567", "+49 (0)30 123456", "Tel.: 030/1234567", "(212) 555-0188", "call 212-555-0188 now"),
    *("06 12 34 56 78", "0049 30 1234567", "WhatsApp +1 415 555 2671", "text me on 07700900123", "phone: 5551234567"),
    *("ring 020 7946 0958", "07700 900123", "Sofa +4915112345678", "1-800-555-0199"),
]
HARMLESS = [
    *("ISBN 978-3-16-148410-0", "EAN 4006381333931", "12 x 330 ml", "1920x1080 60 Hz", "AA 1.5V 24 pack", "4@1.99"),
    *("part no 123-45-678", "SPF 50+ 200 ml", "2023-11-16 calendar", "0.5-1.0 mm", "A4 80 g 500", "@home decor"),
    *("phone 12 pro case", "mobile 5000 mAh", "RAL 7016", "10 000 000 lumen", "1/2 in 100-200-300", "cell CR2032 3V"),
    *("Lego 10270-1 2504 pcs", "00 flour 1000 g", "steel wool 0000 12 pads", "DIN 933 8.8 M8x40", "meet at home.com"),
]


def items(*titles: str, tags: tuple[str, ...] = ()) -> pl.DataFrame:
    rows = [(title, list(tags), "items.csv", row) for row, title in enumerate(titles, 1)]
    schema = {"title": pl.String, "tags": pl.List(pl.String), "file": pl.String, "row": pl.UInt64}
    return pl.DataFrame(rows, schema=schema, orient="row")


@pytest.mark.parametrize(("kind", "titles"), [("e-mail addresses", EMAILS), ("phone numbers", PHONES)])
def test_every_way_to_write_one_is_found(kind: str, titles: list[str]) -> None:
    (each,) = contacts.find(items(*titles))
    assert (each.kind, each.items) == (kind, len(titles))
    assert [place.row for place in each.first] == [1, 2, 3, 4, 5][: len(titles)]


def test_sizes_part_numbers_and_bar_codes_are_none() -> None:
    assert contacts.find(items(*HARMLESS)) == ()


@given(st.integers(1, 99), st.lists(st.integers(10, 9999), min_size=3, max_size=4), st.sampled_from(" .-/"))
def test_a_country_code_makes_a_phone_number(country: int, groups: list[int], gap: str) -> None:
    number = f"+{country}{gap}{gap.join(map(str, groups))}"
    digits = sum(character.isdigit() for character in number)
    found = contacts.find(items(f"Old sofa {number}, as new"))
    assert bool(found) is (digits >= 8)


@given(st.text(max_size=40))
def test_any_text_is_judged_and_none_is_told(text: str) -> None:
    for each in contacts.find(items(text)):
        assert contacts.warning(each) == contacts.warning(each.model_copy())
        assert len(text) < 3 or text not in contacts.warning(each)


def test_tags_are_read_too() -> None:
    (each,) = contacts.find(items("Tea", tags=("Drinks", "ask jo@example.com")))
    assert each.kind == "e-mail addresses"


EVENTS = "user_id,item_id,timestamp,event\n" + "".join(
    f"u{u},a,2024-01-{d:02},purchase\n" for u in range(4) for d in (1, 9, 15)
)
SECRET = ("jo.doe@example.com", "07700 900123")


@pytest.fixture
def source(tmp_path: Path) -> TablesSource:
    (tmp_path / "events.csv").write_text(EVENTS.replace("u3", "mia@example.org"))
    rows = f"a,Tea,Drinks,Food\nb,Pot {SECRET[0]},Pots,Home\nc,Cup,Pots,Home\nd,Pan {SECRET[1]},Pots,Home\n"
    (tmp_path / "items.csv").write_text("item_id,title,tags,vertical\n" + rows)
    return TablesSource(interactions=tmp_path / "events.csv", items=tmp_path / "items.csv")


def test_the_check_counts_them_by_row_and_shows_none(source: TablesSource) -> None:
    report = check.examine(open_source(source))
    assert [(each.kind, each.items, each.first[0].row) for each in report.contacts] == [
        ("e-mail addresses", 1, 2),
        ("phone numbers", 1, 4),
    ]
    told = report.model_dump_json() + " ".join(str(part) for part in check.render(report))
    assert "1 user ids seem to be e-mail addresses" in told and "source.pseudonyms" in told
    assert not [secret for secret in (*SECRET, "mia@") if secret in told]


def test_the_import_warns(
    source: TablesSource, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console.log, "propagate", True)
    with caplog.at_level(logging.WARNING):
        validate.validate(open_source(source))
    assert "1 items seem to hold phone numbers" in caplog.text and "row 4" in caplog.text
    assert not [secret for secret in SECRET if secret in caplog.text]


def test_a_real_catalogue_has_none() -> None:
    """The price of the patterns: no false alarm in 92,331 titles of a supermarket."""
    assert contacts.find(validate.index(open_source(CompleteJourneySource())).items) == ()
