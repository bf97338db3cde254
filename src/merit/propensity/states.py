"""States of a generator at classification positions, in a file: what the propensity model knows of a user.

The array is (users, labels, width): the state that predicts the first token of a user's first, second, … label. A
user with fewer labels has zeros behind them. A model of the first k labels reads the first k and nothing else, so one
pass over the generator serves every k.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from merit.errors import DamagedArtifact, DataError


@dataclass(frozen=True)
class States:
    values: NDArray[np.float16]  # (users, labels, width), memory-mapped when read from a file
    counts: NDArray[np.int32]  # (users,) labels that are there

    def __len__(self) -> int:
        return len(self.values)

    def first(self, k: int) -> States:
        """What a model of the first k labels may see."""
        if not 1 <= k <= self.values.shape[1]:
            raise DataError(f"States of {self.values.shape[1]} labels are kept, not {k}. Set states.labels to {k}.")
        return States(self.values[:, :k], np.minimum(self.counts, k))

    def take(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
        """States and counts of some users, as numbers to compute with."""
        return self.values[rows].astype(np.float32), self.counts[rows]


def create(folder: Path, name: str, users: int, labels: int, width: int) -> States:
    """Room for the states of a split, in a file, to be filled part by part."""
    values = np.lib.format.open_memmap(_file(folder, name), mode="w+", dtype=np.float16, shape=(users, labels, width))
    counts = np.lib.format.open_memmap(_file(folder, f"{name}-counts"), mode="w+", dtype=np.int32, shape=(users,))
    return States(values, counts)


def fill(states: States, at: int, values: NDArray[np.float32], counts: NDArray[np.int32]) -> None:
    """The states of the users from `at` on."""
    with np.errstate(over="ignore"):  # what overflows is caught below
        short = values.astype(np.float16)
    if not np.isfinite(short).all():
        raise DataError(
            "The generator gave states that are not numbers, or too large for half precision. Its training went "
            "wrong: lower its learning rate and train again."
        )
    states.values[at : at + len(short)] = short
    states.counts[at : at + len(short)] = counts


def read(folder: Path, name: str) -> States:
    """The states of a split, without loading them."""
    values, counts = _open(_file(folder, name)), _open(_file(folder, f"{name}-counts"))
    if len(values) != len(counts):
        raise DamagedArtifact(f"{_file(folder, name)} and its counts are of different lengths. Make the states again.")
    return States(values, counts)


def _file(folder: Path, name: str) -> Path:
    return folder / f"{name}.npy"


def _open(file: Path) -> NDArray[Any]:
    try:
        array: NDArray[Any] = np.load(file, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError) as error:
        raise DamagedArtifact(f"{file} cannot be read ({error}). Make the states again.") from None
    return array
