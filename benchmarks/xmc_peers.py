"""What one would use for extreme classification instead: linear models on the words of the texts.

All of them get TF-IDF of the whole text, and so much time. None of these libraries can be stopped, so a tenth of the
documents is tried first, and then as many are used as will fit.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from merit.core.errors import MissingDependency
from merit.core.ragged import Ragged, indicators
from merit.core.seeds import stream
from merit.core.types import Ints

TRIED = 0.1
SPARE = 1.5  # models take a little longer than in proportion to their documents
MAX_WORDS = 200_000


@dataclass(frozen=True)
class Task:
    """Texts of training and test documents, and the labels of the former."""

    train: Any
    test: Any
    gold: Ragged
    labels: int
    seconds: float
    threads: int
    seed: int
    most: int
    """Labels asked for."""


@dataclass(frozen=True)
class Found:
    said: Ragged
    seconds: float
    """Of training, the words' weights not among them."""
    documents: int


def task(
    train: Sequence[str],
    test: Sequence[str],
    gold: Ragged,
    labels: int,
    seconds: float,
    threads: int,
    seed: int,
    most: int,
) -> Task:
    """Words and pairs of words, weighted by how rare they are in training."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    words = TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2), min_df=2, max_features=MAX_WORDS, dtype=np.float32)
    rows = [_ordered(words.fit_transform(train)), _ordered(words.transform(test))]
    return Task(rows[0], rows[1], gold, labels, seconds, threads, seed, most)


def label_tree(asked: Task) -> Found:
    """A probabilistic label tree: the method of PECOS' XR-Linear, Parabel and omikuji, as napkinXC grows it."""
    return _napkin(asked, "PLT")


def one_against_rest(asked: Task) -> Found:
    """A linear classifier for every label (DiSMEC): slow with many labels, hard to beat with few."""
    return _napkin(asked, "BR")


def omikuji(asked: Task) -> Found:
    """Omikuji's forest of label trees with its own settings."""
    try:
        import omikuji as library  # type: ignore[import-not-found]
    except ImportError:
        raise MissingDependency("omikuji is not installed; `pip install omikuji` adds its row.") from None

    with TemporaryDirectory() as folder:

        def fit(rows: Ints) -> Any:
            file = Path(folder) / "train.txt"
            spoken = rows[np.diff(asked.train.indptr)[rows] > 0]  # it refuses a file with a text of no known word
            _write(file, asked.train[spoken], asked.gold.gather(spoken), asked.labels)
            begin = time.perf_counter()
            with _silence():
                model = library.Model.train_on_data(str(file), n_threads=asked.threads)
            return model, time.perf_counter() - begin

        model, seconds, documents = _within(fit, asked)
    return Found(Ragged.of([_asked_omikuji(model, row, asked.most) for row in asked.test]), seconds, documents)


PEERS: dict[str, Callable[[Task], Found]] = {
    "label tree (napkinXC PLT)": label_tree,
    "one against the rest (napkinXC BR)": one_against_rest,
    "omikuji": omikuji,
}


def _napkin(asked: Task, name: str) -> Found:
    try:
        from napkinxc import models
    except ImportError:
        raise MissingDependency(
            "napkinXC is not installed. Install it with `pip install 'merit-interests[peers]'`."
        ) from None
    gold = _ordered(indicators(asked.gold, asked.labels))
    solver = "L2R_LR"  # the default one draws from C's rand, whose seed is not the model's
    with TemporaryDirectory() as folder:

        def fit(rows: Ints) -> tuple[Any, float]:
            place = f"{folder}/{len(rows)}"
            own = {"liblinear_solver": solver, "threads": asked.threads, "seed": asked.seed}
            model = getattr(models, name)(place, **own)
            begin = time.perf_counter()
            model.fit(asked.train[rows], gold[rows])
            return model, time.perf_counter() - begin

        model, seconds, documents = _within(fit, asked)
        said = model.predict(asked.test, top_k=asked.most)
    return Found(Ragged.of(said), seconds, documents)


def _within(fit: Callable[[Ints], tuple[Any, float]], asked: Task) -> tuple[Any, float, int]:
    """A model of as many documents as fit into the time, by what a tenth of them took; its seconds, its documents."""
    everyone = stream(asked.seed, "xmc-peers").permutation(asked.train.shape[0])
    few = np.sort(everyone[: max(1, int(TRIED * len(everyone)))])
    model, tried = fit(few)
    left = max(0.0, asked.seconds - tried)
    size = min(len(everyone), int(len(few) * left / max(SPARE * tried, 1e-9)))
    if size <= len(few):
        return model, tried, len(few)
    model, seconds = fit(np.sort(everyone[:size]))
    return model, tried + seconds, size


def _ordered(rows: Any) -> Any:
    """With the columns of every row ascending: napkinXC takes that for granted, and breaks memory otherwise."""
    made = csr_matrix(rows, dtype=np.float32)
    made.sort_indices()
    return made


def _write(file: Path, rows: Any, gold: Ragged, labels: int) -> None:
    """The repository's bag-of-words format."""
    with file.open("w") as opened:
        opened.write(f"{rows.shape[0]} {rows.shape[1]} {labels}\n")
        for number, row in enumerate(rows):
            words = " ".join(f"{word}:{value:.6g}" for word, value in zip(row.indices, row.data, strict=True))
            opened.write(f"{','.join(map(str, gold[number]))} {words}\n")


@contextmanager
def _silence() -> Iterator[None]:
    """Omikuji tells every example it counts, past Python's own streams."""
    sys.stdout.flush()
    kept = [os.dup(number) for number in (1, 2)]
    with Path(os.devnull).open("w") as nowhere:
        for number in (1, 2):
            os.dup2(nowhere.fileno(), number)
    try:
        yield
    finally:
        for number, own in zip((1, 2), kept, strict=True):
            os.dup2(own, number)
            os.close(own)


def _asked_omikuji(model: Any, row: Any, most: int) -> list[int]:
    pairs = list(zip(row.indices.tolist(), row.data.tolist(), strict=True))
    return [int(label) for label, _ in model.predict(pairs, beam_size=max(10, most), top_k=most)]
