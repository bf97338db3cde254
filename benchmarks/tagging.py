"""How well titles become tags, how fast, and what that does to interests.

    python -m benchmarks.tagging --quick
    python -m benchmarks.tagging --data FOLDER [--vertical]
    python -m benchmarks.tagging --data FOLDER --run [--least 1]
    python -m benchmarks.tagging --data FOLDER --sheet judged.csv
    python -m benchmarks.tagging --judged benchmarks/tagging_judged.csv

FOLDER holds interactions.parquet and items.parquet; without one it is Complete Journey, which is installed. 30 % of the
items lose their tags; each method ranks labels for them from their titles (with `--vertical`: and their vertical, which
TF-IDF reads as a word). Intervals are 95 %, over items. `--quick` takes 4,000 items and the hashed encoder. `--run`
removes all tags, mines them from titles, trains the quick preset on them, and compares it with popularity and the
linear model on the same labels; then hides 30 %, completes them, and compares with full tags. `--sheet` writes 200
mined tags to judge.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl
import scipy.sparse as sp
from sklearn.feature_extraction.text import CountVectorizer

from benchmarks import harness
from merit.core import seeds
from merit.core.console import show_table
from merit.core.errors import DataError
from merit.core.types import Ints, LabelEncoder
from merit.data import sources
from merit.data.sources import CompleteJourneySource, TablesSource
from merit.data.validate import index
from merit.labels import encoders
from merit.labels.tagging import titles
from merit.labels.tagging.complete import CompleteConfig, complete, tag_matrix
from merit.labels.tagging.evidence import TitleFeatures, nearest, weights_of
from merit.labels.tagging.phrases import MineConfig, described, mine
from merit.labels.tagging.vocabulary import VocabularyConfig, assign

HIDDEN = 0.3
CUTS = (3, 5)
NEIGHBOURS = 20
RESAMPLES = 1_000
QUICK, SHEET = 4_000, 200
METHODS = {
    "complete": "complete",
    "tfidf": "TF-IDF neighbours",
    "encoder": "encoder, neighbours",
    "names": "encoder, names of labels",
    "assign": "assign, names of labels",
}
Ranking = pl.DataFrame  # row, label, best first


def items_of(data: Path | None, most: int | None, seed: int) -> pl.DataFrame:
    source = TablesSource(interactions=data, items=data / "items.parquet") if data else CompleteJourneySource()
    items = index(sources.open_items(source), extra=("text", "brand")).items
    if most and len(items) > most:
        rows = seeds.stream(seed, "benchmark", "items").permutation(len(items))[:most]
        items = items[np.sort(rows)].drop("item").with_row_index("item")
    return items


def of_neighbours(similar: Any, tags: Any, wanted: Ints, power: int) -> Ranking:
    """Labels by the votes of similar items."""
    similar.data = np.maximum(similar.data, 0) ** power
    votes = (similar @ tags).tocoo()
    table = pl.DataFrame({"row": wanted[votes.row], "label": votes.col.astype(np.int64), "score": votes.data})
    return table.sort("row", "score", "label", descending=[False, True, False])


def methods(
    items: pl.DataFrame, tags: Any, names: pl.Series, wanted: Ints, vertical: bool, encoder: LabelEncoder, seed: int
) -> dict[str, Ranking]:
    """Every method's labels for the items `wanted`, whose tags are not in `tags`."""
    texts, known = titles.plain(items["title"]), np.setdiff1d(np.arange(len(items)), wanted)
    verticals = items["vertical"] if vertical else pl.Series(["none"] * len(items))
    read = texts + " " + items["vertical"] if vertical else texts
    ranked = {"complete": complete(texts, verticals, tags, CompleteConfig(), encoder, seed)}
    counts = TitleFeatures(_counted(read), np.zeros((len(items), 0), np.float32))
    weighed = weights_of(counts, known)
    ranked["tfidf"] = of_neighbours(nearest(weighed[wanted], weighed[known], NEIGHBOURS), tags[known], wanted, 2)
    vectors = encoder.encode(texts.to_list())
    ranked["encoder"] = of_neighbours(_near(vectors, wanted, known), tags[known], wanted, 6)
    labels = encoder.encode(names.to_list())
    ranked["names"] = _of_names(vectors, labels, wanted)
    assigned = assign(
        texts.gather(wanted),
        names,
        VocabularyConfig(encoded_titles=len(items), enough=5, best=5, similar=0.01),
        encoder,
    )
    ranked["assign"] = assigned.with_columns(row=pl.Series(wanted).gather(assigned["row"]))
    return ranked


def _counted(texts: pl.Series) -> Any:
    reader = CountVectorizer(ngram_range=(1, 2), token_pattern=r"(?u)\b\w+\b", binary=True, dtype=np.float32)
    return reader.fit_transform(texts.to_list()).tocsr()


def _near(vectors: Any, wanted: Ints, known: Ints) -> Any:
    parts = []
    for at in range(0, len(wanted), 512):
        cosine = vectors[wanted[at : at + 512]] @ vectors[known].T
        top = np.argpartition(-cosine, NEIGHBOURS, axis=1)[:, :NEIGHBOURS]
        rows = np.repeat(np.arange(len(top)), NEIGHBOURS)
        values = np.take_along_axis(cosine, top, axis=1).ravel()
        parts.append(sp.csr_matrix((values, (rows, top.ravel())), shape=cosine.shape))
    return sp.vstack(parts).tocsr()


def _of_names(vectors: Any, labels: Any, wanted: Ints) -> Ranking:
    tops = []
    for at in range(0, len(wanted), 512):
        tops.append(np.argsort(-(vectors[wanted[at : at + 512]] @ labels.T), axis=1, kind="stable")[:, : max(CUTS)])
    top = np.concatenate(tops)
    return pl.DataFrame({"row": np.repeat(wanted, top.shape[1]), "label": top.ravel().astype(np.int64)})


def hits(ranked: Ranking, truth: Any, wanted: Ints, cut: int) -> Ints:
    """Right labels among the first so many, by item of `wanted`."""
    first = ranked.group_by("row", maintain_order=True).head(cut)
    right = np.asarray(truth[first["row"].to_numpy(), first["label"].to_numpy()]).ravel() > 0
    counts = np.bincount(first["row"].to_numpy(), right, minlength=truth.shape[0])
    return counts[wanted].astype(np.int64)


def quality(items: pl.DataFrame, vertical: bool, encoder: LabelEncoder, seed: int) -> dict[str, float]:
    tagged = np.flatnonzero((items["tags"].list.len() > 0).to_numpy())
    if len(tagged) < 500:
        raise DataError("Fewer than 500 items have tags. Name a folder with more: --data FOLDER.")
    pairs = items.select("item", tag="tags").explode("tag").drop_nulls("tag")
    names = pairs["tag"].unique().sort()
    label = pairs.join(pl.DataFrame({"tag": names, "label": np.arange(len(names))}), on="tag", maintain_order="left")
    rows, labels = label["item"].to_numpy().astype(np.int64), label["label"].to_numpy()
    truth = tag_matrix(rows, labels, len(items), len(names))
    wanted = np.sort(seeds.stream(seed, "benchmark", "hidden").permutation(tagged)[: int(HIDDEN * len(tagged))])
    kept = ~np.isin(rows, wanted)
    left = tag_matrix(rows[kept], labels[kept], len(items), len(names))
    ranked, seconds = harness.timed(lambda: methods(items, left, names, wanted, vertical, encoder, seed))
    sizes = np.diff(truth.indptr)[wanted]
    draws = seeds.stream(seed, "benchmark", "draws").integers(len(wanted), size=(RESAMPLES, len(wanted)))
    figures, table = {}, {name: [title] for name, title in METHODS.items()}
    for cut in CUTS:
        found = {name: hits(ranking, truth, wanted, cut) for name, ranking in ranked.items()}
        for metric, size in (("recall", sizes), ("precision", cut)):
            for name, right in found.items():
                low, high = np.quantile(((found["complete"] - right) / size)[draws].mean(axis=1), [0.025, 0.975])
                figures[f"{name}_{metric}_{cut}"] = round(float((right / size).mean()), 4)
                ahead = "" if name == "complete" else f" [{low:.3f}, {high:.3f}]"
                table[name].append(f"{(right / size).mean():.3f}{ahead}")
    heads = [f"{metric} at {cut}" for cut in CUTS for metric in ("recall", "precision")]
    title = f"{len(wanted):,} items without tags, {len(names):,} labels, {seconds:.0f} s; [complete is ahead by]"
    show_table(title, ["method", *heads], table.values())
    return dict(sorted(figures.items()))


def mined(items: pl.DataFrame, least: int, encoder: LabelEncoder | None) -> tuple[pl.DataFrame, pl.DataFrame]:
    return mine(titles.plain(items["title"]), items["brand"], MineConfig(least=least), encoder)


def write_sheet(items: pl.DataFrame, least: int, encoder: LabelEncoder, file: Path, seed: int) -> int:
    """200 mined tags with their titles, drawn at random; a person fills in `good` (yes or no) and `why` (a word)."""
    tags = described(*mined(items, least, encoder))
    tags = tags.group_by("row", maintain_order=True).head(8)
    rows = np.sort(seeds.stream(seed, "benchmark", "sheet").permutation(len(tags))[:SHEET])
    sheet = tags[rows].select(
        pl.col("tag"), title=items["title"].gather(tags[rows]["row"]), good=pl.lit(""), why=pl.lit("")
    )
    sheet.write_csv(file)
    return len(sheet)


def judged(file: Path) -> dict[str, float]:
    sheet = pl.read_csv(file)
    share = float((sheet["good"] == "yes").mean())  # type: ignore[arg-type]
    error = 1.96 * np.sqrt(share * (1 - share) / len(sheet))
    return {"judged": len(sheet), "judged_good": round(share, 3), "judged_low": round(share - error, 3)}


def main() -> None:
    parser = harness.parser(__doc__)
    parser.add_argument("--vertical", action="store_true", help="methods read the vertical of items, too")
    parser.add_argument("--run", action="store_true", help="train the quick preset on mined and completed tags")
    parser.add_argument("--least", type=int, default=MineConfig().least, help="titles that have a mined phrase")
    parser.add_argument("--sheet", type=Path, help="write 200 mined tags there, to be judged")
    parser.add_argument("--judged", type=Path, default=Path(__file__).with_name("tagging_judged.csv"))
    given = parser.parse_args()
    with TemporaryDirectory() as temporary:
        cache = Path(temporary)
        name = "hashed" if given.quick else "minilm-numpy"
        encoder = encoders.Cached(encoders.make(name), cache)
        items = items_of(given.data, QUICK if given.quick else None, given.seed)
        if given.sheet:
            print(f"{write_sheet(items, given.least, encoder, given.sheet, given.seed)} tags in {given.sheet}")
            return
        if given.run:
            from benchmarks import tagging_run

            harness.finish("tagging", tagging_run.figures(given.data, given.least, name, cache, given.seed), given.seed)
            return
        figures = quality(items, given.vertical, encoder, given.seed)
        (phrases, _), seconds = harness.timed(lambda: mined(items, given.least, None if given.quick else encoder))
        figures |= {"mined_labels": len(phrases), "titles_per_second": round(len(items) / seconds)}
        if given.judged.exists():
            figures |= judged(given.judged)
    harness.finish("tagging", figures, given.seed)


if __name__ == "__main__":
    harness.run(main)
