"""One side of the scorer, users or labels: their vectors and their projections, row by row, on disk or in memory.

    store.write(folder, rows, blocks_of_vectors, exact.users)     # vectors.npy, projections.npy, header.json
    users = store.read(folder, exact.users)                       # nothing is loaded but header.json

Vectors are what scores are defined by; projections are computed here, from them and the first layer, so that the
largest error of a stored projection is known and not assumed. Projections may be stored in fewer bytes: float16, or
int8 with a scale per row. That never changes an answer: they only decide which rows are scored exactly, and the bound
knows their error, so more rows are.

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

Form = Literal["float32", "float16", "int8"]
Codes = NDArray[Any]
DTYPES: dict[Form, str] = {"float32": "<f4", "float16": "<f2", "int8": "|i1"}
LARGEST = 127  # of int8, the same both ways: a row and its negative keep the same scale
HEADER = "header.json"
CHUNK = 16_384  # rows computed at a time: 40 MiB of float64 projections
RESIDENT = 2**30  # bytes of a file that may stay in memory between uses: mapping them again is 8 % of a pass
_AGAIN = "Make it again with `merit run`."


def encode(rows: Floats, form: Form) -> tuple[Codes, Floats | None]:
    """Codes (n, D), and for int8 the scales (n,)."""
    if form == "int8":
        scales = np.abs(rows).max(axis=1, initial=0).astype(np.float32) / np.float32(LARGEST)
        scales[scales == 0] = 1
        return np.clip(np.rint(rows / scales[:, None]), -LARGEST, LARGEST).astype(np.int8), scales
    with np.errstate(over="ignore"):
        codes = rows.astype(DTYPES[form])
    if not np.isfinite(codes).all():
        raise DataError(f"Some numbers are too large for {form}. Store them as float32.")
    return codes, None


def decode(codes: Codes, scales: Floats | None) -> Floats:
    """(n, D) in float32: always a copy, which the caller may change."""
    wide = codes.astype(np.float32)
    return wide if scales is None else wide * scales[:, None]


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
    """Rows of numbers in one of the forms."""

    codes: Codes  # (N, D)
    scales: Floats | None = None  # (N,), of int8
    file: MappedArray | None = None  # where codes are mapped from

    def __len__(self) -> int:
        return len(self.codes)

    def take(self, rows: Ints | slice) -> Floats:
        """(n, D): a copy of these rows in float32."""
        return decode(self.codes[rows], None if self.scales is None else self.scales[rows])

    def read(self, rows: Ints | slice, out: Floats) -> Floats:
        """(n, D) in float32: as they are if stored so, otherwise decoded into `out`."""
        if self.codes.dtype == np.float32:
            return self.codes[rows]
        out[:] = self.codes[rows]
        if self.scales is not None:
            out *= self.scales[rows, None]
        return out

    def subset(self, rows: Ints) -> Rows:
        """These rows, in memory, in the form they have."""
        return Rows(self.codes[rows], None if self.scales is None else self.scales[rows])

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
    projections: Form
    norm: float  # the largest ‖projection‖
    error: float  # the largest ‖projection − exact projection‖


def hold(name: str, vectors: Floats, projection: Projection, form: Form = "float32") -> Side:
    """A side in memory."""
    chunks = list(_chunks(name, [vectors], projection, form))
    _require_rows(name, len(vectors), len(vectors))
    arrays = {key: np.concatenate([chunk.arrays[key] for chunk in chunks]) for key in chunks[0].arrays}
    projections = Rows(arrays["projections"], arrays.get("projections-scales"))
    norm, error = (max(limits) for limits in zip(*((chunk.norm, chunk.error) for chunk in chunks), strict=True))
    return Side(name, Rows(arrays["vectors"]), projections, norm, error)


def write(
    folder: Path, rows: int, blocks: Iterable[Floats], projection: Projection, form: Form = "float32"
) -> SideHeader:
    """Write a side into a folder that exists (an artifact's draft). The blocks of vectors have `rows` rows in all."""
    done, norm, error = 0, 0.0, 0.0
    write_rows: dict[str, Callable[[NDArray[Any]], object]] = {}
    with ExitStack() as files:
        for chunk in _chunks(str(folder), blocks, projection, form):
            for key, array in chunk.arrays.items():
                if key not in write_rows:
                    writer = writing(folder / f"{key}.npy", array.dtype.str, (rows, *array.shape[1:]))
                    write_rows[key] = files.enter_context(writer)
                write_rows[key](array)
            done, norm, error = done + len(chunk.arrays["vectors"]), max(norm, chunk.norm), max(error, chunk.error)
    _require_rows(str(folder), done, rows)
    header = SideHeader(rows=rows, layer=projection.fingerprint, projections=form, norm=norm, error=error)
    with storage_errors(folder):
        (folder / HEADER).write_text(header.model_dump_json(indent=1) + "\n", encoding="utf-8")
    return header


def without(folder: Path, out: Path, dropped: Ints, projection: Projection) -> SideHeader:
    """Write a side again without some rows. All others keep every bit: a projection depends on its vector alone."""
    header, side = _header(folder), read(folder, projection)
    kept = np.delete(np.arange(len(side)), dropped)
    blocks = (side.vectors.take(kept[span.start : span.stop]) for span in spans(len(kept), CHUNK))
    return write(out, len(kept), blocks, projection, header.projections)


def read(folder: Path, projection: Projection) -> Side:
    """Open a side. Files that are cut short, or that belong to other weights, are refused."""
    header = _header(folder)
    if header.layer != projection.fingerprint:
        raise DamagedArtifact(f"{folder} was made for another propensity model than this one. {_AGAIN}")
    rows, (vector_width, projection_width) = header.rows, projection.weight.shape
    vectors = _mapped(folder / "vectors.npy", (rows, vector_width), DTYPES["float32"])
    codes = _mapped(folder / "projections.npy", (rows, projection_width), DTYPES[header.projections])
    scales = None
    if header.projections == "int8":  # in memory: 4 bytes a row
        scales = np.array(_mapped(folder / "projections-scales.npy", (rows,), DTYPES["float32"]).array)
    projections = Rows(codes.array, scales, codes)
    return Side(str(folder), Rows(vectors.array, None, vectors), projections, header.norm, header.error)


def _header(folder: Path) -> SideHeader:
    try:
        return SideHeader.model_validate_json((folder / HEADER).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ValidationError) as error:
        raise DamagedArtifact(f"{folder / HEADER} cannot be read ({type(error).__name__}). {_AGAIN}") from None


class _Chunk(NamedTuple):
    arrays: dict[str, Codes]
    norm: float
    error: float


def _chunks(name: str, blocks: Iterable[Floats], projection: Projection, form: Form) -> Iterator[_Chunk]:
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
            yield from map_threads(partial(_chunk, projection, form), chunks, cores())
            done += len(group)


def _chunk(projection: Projection, form: Form, vectors: Floats) -> _Chunk:
    exact = projection.of(vectors)
    codes, scales = encode(exact.astype(np.float32), form)
    stored = decode(codes, scales).astype(np.float64)
    arrays = {"vectors": vectors, "projections": codes}
    if scales is not None:
        arrays["projections-scales"] = scales
    norm, error = (float(np.linalg.norm(rows, axis=1).max(initial=0)) for rows in (stored, stored - exact))
    return _Chunk(arrays, norm, error)


def _require_rows(name: str, count: int, announced: int) -> None:
    if count != announced or not count:
        raise DataError(f"{name}: {count:,} vectors came where {announced:,} were announced, and there must be some.")


def _mapped(path: Path, shape: tuple[int, ...], dtype: str) -> MappedArray:
    file = MappedArray(path)
    if file.array.shape != shape or file.array.dtype.str != dtype:
        content = f"{file.array.dtype} {file.array.shape}"
        raise DamagedArtifact(f"{path} holds {content}, but {np.dtype(dtype)} {shape} belongs there. {_AGAIN}")
    return file
