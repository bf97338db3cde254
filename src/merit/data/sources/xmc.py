"""Any multi-label text set in the formats of the Extreme Classification Repository (xmc_files).

A document is a user who looks at one item, its text, and half a year later orders its labels, each an item of its own.
So every stage runs as it is, and what is to be found cannot be seen before: the item that is the text has no tags.
Needed beside it: `prepare.target = "order"`, `prepare.min_history = 1`, `text.item_text = "title"`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import polars as pl
from polars.io.plugins import register_io_source
from pydantic import Field

from merit.core.config import Frozen
from merit.data.normalise import clean_tags, tidy
from merit.data.schema import EVENTS, SourceTables
from merit.data.sources import files, xmc_files
from merit.data.sources.xmc_files import Document, Folder, Label, Part

T = TypeVar("T")
READ, LABELLED = datetime(2000, 1, 1, tzinfo=UTC), datetime(2000, 7, 1, tzinfo=UTC)
BATCH = 2_000  # documents in memory at a time
MARKS: dict[Part, str] = {"train": "trn", "test": "tst"}
INTERACTIONS = pl.Schema(
    {
        "user_id": pl.String(),
        "item_id": pl.String(),
        "timestamp": pl.Datetime("ms", "UTC"),
        "event": EVENTS,
        "order_id": pl.String(),
        "problem": pl.String(),
        "file": pl.String(),
        "row": pl.UInt64(),
        "zone": pl.String(),
        "original": pl.Struct({"document": pl.String()}),
    }
)
ITEMS = pl.Schema(
    {
        "item_id": pl.String(),
        "title": pl.String(),
        "tags": pl.List(pl.String),
        "vertical": pl.String(),
        "problem": pl.String(),
        "file": pl.String(),
        "row": pl.UInt64(),
        "original": pl.Struct({"text": pl.String()}),
    }
)
GIVEN_SPLIT = pl.when(pl.col("user_id").str.starts_with(f"{MARKS['test']}/")).then(pl.lit("test"))
"""Of documents, by user id: test as given; null leaves training documents to be parted for validation."""


class XmcSource(Frozen):
    """Documents → labels. Train and test are as given; validation is a part of train."""

    kind: Literal["xmc"] = "xmc"
    folder: Path
    content: bool = True
    """Whether a document's content is read, or its title alone (raw text)."""
    max_text_chars: Annotated[int, Field(ge=1)] = 20_000
    """Of a longer text the beginning is read: no prompt holds more."""
    max_bad_share: Annotated[float, Field(ge=0, le=1)] = 0.001
    """Go on without unusable documents and labels up to this share of them."""


def open_xmc(source: XmcSource) -> SourceTables:
    """Both tables, read line by line whenever they are asked for."""
    found = xmc_files.find(source.folder)
    n_labels = xmc_files.count(found)

    def documents(part: Part) -> Iterator[Document]:
        return xmc_files.documents(found, part, n_labels, source.content)

    return SourceTables(
        interactions=_scan(INTERACTIONS, lambda: chain.from_iterable(_events(documents(part), part) for part in MARKS)),
        items=_scan(ITEMS, lambda: _items(found, documents, source.max_text_chars)),
        inputs={"documents": files.fingerprint(found.files(), source.folder)},
        names={"interactions": str(source.folder), "items": str(source.folder)},
        max_bad_share=source.max_bad_share,
    )


def user_id(part: Part, line: int, name: str) -> str:
    """Unique by the line, readable by the name: names may repeat, and one that does would join two documents."""
    return f"{MARKS[part]}/{line}/{name[:80]}"


def line_of(user: str) -> int:
    """The line of a document, by its user id."""
    return int(user.split("/", 2)[1])


def _label_id(number: int) -> str:
    return f"label/{number:09}"  # the order of ids is that of the file: it is the order in which labels are said


def _events(documents: Iterator[Document], part: Part) -> Iterator[pl.DataFrame]:
    """The text of each document is seen, then its labels are ordered. Unusable ones are told among the items."""
    for some in _groups(documents):
        usable = [each for each in some if not each.problem]
        seen = _frame(
            INTERACTIONS | {"labels": pl.List(pl.String)},
            {
                "user_id": [user_id(part, each.line, each.name) for each in usable],
                "labels": [[_label_id(label) for label in each.labels] for each in usable],
                "file": [str(each.file) for each in usable],
                "row": [each.line for each in usable],
                "zone": ["UTC"] * len(usable),
                "original": [{"document": each.name} for each in usable],
            },
        )
        ordered = seen.explode("labels").drop_nulls("labels")
        yield pl.concat(
            [
                _happened(seen, pl.col("user_id"), READ, "view", pl.lit(None)),
                _happened(ordered, pl.col("labels"), LABELLED, "purchase", pl.col("user_id")),
            ]
        )


def _happened(rows: pl.DataFrame, item: pl.Expr, at: datetime, event: str, order: pl.Expr) -> pl.DataFrame:
    made = rows.with_columns(item_id=item, timestamp=pl.lit(at), event=pl.lit(event), order_id=order)
    return made.select(INTERACTIONS.names()).cast(INTERACTIONS)


def _items(found: Folder, documents: Callable[[Part], Iterator[Document]], most: int) -> Iterator[pl.DataFrame]:
    """Labels, each its own tag, then documents without tags."""
    for names in _groups(xmc_files.labels(found)):
        yield _described([_label_id(each.line - 1) for each in names], names, most, "labels")
    for part in MARKS:
        for texts in _groups(documents(part)):
            yield _described([user_id(part, each.line, each.name) for each in texts], texts, most, "documents")


def _groups(rows: Iterator[T]) -> Iterator[list[T]]:
    while some := list(islice(rows, BATCH)):
        yield some


def _described(ids: list[str], some: Sequence[Document | Label], most: int, vertical: str) -> pl.DataFrame:
    texts = [each.text[:most] for each in some]
    made = _frame(
        ITEMS,
        {
            "item_id": ids,
            "title": texts,
            "tags": [[text] if vertical == "labels" else [] for text in texts],
            "vertical": [vertical] * len(some),
            "problem": [each.problem for each in some],
            "file": [str(each.file) for each in some],
            "row": [each.line for each in some],
            "original": [{"text": text[:200]} for text in texts],
        },
    )
    return made.with_columns(tidy(pl.col("title")), clean_tags(pl.col("tags")))


def _frame(schema: Mapping[str, Any], columns: Mapping[str, list[Any]]) -> pl.DataFrame:
    """Columns that are not given are empty."""
    size = len(next(iter(columns.values())))
    return pl.DataFrame({name: columns.get(name, [None] * size) for name in schema}, schema=schema)


def _scan(schema: pl.Schema, batches: Callable[[], Iterator[pl.DataFrame]]) -> pl.LazyFrame:
    """A table that is made batch by batch, whenever a query asks for it."""

    def read(
        columns: list[str] | None, predicate: pl.Expr | None, rows: int | None, size: int | None
    ) -> Iterator[pl.DataFrame]:
        for batch in batches():
            kept = batch if predicate is None else batch.filter(predicate)
            kept = kept if columns is None else kept.select(columns)
            if rows is not None:
                kept = kept.head(rows)
                rows -= len(kept)
            yield kept
            if rows == 0:
                return

    return register_io_source(read, schema=schema)
