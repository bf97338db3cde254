"""One side of the scorer, users or labels: their vectors and their halves, row by row, on disk or in memory.

    store.write(folder, rows, blocks_of_vectors, exact.users)     # vectors.npy, halves.npy, side.json
    users = store.read(folder, exact.users)                       # nothing is loaded but side.json

The vectors are the truth; the halves are computed here, from them and the first layer, so that the largest error of a
stored half is known and not assumed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from merit.core.config import Frozen
from merit.core.errors import DamagedArtifact, DataError
from merit.core.files import storage_errors
from merit.core.types import Floats, Ints
from merit.retrieval import quantise
from merit.retrieval.exact import Layer
from merit.retrieval.mapped import Mapped, Writer
from merit.retrieval.quantise import DTYPES, Codes, Form
from merit.retrieval.threads import cores, each, spans

FACTS = "side.json"
CHUNK = 16_384  # rows computed at a time: 40 MiB of float64 halves


class Facts(Frozen):
    """What is known of the arrays of a folder. The last two are for the bound of the error."""

    rows: int
    layer: str  # fingerprint of the weights the halves were made with
    vectors: Form
    halves: Form
    norm: float  # the largest ‖half‖
    error: float  # the largest ‖half − exact half‖


@dataclass(frozen=True)
class Rows:
    """Rows of numbers in one of the forms."""

    codes: Codes  # (N, D)
    scales: Floats | None = None  # (N,), of int8
    file: Mapped | None = None  # where codes are mapped from

    def __len__(self) -> int:
        return len(self.codes)

    def take(self, rows: Ints | slice) -> Floats:
        """(n, D): a copy of these rows in float32."""
        return quantise.decode(self.codes[rows], None if self.scales is None else self.scales[rows])

    def read(self, rows: Ints | slice, out: Floats) -> Floats:
        """(n, D) in float32: as they are if stored so, otherwise decoded into `out`."""
        if self.codes.dtype == np.float32:
            return self.codes[rows]
        out[:] = self.codes[rows]
        if self.scales is not None:
            out *= self.scales[rows, None]
        return out

    def some(self, rows: Ints) -> Rows:
        """These rows, in memory, in the form they have."""
        return Rows(self.codes[rows], None if self.scales is None else self.scales[rows])

    def check(self) -> None:
        """That the file is as long as it must be; rows in memory have none."""
        if self.file:
            self.file.check()

    def release(self, rows: range) -> None:
        """Let go of the memory that these rows of a file took. Rows held in memory stay."""
        if self.file:
            self.file.release(rows)


@dataclass(frozen=True)
class Side:
    """All users, or all labels. No half is longer than `norm`, or further from the exact one than `error`."""

    name: str  # for messages
    vectors: Rows
    halves: Rows
    norm: float
    error: float

    def __len__(self) -> int:
        return len(self.vectors)

    def some(self, rows: Ints) -> Side:
        """These rows, in memory. What bounds the errors of all bounds theirs."""
        self.check()
        return Side(self.name, self.vectors.some(rows), self.halves.some(rows), self.norm, self.error)

    def check(self) -> None:
        """That neither of its files was cut short since it was opened."""
        self.vectors.check()
        self.halves.check()


def hold(
    name: str, vectors: Floats, layer: Layer, vectors_form: Form = "float32", halves_form: Form = "float32"
) -> Side:
    """A side in memory."""
    parts = list(_parts(name, [vectors], layer, vectors_form, halves_form))
    _require_rows(name, len(vectors), len(vectors))
    arrays = {key: np.concatenate([part.arrays[key] for part in parts]) for key in parts[0].arrays}
    norm, error = (max(getattr(part, fact) for part in parts) for fact in ("norm", "error"))
    held = {key: Rows(arrays[key], arrays.get(f"{key}-scales")) for key in ("vectors", "halves")}
    return Side(name, held["vectors"], held["halves"], norm, error)


def write(
    folder: Path,
    rows: int,
    blocks: Iterable[Floats],
    layer: Layer,
    vectors_form: Form = "float32",
    halves_form: Form = "float32",
) -> Facts:
    """Write a side into a folder that exists (an artifact's draft). The blocks of vectors have `rows` rows in all."""
    done, norm, error = 0, 0.0, 0.0
    writers: dict[str, Writer] = {}
    with ExitStack() as files:
        for part in _parts(str(folder), blocks, layer, vectors_form, halves_form):
            for key, array in part.arrays.items():
                if key not in writers:
                    made = Writer(folder / f"{key}.npy", array.dtype.str, (rows, *array.shape[1:]))
                    writers[key] = files.enter_context(made)
                writers[key].add(array)
            done, norm, error = done + len(part.arrays["vectors"]), max(norm, part.norm), max(error, part.error)
    _require_rows(str(folder), done, rows)
    facts = Facts(rows=rows, layer=layer.fingerprint, vectors=vectors_form, halves=halves_form, norm=norm, error=error)
    with storage_errors(folder):
        (folder / FACTS).write_text(facts.model_dump_json(indent=1) + "\n", encoding="utf-8")
    return facts


def without(folder: Path, out: Path, dropped: Ints, layer: Layer) -> Facts:
    """Write a side again without some rows. All others keep every bit: a half depends on its vector alone."""
    facts, side = _facts(folder), read(folder, layer)
    kept = np.delete(np.arange(len(side)), dropped)
    blocks = (side.vectors.take(kept[span.start : span.stop]) for span in spans(len(kept), CHUNK))
    return write(out, len(kept), blocks, layer, facts.vectors, facts.halves)


def read(folder: Path, layer: Layer) -> Side:
    """Open a side. Files that are cut short, or that belong to other weights, are refused."""
    facts = _facts(folder)
    if facts.layer != layer.fingerprint:
        raise DamagedArtifact(f"{folder} was made for another propensity model than this one. {_AGAIN}")
    wide, half = layer.weight.shape
    vectors = _read(folder, "vectors", (facts.rows, wide), facts.vectors)
    return Side(
        str(folder), vectors, _read(folder, "halves", (facts.rows, half), facts.halves), facts.norm, facts.error
    )


def _facts(folder: Path) -> Facts:
    try:
        return Facts.model_validate_json((folder / FACTS).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ValidationError) as error:
        raise DamagedArtifact(f"{folder / FACTS} cannot be read ({type(error).__name__}). {_AGAIN}") from None


class _Part(NamedTuple):
    arrays: dict[str, Codes]
    norm: float
    error: float


def _parts(name: str, blocks: Iterable[Floats], layer: Layer, vectors_form: Form, halves_form: Form) -> Iterator[_Part]:
    """What is stored of these vectors, a chunk for each core at a time."""
    done = 0
    for block in blocks:
        _require_width(name, block, layer)
        for span in spans(len(block), CHUNK * cores()):
            some = block[span.start : span.stop]
            chunks = [(done + chunk.start, some[chunk.start : chunk.stop]) for chunk in spans(len(some), CHUNK)]
            yield from each(partial(_part, name, layer, vectors_form, halves_form), chunks, cores())
            done += len(some)


def _part(name: str, layer: Layer, vectors_form: Form, halves_form: Form, numbered: tuple[int, Floats]) -> _Part:
    first, chunk = numbered[0], np.asarray(numbered[1], np.float32)
    if not (good := np.isfinite(chunk).all(axis=1)).all():
        raise DataError(
            f"{name}: vector {first + int(np.argmin(good)):,} holds values that are not numbers. Make the vectors "
            "again; if that does not help, train the propensity model again."
        )
    arrays: dict[str, Codes] = {}
    halves = layer.halves(_encoded(arrays, "vectors", chunk, vectors_form))
    kept = _encoded(arrays, "halves", halves.astype(np.float32), halves_form).astype(np.float64)
    return _Part(arrays, _longest(kept), _longest(kept - halves))


def _encoded(arrays: dict[str, Codes], key: str, rows: Floats, form: Form) -> Floats:
    """Put the rows among the arrays, and say what will be read back."""
    arrays[key], scales = quantise.encode(rows, form)
    if scales is not None:
        arrays[f"{key}-scales"] = scales
    return quantise.decode(arrays[key], scales)


def _longest(rows: NDArray[np.float64]) -> float:
    return float(np.linalg.norm(rows, axis=1).max(initial=0))


def _require_width(name: str, vectors: Floats, layer: Layer) -> None:
    if vectors.ndim != 2 or vectors.shape[1] != len(layer.weight):
        raise DataError(f"{name}: vectors have the shape {vectors.shape}; the model needs (rows, {len(layer.weight)}).")


def _require_rows(name: str, found: int, wanted: int) -> None:
    if found != wanted or not found:
        raise DataError(f"{name}: {found:,} vectors came where {wanted:,} were announced, and there must be some.")


def _read(folder: Path, key: str, shape: tuple[int, int], form: Form) -> Rows:
    codes = _mapped(folder / f"{key}.npy", shape, DTYPES[form])
    scales = _mapped(folder / f"{key}-scales.npy", shape[:1], "<f4") if form == "int8" else None
    return Rows(codes.array, None if scales is None else np.array(scales.array), codes)  # scales: 4 bytes a row


def _mapped(path: Path, shape: tuple[int, ...], dtype: str) -> Mapped:
    file = Mapped(path)
    if file.array.shape != shape or file.array.dtype.str != dtype:
        found = f"{file.array.dtype} {file.array.shape}"
        raise DamagedArtifact(f"{path} holds {found}, but {np.dtype(dtype)} {shape} belongs there. {_AGAIN}")
    return file


_AGAIN = "Make it again with `merit run`."
