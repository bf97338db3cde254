"""Positions that stand for several tokens. A patch is read as the mean of its tokens' embeddings.

    sizes = cut([4, 23, 9], [1, 10, 1])         # runs of tokens and the window of each → the tokens of every position
    prompts = pool(tokens, Ragged(…, sizes))    # a token is its id; patch number n is written ~n, which is below zero

Windows are data, so that windows of ten tokens, whole items and whole sessions are one mechanism. Patched prompts are
rows of ids like any others: as long as what they cost, and free to be gathered, split and continued.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from merit.core.ragged import Ragged, offsets_of, ranges
from merit.core.types import Ints

Shares = NDArray[np.float32]


@dataclass(frozen=True)
class Windows:
    """Patches by number: the tokens of each, and what every token counts for."""

    tokens: Ragged
    shares: Shares  # beside tokens.values; those of one patch sum to 1

    def __len__(self) -> int:
        return len(self.tokens)

    def gather(self, numbers: NDArray[np.integer]) -> Windows:
        """These patches, in this order."""
        places, sizes = ranges(self.tokens.offsets[numbers], self.tokens.offsets[np.asarray(numbers) + 1])
        return Windows(Ragged(offsets_of(sizes), self.tokens.values[places]), self.shares[places])


@dataclass(frozen=True)
class Patched(Ragged):
    """Prompts with patches. Choosing rows leaves the windows as they are."""

    windows: Windows

    def gather(self, rows: NDArray[np.integer]) -> Patched:
        """These rows, in this order; a patch keeps its number."""
        chosen = super().gather(rows)
        return Patched(chosen.offsets, chosen.values, self.windows)

    def some(self) -> NDArray[np.bool_]:
        """By row: whether anything in it is a patch."""
        seen = offsets_of((self.values < 0).astype(np.int64))
        return np.diff(seen[self.offsets]) > 0


def windows_of(prompts: Ragged) -> Windows | None:
    """What the patches in these prompts stand for; None for prompts in plain tokens."""
    return prompts.windows if isinstance(prompts, Patched) else None


def with_windows_of(prompts: Ragged, rows: Ragged) -> Ragged:
    """Rows made out of these prompts, whose patches they may contain."""
    windows = windows_of(prompts)
    return rows if windows is None else Patched(rows.offsets, rows.values, windows)


def cut(runs: Ints, windows: Ints) -> tuple[Ints, Ints]:
    """Runs of tokens cut into windows, from the front: the size of every piece, and how many pieces each run gives.

    The last piece of a run is what is left. A run of no tokens gives none.
    """
    runs, windows = np.asarray(runs, np.int64), np.asarray(windows, np.int64)
    number = -(-runs // windows)
    sizes = np.repeat(windows, number)
    some = number > 0
    sizes[(np.cumsum(number) - 1)[some]] -= (number * windows - runs)[some]
    return sizes, number


def pool(tokens: Ragged, sizes: Ragged, shares: Shares | None = None) -> Patched:
    """Make one position of every `sizes` tokens; the sizes of a row sum to its tokens.

    Without shares (beside tokens.values), the tokens of a patch count alike.
    """
    widths = sizes.values.astype(np.int64)
    starts = np.cumsum(widths) - widths
    pooled = widths > 1
    ids = tokens.values[starts]
    ids[pooled] = ~np.arange(int(pooled.sum()), dtype=np.int32)
    places, wide = ranges(starts[pooled], (starts + widths)[pooled])
    counts = np.repeat(1 / wide, wide).astype(np.float32) if shares is None else shares[places]
    return Patched(sizes.offsets, ids, Windows(Ragged(offsets_of(wide), tokens.values[places]), counts))


def numbered(ids: Ints, windows: Windows) -> tuple[Ints, Windows]:
    """The same ids with their patches numbered from 0 in the order they come, and the windows of just those."""
    patches = ids < 0
    renumbered = ids.copy()
    renumbered[patches] = ~np.arange(int(patches.sum()))
    return renumbered, windows.gather(~ids[patches])
