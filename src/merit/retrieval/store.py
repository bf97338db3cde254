"""One side of the scorer, users or labels: their vectors and their projections, row by row, on disk or in memory.

    store.write(folder, rows, blocks_of_vectors, exact.users)     # vectors.npy, projections.npy, header.json
    users = store.read(folder, exact.users)                       # nothing is loaded but header.json

Vectors are what scores are defined by; projections are computed here, from them and the first layer, so that the
largest error of a stored projection is known and not assumed. They only decide which rows are scored exactly.

Arrays are .npy files, written block by block and read through a memory map. safetensors is written from arrays that are
whole in memory, and read by copying: a pass over all rows takes 1.45 × as long. A file is opened only if it is exactly
as long as its header says, and its length is checked again before every use: a map of a file that was cut short
meanwhile would end the process.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray
from pydantic import ValidationError

from merit.core.config import Frozen
from merit.core.errors import DamagedArtifact, DataError
from merit.core.files import storage_errors
from merit.core.processes import cores
from merit.core.types import Floats, Ints
from merit.retrieval.exact import Projection, map_threads, spans

FLOAT = "<f4"
HEADER = "header.json"
ARRAYS = ("vectors", "projections")
CHUNK = 16_384  # rows computed at a time: 40 MiB of float64 projections
RESIDENT = 2**30  # bytes of a file that may stay in memory between uses: mapping them again is 8 % of a pass
_AGAIN = "Make it again with `merit run`."


class MappedArray:
    """An array in a .npy file, memory-mapped."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            mapped = npy.open_memmap(path, mode="r")
        except FileNotFoundError:
            raise DamagedArtifact(f"{path} is missing. {_AGAIN}") from None
        except (ValueError, EOFError) as error:
            raise DamagedArtifact(f"{path} is cut short, or no array file ({error}). {_AGAIN}") from None
        if not mapped.flags.c_contiguous:
            raise DamagedArtifact(f"{path} holds an array that merit did not write. {_AGAIN}")
        self.array: NDArray[Any] = mapped.view(np.ndarray)
        self._map: Any = mapped.base
        self._start = mapped.offset
        self._row, self._size = mapped.strides[0], mapped.offset + mapped.nbytes
        self.check()

    def check(self) -> None:
        """Refuse a file that is not as long as its header says."""
        if (size := self._map.size()) != self._size:
            raise DamagedArtifact(f"{self.path} has {size:,} bytes, but its header says {self._size:,}. {_AGAIN}")

    @property
    def large(self) -> bool:
        """Whether it should not stay in memory after use."""
        return self._size > RESIDENT

    def release(self, rows: range) -> None:
        """Free the memory of these rows; they stay in the system's cache and can be read again."""
        first = -(-(self._start + rows.start * self._row) // mmap.PAGESIZE) * mmap.PAGESIZE  # whole pages, inwards
        last = (self._start + rows.stop * self._row) // mmap.PAGESIZE * mmap.PAGESIZE
        if last > first and hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED, first, last - first)


@contextmanager
def writing(path: Path, dtype: str, shape: tuple[int, ...]) -> Iterator[Callable[[NDArray[Any]], object]]:
    """What writes the next rows of a .npy file; their type and shape are for the caller to check.

    The file is not mapped, so that a full disk is an error, not a crash.
    """
    with storage_errors(path), path.open("wb") as file:
        npy.write_array_header_1_0(file, {"descr": dtype, "fortran_order": False, "shape": shape})
        yield lambda rows: file.write(np.ascontiguousarray(rows).data)


@dataclass(frozen=True)
class Rows:
    """Rows of numbers, in memory or mapped from a file."""

    values: Floats  # (N, D)
    file: MappedArray | None = None

    def __len__(self) -> int:
        return len(self.values)

    def take(self, rows: Ints) -> Floats:
        """(n, D): a copy of these rows."""
        return self.values[rows]

    def subset(self, rows: Ints) -> Rows:
        """These rows, in memory."""
        return Rows(self.values[rows])

    def check(self) -> None:
        """Refuse rows of a file that was cut short; rows in memory have none."""
        if self.file:
            self.file.check()

    def release(self, rows: range) -> None:
        """Free the memory of these rows of a file. Rows held in memory stay."""
        if self.file:
            self.file.release(rows)


@dataclass(frozen=True)
class Side:
    """All users, or all labels. No projection is longer than `norm`, or further from the exact one than `error`."""

    name: str  # for messages
    vectors: Rows
    projections: Rows
    norm: float
    error: float

    def __len__(self) -> int:
        return len(self.vectors)

    def subset(self, rows: Ints) -> Side:
        """These rows, in memory. What bounds the errors of all bounds theirs."""
        self.check()
        return Side(self.name, self.vectors.subset(rows), self.projections.subset(rows), self.norm, self.error)

    def check(self) -> None:
        """Refuse a side of which a file was cut short since it was opened."""
        self.vectors.check()
        self.projections.check()


class SideHeader(Frozen):
    """header.json. The last two are for the bound of the error."""

    rows: int
    layer: str  # fingerprint of the weights the projections were made with
    projections: Literal["float32"] = "float32"
    norm: float  # the largest ‖projection‖
    error: float  # the largest ‖projection − exact projection‖


def hold(name: str, vectors: Floats, projection: Projection) -> Side:
    """A side in memory."""
    chunks = list(_chunks(name, [vectors], projection))
    _require_rows(name, len(vectors), len(vectors))
    arrays = {key: Rows(np.concatenate([chunk.arrays[key] for chunk in chunks])) for key in ARRAYS}
    norm, error = (max(limits) for limits in zip(*((chunk.norm, chunk.error) for chunk in chunks), strict=True))
    return Side(name, **arrays, norm=norm, error=error)


def write(folder: Path, rows: int, blocks: Iterable[Floats], projection: Projection) -> SideHeader:
    """Write a side into a folder that exists (an artifact's draft). The blocks of vectors have `rows` rows in all."""
    done, norm, error = 0, 0.0, 0.0
    shapes = zip(ARRAYS, projection.weight.shape, strict=True)
    with ExitStack() as files:
        write_rows = {
            key: files.enter_context(writing(folder / f"{key}.npy", FLOAT, (rows, width))) for key, width in shapes
        }
        for chunk in _chunks(str(folder), blocks, projection):
            for key, array in chunk.arrays.items():
                write_rows[key](array)
            done, norm, error = done + len(chunk.arrays["vectors"]), max(norm, chunk.norm), max(error, chunk.error)
    _require_rows(str(folder), done, rows)
    header = SideHeader(rows=rows, layer=projection.fingerprint, norm=norm, error=error)
    with storage_errors(folder):
        (folder / HEADER).write_text(header.model_dump_json(indent=1) + "\n", encoding="utf-8")
    return header


def without(folder: Path, out: Path, dropped: Ints, projection: Projection) -> SideHeader:
    """Write a side again without some rows. All others keep every bit: a projection depends on its vector alone."""
    side = read(folder, projection)
    kept = np.delete(np.arange(len(side)), dropped)
    blocks = (side.vectors.take(kept[span.start : span.stop]) for span in spans(len(kept), CHUNK))
    return write(out, len(kept), blocks, projection)


def read(folder: Path, projection: Projection) -> Side:
    """Open a side. Files that are cut short, or that belong to other weights, are refused."""
    header = _header(folder)
    if header.layer != projection.fingerprint:
        raise DamagedArtifact(f"{folder} was made for another propensity model than this one. {_AGAIN}")
    shapes = zip(ARRAYS, projection.weight.shape, strict=True)
    arrays = {key: _mapped(folder / f"{key}.npy", (header.rows, width)) for key, width in shapes}
    return Side(str(folder), **arrays, norm=header.norm, error=header.error)


def _header(folder: Path) -> SideHeader:
    try:
        return SideHeader.model_validate_json((folder / HEADER).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ValidationError) as error:
        raise DamagedArtifact(f"{folder / HEADER} cannot be read ({type(error).__name__}). {_AGAIN}") from None


class _Chunk(NamedTuple):
    arrays: dict[str, Floats]
    norm: float
    error: float


def _chunks(name: str, blocks: Iterable[Floats], projection: Projection) -> Iterator[_Chunk]:
    """What is stored of these vectors, a chunk for each core at a time."""
    done, width = 0, len(projection.weight)
    for block in blocks:
        if block.ndim != 2 or block.shape[1] != width:
            raise DataError(f"{name}: vectors have the shape {block.shape}; the model needs (rows, {width}).")
        for span in spans(len(block), CHUNK * cores()):
            group = np.asarray(block[span.start : span.stop], np.float32)
            if not (good := np.isfinite(group).all(axis=1)).all():
                raise DataError(
                    f"{name}: vector {done + int(np.argmin(good)):,} holds values that are not numbers. Make the "
                    "vectors again; if that does not help, train the propensity model again."
                )
            chunks = [group[chunk.start : chunk.stop] for chunk in spans(len(group), CHUNK)]
            yield from map_threads(partial(_chunk, projection), chunks, cores())
            done += len(group)


def _chunk(projection: Projection, vectors: Floats) -> _Chunk:
    exact = projection.of(vectors)
    with np.errstate(over="ignore"):  # what overflows is caught below
        stored = exact.astype(np.float32)
    if not np.isfinite(stored).all():
        raise DataError("Some projections are too large for float32. Train the propensity model again.")
    norm, error = (
        float(np.linalg.norm(rows, axis=1).max(initial=0)) for rows in (stored.astype(float), stored - exact)
    )
    return _Chunk({"vectors": vectors, "projections": stored}, norm, error)


def _require_rows(name: str, count: int, announced: int) -> None:
    if count != announced or not count:
        raise DataError(f"{name}: {count:,} vectors came where {announced:,} were announced, and there must be some.")


def _mapped(path: Path, shape: tuple[int, ...]) -> Rows:
    file = MappedArray(path)
    if file.array.shape != shape or file.array.dtype.str != FLOAT:
        content = f"{file.array.dtype} {file.array.shape}"
        raise DamagedArtifact(f"{path} holds {content}, but float32 {shape} belongs there. {_AGAIN}")
    return Rows(file.array, file)
