"""Arrays on disk, one to a .npy file, written block by block and read through a memory map.

.npy and not safetensors, because safetensors is written from arrays that are whole in memory, and read by copying: a
pass over all rows takes 1.45 × as long. A file is opened only if it is exactly as long as its header says, and its
length is looked at again before every use: a map of a file that was cut short meanwhile would end the process.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from merit.core.errors import DamagedArtifact
from merit.core.files import storage_errors

RESIDENT = 2**30  # bytes of a file that may stay in memory between uses: mapping them again is 8 % of a pass


class Mapped:
    """An array in a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file = path.open("rb")
            shape, fortran, dtype = _HEADERS[npy.read_magic(self._file)](self._file)
        except FileNotFoundError:
            raise DamagedArtifact(f"{path} is missing. {_AGAIN}") from None
        except (ValueError, KeyError, EOFError):
            raise DamagedArtifact(f"{path} does not begin as an array file does. {_AGAIN}") from None
        if fortran or dtype.hasobject:
            raise DamagedArtifact(f"{path} holds an array that merit did not write. {_AGAIN}")
        self._start = self._file.tell()
        self._row = int(np.prod(shape[1:])) * dtype.itemsize
        self._size = self._start + shape[0] * self._row
        self.check()
        self._map = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
        self.array: NDArray[Any] = np.ndarray(shape, dtype, self._map, self._start)

    def check(self) -> None:
        """That the file is as long as it must be."""
        if (size := os.fstat(self._file.fileno()).st_size) != self._size:
            raise DamagedArtifact(f"{self.path} has {size:,} bytes, but its header says {self._size:,}. {_AGAIN}")

    @property
    def large(self) -> bool:
        """Whether it should not stay in memory after use."""
        return self._size > RESIDENT

    def release(self, rows: range) -> None:
        """Let go of the memory these rows took; they stay in the system's cache and can be read again."""
        first = -(-(self._start + rows.start * self._row) // mmap.PAGESIZE) * mmap.PAGESIZE  # whole pages, inwards
        last = (self._start + rows.stop * self._row) // mmap.PAGESIZE * mmap.PAGESIZE
        if last > first and hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED, first, last - first)


class Writer:
    """A .npy file of known shape, block after block. Not mapped: then a full disk is an error, and not a crash."""

    def __init__(self, path: Path, dtype: str, shape: tuple[int, ...]) -> None:
        with storage_errors(path):
            self._path, self._file = path, path.open("wb")
            npy.write_array_header_1_0(self._file, {"descr": dtype, "fortran_order": False, "shape": shape})

    def add(self, block: NDArray[Any]) -> None:
        """The next rows. That they have the type and shape announced is for the caller to see to."""
        with storage_errors(self._path):
            self._file.write(np.ascontiguousarray(block).data)

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *_: object) -> None:
        with storage_errors(self._path):
            self._file.close()


_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
_AGAIN = "Make it again with `merit run`."
