"""Pages and charts: self-contained, escaped, described, and silent about small groups."""

from __future__ import annotations

import re
from datetime import date
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from merit.core import artifacts
from merit.core.config import Frozen, digest
from merit.report import charts
from merit.report.page import (
    Chart,
    Page,
    Section,
    Table,
    Tile,
    count,
    large_enough,
    number,
    percent,
    provenance,
    render,
    suppress,
)

HOSTILE = '<script>alert("x")</script> & \'id="clip1" url(#clip1)'
NAMES = pl.DataFrame({"name": [HOSTILE, "tea"], "value": [1500, 3]})
LINE = pl.DataFrame({"rank": [1, 10, 100], "n": [1000, 30, 2]})
DAYS = pl.DataFrame({"day": [date(2024, 1, 1), date(2024, 6, 1)], "n": [5, 7]})

DRAWN = {
    "bars": lambda description: charts.bars(NAMES, "name", "value", description=description),
    "columns": lambda description: charts.columns(NAMES, "name", "value", description=description, x="name", y="value"),
    "log curve": lambda description: charts.curve(LINE, "rank", "n", description=description, log=True),
    "dates": lambda description: charts.curve(DAYS, "day", "n", description=description, x_form="date", area=True),
}


class Reader(HTMLParser):
    """Collects what a browser would act on; complains about tags that do not close."""

    void = frozenset({"meta", "br", "link", "img", "input", "hr"})

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.loads += [f"{name}={value}" for name, value in attrs if name in ("src", "href", "xlink:href", "data")]
        self.loads += [name for name, _ in attrs if name.startswith("on")]
        if tag not in self.void:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def _read(html: str) -> Reader:
    reader = Reader()
    reader.feed(html)
    assert not reader.open
    return reader


@pytest.fixture(scope="module")
def html() -> str:
    drawn = tuple(Chart(f"{name} {HOSTILE}", draw(f"{name}: {HOSTILE}"), HOSTILE) for name, draw in DRAWN.items())
    table = Table(HOSTILE, NAMES, note=HOSTILE)
    section = Section(HOSTILE, (HOSTILE,), (Tile(HOSTILE, "1", HOSTILE),), drawn, (table,))
    return render(Page(HOSTILE, HOSTILE, (section,) * 3))


def test_a_page_runs_and_fetches_nothing_whatever_its_texts_say(html: str) -> None:
    reader = _read(html)
    assert not {"script", "link", "img", "iframe", "object", "image", "foreignobject", "a:script"} & set(reader.tags)
    assert reader.loads and all(load.startswith("href=#s") for load in reader.loads)
    assert not re.search(r"@import|url\((?!#)", html)
    assert "default-src 'none'" in html


def test_hostile_text_is_shown_as_text(html: str) -> None:
    assert "&lt;script&gt;" in html
    assert "<script" not in html


@pytest.mark.parametrize("name", DRAWN)
def test_a_chart_is_xml_with_a_text_alternative(name: str) -> None:
    svg = DRAWN[name](f"{name}: {HOSTILE}")
    root = ElementTree.fromstring(svg)
    assert root.get("role") == "img"
    assert root.get("aria-label") == f"{name}: {HOSTILE}"
    assert root[0].tag.endswith("title") and root[0].text == f"{name}: {HOSTILE}"


@pytest.mark.parametrize("name", DRAWN)
def test_a_chart_takes_the_colours_of_its_page(name: str) -> None:
    svg = DRAWN[name]("x")
    assert 'fill="currentColor"' in svg
    assert not re.search(r'fill="(white|black|#000|#fff)"', svg)
    assert not re.search(r'<rect[^>]*width="\d+"[^>]*fill="(?!none)', svg)  # no painted background


def test_inner_names_of_two_charts_do_not_meet(html: str) -> None:
    names = re.findall(r'<clipPath id="([^"]+)"', html)
    wanted = re.findall(r'clip-path="url\(#([^)]+)\)"', html)
    assert set(wanted) <= set(names)


def test_a_column_named_with_syntax_is_still_a_column() -> None:
    frame = pl.DataFrame({"a.b[0]:Q": ["tea", "jam"], "n": [5, 7]})
    assert ">tea</text>" in charts.bars(frame, "a.b[0]:Q", "n", description="x")


def test_zero_is_zero() -> None:
    svg = charts.columns(
        pl.DataFrame({"bin": ["a", "b"], "n": [20_000, 5_000]}), "bin", "n", description="x", x="", y=""
    )
    assert ">20k</text>" in svg and ">0</text>" in svg and ">0k</text>" not in svg


def test_numbers_are_written_for_people() -> None:
    assert count(1234567) == "1,234,567"
    assert percent(0.1234) == "12.3 %"
    assert [number(value) for value in (0.01234, 5.0, 1234.5)] == ["0.0123", "5", "1,234"]


def test_figures_stand_right_and_absent_ones_are_dashes() -> None:
    frame = pl.DataFrame({"name": ["a", None], "events": [1234, None], "share": [0.5, None]})
    html = render(Page("t", "s", (Section("x", tables=(Table("y", frame, {"share": "percent"}),)),)))
    row = '<td>a</td><td class="figure">1,234</td><td class="figure">50.0 %</td>'
    assert row in html
    assert html.count(">–</td>") == 3


def test_a_small_row_keeps_its_name_and_loses_its_figures() -> None:
    frame = pl.DataFrame({"vertical": ["a", "b"], "events": [900, 70], "users": [50, 49]})
    assert suppress(frame, keep=("vertical",)).rows() == [("a", 900, "50"), ("b", None, "<50")]
    assert large_enough(frame)["vertical"].to_list() == ["a"]


def test_a_single_hidden_row_cannot_be_worked_out_from_the_total() -> None:
    frame = pl.DataFrame({"split": ["train", "validation", "test"], "examples": [800, 90, 10], "users": [800, 90, 10]})
    shown = suppress(frame, keep=("split",), partition=True)
    assert shown["users"].to_list() == ["800", "withheld", "<50"]
    assert shown["examples"].to_list() == [800, None, None]


@given(st.lists(st.integers(0, 200), min_size=1, max_size=8))
@settings(max_examples=60)
def test_no_partition_tells_a_hidden_cell(users: list[int]) -> None:
    """Whoever knows the total of a partition finds either nothing hidden, or two hidden rows or more."""
    frame = pl.DataFrame({"row": range(len(users)), "users": users, "events": users})
    shown = suppress(frame, keep=("row",), partition=True)
    hidden = shown["events"].is_null()
    assert hidden.sum() != 1 or len(users) == 1
    assert all(hidden[place] for place, value in enumerate(users) if value < 50)


class Settings(Frozen):
    share: float = 0.1
    name: str = "straße"


def test_the_footer_names_the_bytes(tmp_path: Path) -> None:
    with artifacts.writing(tmp_path / "thing", "thing", config=Settings(), seed=7) as draft:
        (draft.path / "x.txt").write_text("x")
    manifest = artifacts.load(tmp_path / "thing").manifest
    html = render(Page("t", "s", (), provenance=provenance(manifest)))
    for fact in (manifest.hash, digest(Settings()), manifest.version, "<dd>7</dd>", manifest.created.split("+")[0]):
        assert fact in html


def test_dark_print_and_phone_are_thought_of(html: str) -> None:
    for rule in ("prefers-color-scheme: dark", "@media print", "max-width: 40rem", 'name="viewport"'):
        assert rule in html
