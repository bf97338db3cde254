"""Scores in float32 of a few fixed halves against many rows, streamed through a block that stays in cache.

relu(a + b) is max(a, −b) + b, and b is the same for every row. So the sum moves behind the product, where it is one
number per unit, and a block costs one pass of max before the product instead of an addition and a relu:

    W2 relu(a + b) + d2  =  W2 max(a, −b) + c           with c = W2 b + d2
    w3 · relu(y + c)     =  w3 · max(y, −c) + w3 · c

The factors behind a half have a floor of −∞: they go through the same pass as they are, which is faster than to leave
them out of it, and are in cache for their product.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from merit.core.types import Floats, Ints
from merit.retrieval.mlp import Mlp
from merit.retrieval.store import Rows
from merit.retrieval.threads import each, spans

CACHED = 2**19  # bytes of a block: half of a core's own cache, the rest is for W2 and the result
STRETCH = 65_536  # rows after which their memory is let go
TALL = 32  # rows that max takes as one long row: numpy's loop starts anew at each row, a twentieth of the whole


class Fixed(NamedTuple):
    """One half that stays while the rows of the other side go by."""

    floor: Floats  # (TALL · (H + R),)  −b, then −∞ for the factors, over and over
    second_floor: Floats  # (S,)  −c
    constant: np.float32  # w3 · c + d3
    factors: Floats  # (R,)


class Buffers(NamedTuple):
    """What one thread works in, made once for all its blocks."""

    first: Floats  # (block, H + R)
    second: Floats  # (block, S)


def fix(mlp: Mlp, halves: Floats) -> list[Fixed]:
    """Halves (F, H + R) made ready. The constants in float64: they are in every score."""
    b, factors = np.split(halves, [len(mlp.d1)], axis=1)
    floors = np.hstack([-b, np.full_like(factors, -np.inf)])
    c = b.astype(np.float64) @ mlp.W2_columns.astype(np.float64) + mlp.d2
    constant = c @ mlp.w3.astype(np.float64) + mlp.d3
    parts = zip(floors, -c.astype(np.float32), constant.astype(np.float32), factors, strict=True)
    return [Fixed(np.tile(floor, TALL), *others) for floor, *others in parts]


def block_rows(mlp: Mlp) -> int:
    """So many that their halves in float32 fill CACHED, and TALL at the least."""
    return max(TALL, CACHED // (4 * mlp.half))


def buffers(mlp: Mlp, block: int) -> Buffers:
    """For one thread, which may use them for blocks of up to so many rows."""
    return Buffers(np.empty((block, mlp.half), np.float32), np.empty((block, len(mlp.d2)), np.float32))


def scores(mlp: Mlp, halves: Rows, fixed: list[Fixed], rows: Ints | None, threads: int, block: int) -> Floats:
    """(F, n): of these rows (ascending), or of all."""
    count = len(halves) if rows is None else len(rows)
    made = np.empty((len(fixed), count), np.float32)

    def stretch(span: range) -> None:
        work = buffers(mlp, block)
        for part in range(span.start, span.stop, block):
            place = slice(part, min(part + block, span.stop))
            chosen = place if rows is None else rows[place]
            for one, row in zip(fixed, made, strict=True):
                score_block(mlp, halves, chosen, one, work, row[place])
        if halves.file and halves.file.large:
            halves.release(span if rows is None else range(int(rows[span.start]), int(rows[span.stop - 1]) + 1))

    share = min(STRETCH, -(-count // threads))  # so that a small side is shared among the threads as well
    each(stretch, spans(count, max(1, -(-share // block)) * block), threads)  # whole blocks: threads change no bit
    return made


def score_block(mlp: Mlp, halves: Rows, rows: Ints | slice, fixed: Fixed, work: Buffers, out: Floats) -> None:
    """out (n,): one fixed half against up to a block of rows."""
    first, second = work.first[: len(out)], work.second[: len(out)]
    _raise(halves.read(rows, first), fixed.floor, first)
    width = len(mlp.d1)
    np.matmul(first[:, :width], mlp.W2_columns, out=second)
    np.maximum(second, fixed.second_floor, out=second)
    np.matmul(second, mlp.w3, out=out)
    out += first[:, width:] @ fixed.factors
    out += fixed.constant


def _raise(rows: Floats, floor: Floats, out: Floats) -> None:
    """out (n, H + R) = max(rows, floor), TALL rows at a time as far as that goes."""
    whole = len(rows) // TALL * TALL
    np.maximum(rows[:whole].reshape(-1, len(floor)), floor, out=out[:whole].reshape(-1, len(floor)))
    if whole < len(rows):
        np.maximum(rows[whole:], floor[: rows.shape[1]], out=out[whole:])
