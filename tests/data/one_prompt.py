"""The prompt of a single history."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from merit.core.ragged import Ragged
from merit.data.prompt import PatchingConfig, PromptConfig, Texts, choose, write


class OnePrompt(NamedTuple):
    profile: NDArray[np.integer]
    older: NDArray[np.integer]
    recent: NDArray[np.integer]
    tokens: NDArray[np.integer]
    sizes: NDArray[np.integer]


def prompt_of(
    history: Sequence[int] | NDArray[np.integer],
    item_labels: Ragged,
    texts: Texts,
    config: PromptConfig,
    patching: PatchingConfig | None = None,
) -> OnePrompt:
    """What is chosen and written for it, between two other histories."""
    rows = Ragged.of([[0], [int(item) for item in history], []])
    chosen = choose(rows, item_labels, texts, config, patching)
    tokens, sizes = write(chosen, texts, patching.window if patching else 1)
    return OnePrompt(*(lists[1] for lists in (chosen.profile, chosen.older, chosen.recent, tokens, sizes)))
