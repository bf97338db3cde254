"""Numbers too small to be normal count as zero while training.

Adam's moments of rare tokens decay into them, and a CPU computes with them a hundred times slower: half the speed of a
small model was lost to it. The setting is the whole process's, so it is put back.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def flushed() -> Iterator[None]:
    """Around a training; the setting is off afterwards, also when the training fails."""
    import torch

    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)
