"""Long histories at the price of short ones: how a backbone reads patches, and when training shows it any.

A patch is one input position whose embedding is the mean of its tokens' embeddings. Nothing else about the backbone
changes: attention, positions and cache see a shorter sequence, and what is written behind it are tokens as ever.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor
from torch.nn.functional import embedding_bag

from merit.core.ragged import Ragged, offsets_of
from merit.core.seeds import derive, unit_interval
from merit.core.types import Ints
from merit.data.patches import Windows


class Phase(NamedTuple):
    """What training reads at a moment."""

    patched: float  # the probability that an example is read with its patches
    only: bool  # whether examples without older history, which have none, are left out


Schedule = Callable[[float], Phase]  # of the part of the training that is done


def in_full(progress: float) -> Phase:
    """No patches: the schedule of a training without patching."""
    return Phase(patched=0.0, only=False)


def curriculum(progress: float) -> Phase:
    """The paper's four phases: full resolution, more and more patched, patched where there is older history, only such.

    The task is learnt first, and only then from compressed histories.
    """
    return Phase(patched=min(1.0, max(0.0, 4 * progress - 1)), only=progress >= 0.75)


def from_the_start(progress: float) -> Phase:
    """All patches from the first step on: what the curriculum is compared with."""
    return Phase(patched=1.0, only=False)


SCHEDULES: dict[str, Schedule] = {"curriculum": curriculum, "from-the-start": from_the_start}


def drawn(phase: Phase, examples: Ints, epoch: int, seed: int) -> NDArray[np.bool_]:
    """Which examples are read with their patches. An example's draw is its own, whatever batch it is in."""
    chance = unit_interval(derive(examples.astype(np.uint64), seed, "patching", epoch))
    return chance < phase.patched


def embed(model: Any, input_ids: Tensor, windows: Windows) -> Tensor:
    """(B, L, width): the input embeddings of ids among which ~n is patch n of the windows.

    Every position is a bag of tokens, most of them of one; a token's embedding is looked up once in a batch.
    """
    words, put = model.get_input_embeddings(), input_ids.device
    bags = _bags(input_ids.cpu().numpy().ravel(), windows)
    by_bag = csr_array((bags.shares, bags.tokens.values, bags.tokens.offsets))
    by_token = by_bag.tocsc()
    used = np.flatnonzero(np.diff(by_token.indptr))  # the different tokens
    number = np.zeros(by_bag.shape[1], np.int64)
    number[used] = np.arange(len(used))
    forth = (number[bags.tokens.values], bags.tokens.offsets, bags.shares)
    back = (by_token.indices, np.append(by_token.indptr[used], by_token.nnz), by_token.data)
    looked_up = words(torch.from_numpy(used).to(put))  # (different tokens, width)
    sums: Tensor = _Sums.apply(looked_up, *(_put(each, put) for each in (*forth, *back)))  # type: ignore[no-untyped-call]
    return sums.view(*input_ids.shape, -1)


def _put(values: NDArray[Any], device: torch.device) -> Tensor:
    return torch.from_numpy(values if values.dtype == np.float32 else values.astype(np.int64, copy=False)).to(device)


def _bags(ids: Ints, windows: Windows) -> Windows:
    """The tokens of every position: its own, or those of its patch."""
    patches = ids < 0
    pooled = windows.gather(~ids[patches])
    sizes = np.ones(len(ids), np.int64)
    sizes[patches] = pooled.tokens.lengths()
    inside = np.repeat(patches, sizes)
    tokens, shares = np.empty(len(inside), np.int32), np.ones(len(inside), np.float32)
    tokens[inside], tokens[~inside] = pooled.tokens.values, ids[~patches]
    shares[inside] = pooled.shares
    return Windows(Ragged(offsets_of(sizes), tokens), shares)


class _Sums(torch.autograd.Function):
    """Weighted sums of rows by bags. The way back is the same kind of sum, over bags of places: torch's own would sort
    the members anew, which takes several times as long."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, *bags: Tensor) -> Tensor:
        ctx.save_for_backward(*bags[3:])
        return _summed(rows, *bags[:3])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return _summed(gradients[0].contiguous(), *ctx.saved_tensors), *[None] * 6


def _summed(rows: Tensor, members: Tensor, offsets: Tensor, shares: Tensor) -> Tensor:
    return embedding_bag(
        members, rows, offsets, mode="sum", per_sample_weights=shares.to(rows.dtype), include_last_offset=True
    )


def reading(model: Any, decoder: Any, windows: Windows | None) -> Any:
    """What reads prompts: the decoder itself, or with windows one that takes their patches among the ids."""
    if windows is None:
        return decoder

    def read(input_ids: Tensor, **more: Any) -> Any:
        if bool((input_ids >= 0).all()):
            return decoder(input_ids=input_ids, **more)
        return decoder(inputs_embeds=embed(model, input_ids, windows), **more)

    return read
