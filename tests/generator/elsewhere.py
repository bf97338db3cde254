"""A device that is not there: its tensors compute here, say they are elsewhere, and refuse to meet those that are here.

torch's `meta` device lends its name. What runs among such tensors would run on a GPU as well, as far as places go; a
tensor of this machine that joins them without being moved is an error, as it is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

PLACE = torch.device("meta")
HERE = torch.device("cpu")


class Elsewhere(Tensor):
    """Holds a tensor of this machine, and does not say so."""

    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor) -> Elsewhere:
        size, dtype = held.shape, held.dtype
        made = Tensor._make_wrapper_subclass(cls, size, strides=held.stride(), dtype=dtype, device=PLACE)  # type: ignore[attr-defined]
        made.held = held
        return made  # type: ignore[no-any-return]

    @classmethod
    def __torch_dispatch__(cls, op: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
        return compute(op, args, kwargs or {})


class _Factories(TorchDispatchMode):
    """What is made elsewhere from nothing, and what is moved there."""

    def __torch_dispatch__(self, op: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
        return compute(op, args, kwargs or {})


def compute(op: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
    leaves = tree_leaves((args, kwargs))
    tensors = [each for each in leaves if isinstance(each, Tensor)]
    there = [each for each in tensors if each.device == PLACE]
    here = [each for each in tensors if each.device != PLACE and each.ndim]  # a number may come from anywhere
    copies = op is torch.ops.aten.copy_.default
    named = [each for each in leaves if isinstance(each, torch.device)]
    if there and here and not copies:
        raise RuntimeError(f"{op}: {len(there)} tensors are elsewhere and {len(here)} are here")
    stays = named[0] == PLACE if named else args[0].device == PLACE if copies else bool(there)
    args, kwargs = tree_map_only(torch.device, lambda _: HERE, (args, kwargs))
    args, kwargs = tree_map_only(Tensor, _fetched, (args, kwargs))
    made = op(*args, **kwargs)
    return tree_map_only(Tensor, Elsewhere, made) if stays else made


def _fetched(given: Tensor) -> Tensor:
    if isinstance(given, Elsewhere):
        return given.held
    if given.device != PLACE:
        return given
    assert not given.numel(), "torch.tensor(…, device=…) is not seen here: write torch.tensor(…).to(device)"
    return torch.empty(given.shape, dtype=given.dtype)


@contextmanager
def moved(model: nn.Module) -> Iterator[nn.Module]:
    """The model with all its weights elsewhere."""
    with torch.inference_mode(), _Factories():  # what is made outside of the mode cannot be looked at within
        for part in model.modules():
            for kept in (part._parameters, part._buffers):
                kept |= {name: Elsewhere(value.detach().clone()) for name, value in kept.items() if value is not None}
        yield model
