"""Do people agree with the thresholds of soft matching? Pairs of labels, judged by a person, against their cosines.

    write_sheet(Path("runs/demo"), Path("pairs.csv"), pairs=100, seed=7)     # a predicted label beside a gold one
    judged = read_sheets([Path("pairs.csv")])                                # when somebody has judged them
    agreements(judged, cosines(judged, encoder), seed=7)

The sheet does not show cosines, so they sway nobody, and any encoder can be compared with the same judgements. Pairs
are drawn evenly from bins of cosine: the threshold that agrees most is where half of the pairs mean the same, and that
does not depend on how many pairs a bin has.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from merit.core import artifacts, files
from merit.core.errors import DataError
from merit.core.ragged import Ragged
from merit.core.seeds import stream
from merit.core.types import Floats, Ints, LabelEncoder
from merit.evaluation.evaluate import read_predictions, training_popularity, truth_of_test_users
from merit.evaluation.matching import NEAR, SOFT, near_pairs
from merit.evaluation.predictions import BUDGET
from merit.evaluation.trivial import history_frequency_and_popularity
from merit.evaluation.uncertainty import RESAMPLES
from merit.labels import space
from merit.labels.build import load_vectors

Flags = NDArray[np.bool_]
COLUMNS = ("first", "second", "judgement", "reason")
SAME, RELATED, DIFFERENT = "same", "related", "different"
QUESTIONS = {SAME: (SOFT, (SAME,)), f"{SAME} or {RELATED}": (NEAR, (SAME, RELATED))}  # default, judgements that say yes
EDGES = np.linspace(0.4, 1.0, 13)  # of bins: below, nothing is near; at one, nothing is left to decide
GRID = np.linspace(0.4, 1.0, 61)  # thresholds that are tried


FIGURES = ("judged", "pairs", "default", "agreement", "best", "low", "high", "best_agreement")


def write_sheet(run: Path, sheet: Path, pairs: int, seed: int) -> int:
    """Write pairs of a run to be judged, in random order; how many. A sheet that is there is never overwritten.

    Predicted labels come from the run's predictions, or before there are any from histories and popularity.
    """
    if sheet.exists():
        raise DataError(f"{sheet} exists, and may hold judgements. Name another file.")
    corpus, labels = (artifacts.load(run / name, name) for name in ("corpus", "labels"))
    known, vectors = space.load(labels.path), load_vectors(labels)
    truth = truth_of_test_users(corpus, known, vectors)
    made = [artifacts.load(folder, "predictions") for folder in sorted(run.glob("predictions-*")) if folder.is_dir()]
    predicted = [method.at(BUDGET) for artifact in made for method in read_predictions(artifact)]
    predicted = predicted or [history_frequency_and_popularity(truth, training_popularity(known)).at(BUDGET)]
    drawn = draw(predicted, truth.gold, vectors, pairs, seed)
    texts = np.asarray(known.texts, dtype=object)
    columns = (*texts[drawn].T.tolist(), [""] * len(drawn), [""] * len(drawn))
    files.write(sheet, pl.DataFrame(dict(zip(COLUMNS, columns, strict=True))).write_csv(), 0o644)
    return len(drawn)


def draw(predicted: Sequence[Ragged], gold: Ragged, vectors: Floats, number: int, seed: int) -> Ints:
    """(pairs, 2): two different labels, predicted and gold for one example, evenly from all bins that have any."""
    keys, cosine = np.zeros(0, np.int64), np.zeros(0, np.float32)
    for lists in predicted:
        first, second, near = near_pairs(lists, gold, vectors, EDGES[0])
        ends = np.sort(np.stack([lists.values[first], gold.values[second]]).astype(np.int64), axis=0)
        keys, cosine = np.append(keys, ends[0] * len(vectors) + ends[1]), np.append(cosine, near)
    keys, place = np.unique(keys, return_index=True)
    bins, rng = np.digitize(cosine[place], EDGES), stream(seed, "judging", "pairs")
    shuffled = rng.permutation(np.flatnonzero(keys // len(vectors) != keys % len(vectors)))
    order = shuffled[np.argsort(bins[shuffled], kind="stable")]
    turn = np.arange(len(order)) - np.searchsorted(bins[order], bins[order])  # the nth of its bin
    chosen = rng.permutation(order[np.argsort(turn, kind="stable")][:number])
    return np.stack(np.divmod(keys[chosen], len(vectors)), axis=1)


def read_sheets(sheets: Sequence[Path]) -> pl.DataFrame:
    """The judged pairs of all sheets; pairs without a judgement are left out."""
    judged = pl.concat([_read(sheet) for sheet in sheets])
    if judged.is_empty():
        raise DataError(
            f"{sheets[0]} has no judgement. Write {SAME}, {RELATED} or {DIFFERENT} into its column 'judgement'."
        )
    return judged


def _read(sheet: Path) -> pl.DataFrame:
    try:
        frame = pl.read_csv(sheet, columns=list(COLUMNS), infer_schema=False)
    except FileNotFoundError:
        raise DataError(f"{sheet} does not exist. Make it with `merit labels judge {sheet} --run RUN`.") from None
    except (pl.exceptions.PolarsError, OSError) as error:
        raise DataError(f"{sheet} is no sheet with the columns {', '.join(COLUMNS)}: {error}.") from None
    frame = frame.with_columns(pl.col("judgement").fill_null("").str.strip_chars().str.to_lowercase())
    for row, word in enumerate(frame["judgement"].to_list(), 2):
        if word not in ("", SAME, RELATED, DIFFERENT):
            raise DataError(f"{sheet}, line {row}: '{word}' is no judgement. Write {SAME}, {RELATED} or {DIFFERENT}.")
    return frame.filter(pl.col("judgement") != "")


def cosines(judged: pl.DataFrame, encoder: LabelEncoder) -> Floats:
    """Of every pair, as this encoder has it."""
    first, second = (encoder.encode(judged[name].to_list()) for name in COLUMNS[:2])
    similarity: Floats = np.einsum("ij,ij->i", first, second)
    return similarity


def agreements(judged: pl.DataFrame, cosine: Floats, seed: int, resamples: int = RESAMPLES) -> pl.DataFrame:
    """A row for each threshold: that of a soft match, and that from which labels are no longer told apart.

    `agreement` is the share of pairs on which the default and the judgements say the same; `best` the threshold that
    agrees most, with its 95 % interval over pairs.
    """
    weights, rows = _resampled(np.digitize(cosine, EDGES), seed, resamples), []
    for question, (default, words) in QUESTIONS.items():
        yes = judged["judgement"].is_in(words).to_numpy()
        right = agreeing(cosine, yes, GRID)
        low, high = np.percentile([_best(row) for row in weights @ right], [2.5, 97.5])
        best = _best(right.sum(0))
        at_default, at_best = agreeing(cosine, yes, np.array([default, best])).mean(0).tolist()
        rows.append((question, len(yes), default, at_default, best, float(low), float(high), at_best))
    return pl.DataFrame(rows, schema=FIGURES, orient="row")


def agreeing(cosine: Floats, yes: Flags, thresholds: NDArray[np.float64]) -> Flags:
    """(pairs, thresholds): whether a threshold and the judgement of a pair say the same."""
    same: Flags = (cosine[:, None] >= thresholds.astype(np.float32)) == yes[:, None]
    return same


def by_bin(judged: pl.DataFrame, cosine: Floats) -> pl.DataFrame:
    """How the pairs of each bin of cosine were judged."""
    names = [f"{low:.2f}–{high:.2f}" for low, high in pairwise(EDGES)]
    bins = np.digitize(cosine, EDGES)
    cells = [f"below {EDGES[0]:.2f}", *names, "1.00"]
    counts = {word: (pl.col("judgement") == word).sum() for word in (SAME, RELATED, DIFFERENT)}
    frame = judged.with_columns(bin=pl.Series(bins), cosine=pl.Series([cells[bin] for bin in bins]))
    return frame.group_by("bin", "cosine").agg(pl.len().alias("pairs"), **counts).sort("bin").drop("bin")


def _best(right: NDArray[np.floating]) -> float:
    """The threshold with the most agreement; of several the one in the middle."""
    best = np.flatnonzero(right >= right.max() - 1e-9)
    return float(GRID[best[len(best) // 2]])


def _resampled(bins: Ints, seed: int, resamples: int) -> NDArray[np.float64]:
    """(resamples, pairs): how often each pair is drawn, within its bin."""
    weights, rng = np.zeros((resamples, len(bins))), stream(seed, "judging", "bootstrap")
    for number in np.unique(bins).tolist():
        inside = np.flatnonzero(bins == number)
        weights[:, inside] = rng.multinomial(len(inside), np.full(len(inside), 1 / len(inside)), resamples)
    return weights
