"""Phrases of titles as tags: a data set with many more labels, made of one that has titles.

    python -m benchmarks.phrases --data FOLDER --out FOLDER [--least 4] [--most 0.2] [--alone]

FOLDER holds interactions.parquet and items.parquet. A phrase is one to three words that follow each other in titles: in
`--least` of them or more, and in no more than the share `--most`. The tags that items have stay, unless `--alone`. The
new folder is read like any other: `merit bench configs/bench.toml --set data=…` knows it as amazon_beauty_phrases.
`--quick` counts the phrases of a planted shop.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl

from benchmarks import harness
from merit.data import planted
from merit.labels.mentions import words_of

LONGEST = 3  # words
LINKS = {*("a", "an", "and", "at", "by", "for", "from", "in", "of", "on", "or", "the", "to", "with")}
LINKS |= {*("pack", "oz", "ounce", "fl", "ml", "inch", "inche")}
"""A phrase does not begin or end with one of these: it is a piece of another, or a size."""


def phrases(titles: pl.Series, least: int = 4, most: float = 0.2, longest: int = LONGEST) -> pl.Series:
    """The phrases of every title, in alphabetical order: those in at least so many titles, and at most this share."""
    words = words_of(titles)
    shifted = [pl.col("word").shift(-step).over("row") for step in range(longest)]
    pieces = [
        words.select("row", first="word", last=shifted[size - 1], phrase=pl.concat_str(shifted[:size], separator=" "))
        for size in range(1, longest + 1)
    ]
    ends = pl.any_horizontal(pl.col("first", "last").is_in(LINKS) | ~pl.col("first", "last").str.contains(r"\p{L}{2}"))
    found = pl.concat(pieces).drop_nulls("phrase").filter(~ends).unique(["row", "phrase"])
    often = found.group_by("phrase").len().filter(pl.col("len").is_between(least, most * len(titles)))
    named = found.join(often, on="phrase").sort("phrase").group_by("row").agg("phrase")
    rows = pl.DataFrame({"row": range(len(titles))}).join(named, on="row", how="left", maintain_order="left")
    return rows["phrase"].fill_null(pl.Series([[]], dtype=pl.List(pl.String))).alias("tags")


def tagged(items: pl.DataFrame, least: int, most: float, alone: bool) -> pl.DataFrame:
    """The items with phrases of their titles behind their tags, or in place of them."""
    made = phrases(items["title"], least, most)
    if alone:
        return items.with_columns(made)
    own = pl.col("tags").list.eval(pl.element().str.to_lowercase())
    new = pl.col("made").list.set_difference(own.fill_null([])).list.sort()
    return (
        items.with_columns(made=made).with_columns(tags=pl.concat_list(pl.col("tags").fill_null([]), new)).drop("made")
    )


def written(data: Path, out: Path, least: int, most: float, alone: bool) -> dict[str, Any]:
    """Write the new folder; how many tags there are now."""
    items = tagged(pl.read_parquet(data / "items.parquet"), least, most, alone)
    out.mkdir(parents=True, exist_ok=True)
    items.write_parquet(out / "items.parquet")
    shutil.copyfile(data / "interactions.parquet", out / "interactions.parquet")
    sizes = items["tags"].list.len()
    return {
        "tags": items["tags"].explode().drop_nulls().n_unique(),
        "tags_per_item": round(float(sizes.mean()), 2),  # type: ignore[arg-type]
        "items": len(items),
        "items_without": int((sizes == 0).sum()),
    }


def main() -> None:
    parser = harness.parser(__doc__)
    parser.add_argument("--out", type=Path, default=Path("data/amazon_beauty_phrases"))
    parser.add_argument("--least", type=int, default=4, help="titles that have the phrase")
    parser.add_argument("--most", type=float, default=0.2, help="share of titles that have it")
    parser.add_argument("--alone", action="store_true", help="in place of the tags that items have")
    arguments = parser.parse_args()
    with TemporaryDirectory() as temporary:
        data, out = arguments.data, arguments.out
        if arguments.quick or not data:
            data, out = Path(temporary) / "shop", Path(temporary) / "phrases"
            planted.write(planted.shop(planted.PlantedConfig(users=50), arguments.seed), data)
        figures = written(data, out, arguments.least, arguments.most, arguments.alone)
    harness.finish("phrases", figures, arguments.seed)


if __name__ == "__main__":
    harness.run(main)
