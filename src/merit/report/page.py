"""A report is one HTML file: no script, no request, readable in light and dark, on paper and on a phone.

    page = Page("Data", "What the model learns from", (Section("Events", tables=(Table("By type", frame),)),))
    Path("report.html").write_text(render(page), encoding="utf-8")

Reports never show a figure about fewer than 50 users. `suppress` blanks such rows of a table, `large_enough` drops
them from what is drawn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from functools import cache
from importlib.resources import files
from typing import Any, Literal

import jinja2
import polars as pl
from pydantic import RootModel

from merit.core.artifacts import Manifest
from merit.core.config import digest
from merit.report.charts import Svg

SMALLEST_CELL = 50  # DESIGN 15.10: fewer users than this could be recognised
TOO_FEW = f"<{SMALLEST_CELL}"
WITHHELD = "withheld"
Format = Literal["count", "percent", "number", "text"]
Provenance = Mapping[str, str]  # which bytes the figures come from: a number without it is a rumour


@dataclass(frozen=True)
class Tile:
    """A key figure."""

    label: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class Table:
    """A frame to print. Columns take the format of their type unless `formats` says otherwise."""

    title: str
    frame: pl.DataFrame
    formats: Mapping[str, Format] = field(default_factory=dict)
    note: str = ""
    wide: bool = False
    """Over all columns of the page."""


@dataclass(frozen=True)
class Chart:
    """A drawing from `merit.report.charts` under a caption. It is printed unescaped, hence the type."""

    title: str
    svg: Svg
    note: str = ""


@dataclass(frozen=True)
class Section:
    """What stands under one heading, in the order of these fields."""

    title: str
    text: Sequence[str] = ()
    """Paragraphs."""
    tiles: Sequence[Tile] = ()
    charts: Sequence[Chart] = ()
    tables: Sequence[Table] = ()


@dataclass(frozen=True)
class Page:
    """What `render` prints; without provenance, the footer names no artifact."""

    title: str
    subtitle: str
    sections: Sequence[Section]
    tiles: Sequence[Tile] = ()
    provenance: Provenance | None = None


def too_few(title: str, subtitle: str, what: str, provenance: Provenance | None = None) -> Page:
    """The page of something about fewer than 50 users, which shows no figure."""
    text = f"{what} fewer than {SMALLEST_CELL} users. No figure is shown."
    return Page(title, subtitle, (Section("Too few users", (text,)),), (), provenance)


def provenance(manifest: Manifest) -> Provenance:
    """What the footer says about the artifact a report is made from."""
    settings = digest(RootModel[dict[str, Any]](manifest.config))
    seed = "none" if manifest.seed is None else str(manifest.seed)
    facts = (manifest.hash, settings, seed, manifest.version, manifest.created)
    return dict(zip(("Artifact", "Settings", "Seed", "merit", "Made"), facts, strict=True))


def render(page: Page) -> str:
    """The whole report as one HTML text."""
    return _template("page.html.j2").render(page=page, grid=_grid)


def summary_html(page: Page) -> str:
    """The title and the key figures alone, as a notebook shows them below a cell."""
    return _template("summary.html.j2").render(page=page)


def count(value: float) -> str:
    """1234567 → 1,234,567."""
    return f"{value:,.0f}"


def percent(value: float, digits: int = 1) -> str:
    """0.1234 → 12.3 %."""
    return f"{100 * value:,.{digits}f} %"


def number(value: float) -> str:
    """Three figures for small numbers, whole ones for large."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def signed(value: float) -> str:
    """0.0023 → +0.23 %."""
    return f"{100 * value:+.2f} %".replace("-", "−")


def signed_interval(value: float, low: float, high: float) -> str:
    """+0.23 % (−0.12 % to +0.57 %)."""
    return f"{signed(value)} ({signed(low)} to {signed(high)})"


def share(value: float, digits: int = 1) -> str:
    """0.98123 → 98.1 %. With digits, never 100 % and never 0 %: no test makes certain."""
    edge = 10.0**-digits
    if digits and value > 1 - edge / 100:
        return f"more than {100 - edge:.{digits}f} %"
    if digits and value < edge / 100:
        return f"less than {edge:.{digits}f} %"
    return f"{100 * value:.{digits}f} %"


def suppress(frame: pl.DataFrame, keep: Sequence[str] = (), partition: bool = False) -> pl.DataFrame:
    """Hide every figure of rows about fewer than 50 users; the users column says so, `keep` (names) stays.

    With `partition` the rows add up to a known total, and a single hidden row could be worked out: then the smallest
    other row is withheld too.
    """
    small, second = _hidden(frame["users"], partition)
    figures = [name for name in frame.columns if name not in ("users", *keep)]
    counts = pl.col("users").map_elements(count, return_dtype=pl.String)
    return frame.with_columns(
        pl.when(small).then(pl.lit(TOO_FEW)).when(second).then(pl.lit(WITHHELD)).otherwise(counts).alias("users"),
        *(pl.when(small | second).then(None).otherwise(pl.col(name)).alias(name) for name in figures),
    )


def large_enough(frame: pl.DataFrame, partition: bool = False) -> pl.DataFrame:
    """Rows that may be drawn, or written for machines. What is drawn as a point, a bar or a cell is a cell."""
    small, second = _hidden(frame["users"], partition)
    return frame.filter(~(small | second))


def _hidden(users: pl.Series, partition: bool) -> tuple[pl.Series, pl.Series]:
    """Rows about too few users, and the one that must go with a single such row."""
    small = users < SMALLEST_CELL
    if not partition or small.sum() != 1 or len(users) < 2:
        return small, pl.repeat(False, len(users), eager=True)
    return small, (users == users.filter(~small).min()) & ~small


@cache
def _template(name: str) -> jinja2.Template:
    text = files("merit.report").joinpath(name).read_text(encoding="utf-8")
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(text)


def _grid(table: Table) -> tuple[list[tuple[str, bool]], list[list[tuple[str, bool]]]]:
    """The heads and the rows of a table as text, each cell with whether its column is of figures."""
    forms = {name: table.formats.get(name) or _form(dtype, name) for name, dtype in table.frame.schema.items()}
    heads = [(name[:1].upper() + name[1:], form != "text") for name, form in forms.items()]
    rows = [
        [(_cell(value, form), form != "text") for value, form in zip(row, forms.values(), strict=True)]
        for row in table.frame.iter_rows()
    ]
    return heads, rows


def _form(dtype: pl.DataType, name: str) -> Format:
    if dtype.is_integer() or name == "users":  # suppressed users are text among figures
        return "count"
    return "number" if dtype.is_numeric() else "text"


def _cell(value: object, form: Format) -> str:
    if value is None:
        return "–"
    if isinstance(value, (int, float)) and not isinstance(value, bool) and form != "text":
        return {"count": count, "percent": percent, "number": number}[form](value)
    if isinstance(value, (date, datetime)):
        return f"{value:%Y-%m-%d}"
    return str(value)
