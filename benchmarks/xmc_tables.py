"""A multi-label text set (xmc_files) as the two tables that merit reads with kind = "tables".

    python -m benchmarks.xmc_tables --data FOLDER --out TABLES [--titles] [--seed 7]

A document is a user who views one item, its text, and half a year later orders its labels, each an item of its own.
The item that is the text has no tags, so no method can read the labels from the history. Set beside the tables:
`prepare.target = "order"`, `prepare.min_history = 1`, `text.item_text = "title"`, `source.max_title_chars = 20000`.

merit splits users by a hash of their id and the seed. To keep the given test set, each user id ends in the first number
that puts it on its side, for this seed and the default `prepare.split.test`. Validation is a part of train.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from shutil import rmtree
from typing import TypeVar

import numpy as np
import polars as pl

from benchmarks import harness, xmc_files
from benchmarks.xmc_files import Document, Folder, Label, Part
from merit.core import console
from merit.core.errors import DataError
from merit.data.prepare import SplitConfig, assign_users
from merit.data.sources.files import fingerprint

T = TypeVar("T")
READ, LABELLED = datetime(2000, 1, 1, tzinfo=UTC), datetime(2000, 7, 1, tzinfo=UTC)
BATCH = 20_000  # documents in memory at a time, and in a file
MAX_CHARS = 20_000  # of a longer text the beginning is kept: no prompt holds more
MAX_BAD_SHARE = 0.001  # of documents and labels that cannot be used
MARKS: dict[Part, str] = {"train": "trn", "test": "tst"}
ITEMS = {"item_id": pl.String, "title": pl.String, "tags": pl.List(pl.String), "vertical": pl.String}
BAD = {"file": pl.String, "row": pl.Int64, "reason": pl.String}


def write(folder: Path, out: Path, seed: int, content: bool = True, max_bad_share: float = MAX_BAD_SHARE) -> None:
    """Write OUT/interactions, OUT/items and OUT/bad.parquet, unless they are there and made of the same files."""
    found = xmc_files.find(folder)
    made_of = json.dumps(
        {"files": fingerprint(found.files(), folder), "seed": seed, "content": content, "max_bad_share": max_bad_share}
    )
    done = out / "made_of.json"
    if done.is_file() and done.read_text() == made_of:
        return
    rmtree(out, ignore_errors=True)
    for table in ("interactions", "items"):
        (out / table).mkdir(parents=True)
    rows, bad = 0, list[tuple[str, int, str]]()
    for number, (ids, lines) in enumerate(_batches(found, seed, content)):
        rows += len(lines)
        bad += [(str(line.file), line.line, line.problem) for line in lines if line.problem]
        usable = [(user, line) for user, line in zip(ids, lines, strict=True) if not line.problem]
        _items(usable).write_parquet(out / "items" / f"{number:05}.parquet")
        documents = [(user, line) for user, line in usable if isinstance(line, Document)]
        if documents:
            _interactions(documents).write_parquet(out / "interactions" / f"{number:05}.parquet")
    _require_usable(bad, rows, max_bad_share)
    pl.DataFrame(bad, schema=BAD, orient="row").write_parquet(out / "bad.parquet")
    done.write_text(made_of)


def user_ids(part: Part, lines: Sequence[int], names: Sequence[str], seed: int) -> list[str]:
    """The ids of documents: unique by the line, readable by the name, and on the given side of merit's split."""
    starts = [f"{MARKS[part]}/{line}/{name[:80]}" for line, name in zip(lines, names, strict=True)]
    ends = np.zeros(len(starts), dtype=np.int64)
    wrong = np.ones(len(starts), dtype=bool)
    while wrong.any():
        ids = pl.Series([f"{start}/{end}" for start, end in zip(starts, ends, strict=True)], dtype=pl.String)
        split = dict(assign_users(ids, SplitConfig(), seed, 1).select("user_id", "split").iter_rows())
        wrong = np.array([(split[user] == "test") != (part == "test") for user in ids])
        ends[wrong] += 1
    return [f"{start}/{end}" for start, end in zip(starts, ends, strict=True)]


def line_of(user: str) -> int:
    """The line of a document, by its user id."""
    return int(user.split("/", 2)[1])


def _batches(found: Folder, seed: int, content: bool) -> Iterator[tuple[list[str], Sequence[Document | Label]]]:
    """Labels, then documents, each with its item id. The order of label ids is the order in which labels are listed."""
    for labels in _groups(xmc_files.labels(found)):
        yield [f"label/{label.line - 1:09}" for label in labels], labels
    n_labels = xmc_files.count(found)
    for part in MARKS:
        for documents in _groups(xmc_files.documents(found, part, n_labels, content)):
            lines, names = [each.line for each in documents], [each.name for each in documents]
            yield user_ids(part, lines, names, seed), documents


def _groups(rows: Iterator[T]) -> Iterator[list[T]]:
    while group := list(islice(rows, BATCH)):
        yield group


def _items(usable: Sequence[tuple[str, Document | Label]]) -> pl.DataFrame:
    """A label is its own tag; a document has none."""
    rows = [
        (item, line.text[:MAX_CHARS], *(([line.text], "labels") if isinstance(line, Label) else ([], "documents")))
        for item, line in usable
    ]
    return pl.DataFrame(rows, schema=ITEMS, orient="row")


def _interactions(usable: Sequence[tuple[str, Document]]) -> pl.DataFrame:
    views = [(user, user, READ, "view", None) for user, _ in usable]
    orders = [
        (user, f"label/{label:09}", LABELLED, "purchase", user)
        for user, document in usable
        for label in document.labels
    ]
    schema = {"user_id": pl.String, "item_id": pl.String, "timestamp": pl.Datetime("ms", "UTC")}
    return pl.DataFrame(
        views + orders, schema=schema | {"event": pl.String, "order_id": pl.String}, orient="row", strict=False
    )


def _require_usable(bad: Sequence[tuple[str, int, str]], rows: int, max_bad_share: float) -> None:
    if len(bad) > max_bad_share * rows:
        file, row, reason = bad[0]
        raise DataError(
            f"{file}, row {row}: {reason}. This and {len(bad) - 1:,} more of {rows:,} lines cannot be used, more than "
            f"the {max_bad_share:.2%} allowed. Mend them, or go on without them: --max-bad-share {len(bad) / rows:.2g}."
        )
    if bad:
        console.warn(f"{len(bad):,} of {rows:,} lines could not be used; bad.parquet has the reasons", rows=len(bad))


def main() -> None:
    parser = harness.parser(__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--titles", action="store_true", help="read titles alone, without the content (raw text)")
    parser.add_argument("--max-bad-share", type=float, default=MAX_BAD_SHARE)
    given = parser.parse_args()
    write(given.data, given.out, given.seed, not given.titles, given.max_bad_share)


if __name__ == "__main__":
    harness.run(main)
