"""Tags as a CSV file for a person to look through, and back.

The file has a row for each item and tag. A tag is taken away by `no` in its column `keep`, changed by writing another,
and added by a new row. What is read back is all there is to know about the items in it; other items are as they were.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from merit.core import files
from merit.core.errors import DataError
from merit.data.sources.files import columns_of, require_file, scan
from merit.data.sources.files import reading as reading_files
from merit.labels.names import clean

NEEDED = ("item_id", "tag")
NO = ("no", "n", "0", "false", "x")
MARK = "'"  # before what a spreadsheet would run as a formula
FORMULA = r"^[\s\p{C}\p{Z}]*[=+\-−@＝＋－＠|%]"


def write_review(tags: pl.DataFrame, items: pl.DataFrame, file: Path) -> int:
    """Write item_id, title, tag, score, reason, keep, the doubtful first; how many rows. Items without tags, too."""
    table = items.select("item_id", "title").join(tags, on="item_id", how="left", maintain_order="left")
    doubt = pl.col("score").fill_null(0).min().over("item_id")
    rows = table.with_columns(doubt=doubt, keep=pl.lit("")).sort(
        "doubt", "item_id", "score", descending=[False, False, True]
    )
    texts = [
        pl.when(pl.col(name).str.contains(FORMULA)).then(MARK + pl.col(name)).otherwise(name).alias(name)
        for name in ("item_id", "title", "tag")
    ]
    content = rows.with_columns(texts).select("item_id", "title", "tag", pl.col("score").round(4), "reason", "keep")
    files.write(file, content.write_csv(quote_style="non_numeric"), 0o644)
    return len(content)


def read_review(file: Path) -> pl.DataFrame:
    """item_id, tag, score, reason: the tags that a person left; an item without any has one row without a tag."""
    require_file(file)
    with reading_files((file,)):
        frame = scan(file, file.parent)
        names = columns_of(frame)
        if absent := [name for name in NEEDED if name not in names]:
            raise DataError(
                f"{file} has no column {' nor '.join(absent)}. Begin with the file that `merit tag --review FILE` "
                "writes, and keep its header."
            )
        table = frame.select(name for name in (*NEEDED, "score", "reason", "keep") if name in names).collect()
    absent_columns = [pl.lit(None, pl.String).alias(name) for name in ("score", "reason", "keep") if name not in names]
    table = table.cast(pl.String).with_columns(absent_columns)
    if len(empty := (table["item_id"].fill_null("").str.strip_chars() == "").arg_true()):
        raise DataError(f"{file}, row {empty[0] + 1}: item_id is empty. Fill it in, or remove the row.")
    bare = [pl.col(name).str.replace(f"^{MARK}", "") for name in NEEDED]
    table = table.with_columns(bare).with_columns(
        pl.col("tag").fill_null("").map_elements(clean, return_dtype=pl.String),
        pl.col("score").cast(pl.Float64, strict=False).fill_null(1.0),
        pl.col("reason").fill_null("given"),
    )
    gone = pl.col("keep").fill_null("").str.strip_chars().str.to_lowercase().is_in(NO) | (pl.col("tag") == "")
    kept = table.with_columns(tag=pl.when(~gone).then("tag")).select("item_id", "tag", "score", "reason")
    named = kept.drop_nulls("tag").unique(["item_id", "tag"], keep="first", maintain_order=True)
    bare_items = kept.select("item_id").unique(maintain_order=True).join(named, on="item_id", how="anti")
    return pl.concat([named, bare_items.with_columns(tag=pl.lit(None, pl.String), score=1.0, reason=pl.lit("given"))])
