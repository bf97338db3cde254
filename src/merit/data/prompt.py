"""What the generator reads about a user: a profile over the year, then the newest items in words, newest last.

    PROFILE trail running, home organisation RECENT an item, …, the newest item ANSWER

PROFILE, RECENT, ANSWER and (for the commas, if asked for) NEXT are control tokens. Titles and labels are texts by
strangers: whatever they contain, they never become a control token, because they are encoded apart from them and
checked afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from merit.config import Frozen
from merit.data.ragged import Ragged
from merit.errors import ConfigError


class PromptConfig(Frozen):
    budget: int = Field(96, ge=16)
    """Tokens in all. Whole labels and whole titles are left out to keep it; nothing is cut in the middle."""
    profile_labels: int = Field(15, ge=0)
    profile_share: float = Field(0.4, ge=0, le=1)
    """At most this part of the budget for the profile: the newest items must not be crowded out."""
    title_tokens: int = Field(24, ge=1)
    """A title longer than this is cut before it is used: sellers write novels, and the budget is for many items."""
    separated: bool = False
    """Whether NEXT stands between labels and between items. Most labels are single tokens, and it would double them."""


class TextEncoder(Protocol):
    """Texts → token ids, with any control token written out in a text treated as ordinary characters."""

    def __call__(self, texts: Sequence[str]) -> list[list[int]]: ...


@dataclass(frozen=True)
class Controls:
    """Ids that only we may write."""

    profile: int
    recent: int
    next: int
    answer: int

    def ids(self) -> set[int]:
        return {self.profile, self.recent, self.next, self.answer}


@dataclass(frozen=True)
class Prompt:
    """What is said, before it is said in tokens: label ids by frequency, items with the newest last."""

    profile: NDArray[np.int32]
    recent: NDArray[np.integer]


@dataclass(frozen=True)
class Texts:
    """Every title and label, tokenised once: a prompt is then put together from slices."""

    titles: Ragged  # by item
    labels: Ragged  # by label id
    controls: Controls
    removed: int  # control tokens a tokenizer let through, taken out of the texts


def tokenise(
    titles: Sequence[str], labels: Sequence[str], encode: TextEncoder, controls: Controls, config: PromptConfig
) -> Texts:
    forbidden = controls.ids()
    if len(forbidden) < 4:
        raise ConfigError(f"The four control tokens of a prompt need four different ids, not {sorted(forbidden)}.")
    rows = [*encode(titles), *encode(labels)]
    clean = [[token for token in row if token not in forbidden] for row in rows]
    removed = sum(map(len, rows)) - sum(map(len, clean))
    short = [row[: config.title_tokens] for row in clean[: len(titles)]]
    return Texts(Ragged.of(short), Ragged.of(clean[len(titles) :]), controls, removed)


def choose(history: NDArray[np.integer], item_labels: Ragged, texts: Texts, config: PromptConfig) -> Prompt:
    """Profile and newest items that fit the budget. `history`: items in order of time."""
    room = config.budget - 3  # PROFILE, RECENT, ANSWER
    ranked = _most_frequent(history, item_labels)[: config.profile_labels]
    label_cost, item_cost = (rows.lengths() + config.separated for rows in (texts.labels, texts.titles))
    profile = ranked[: _fitting(label_cost[ranked], int(room * config.profile_share))]
    room -= int(label_cost[profile].sum())
    newest = history[::-1][:room]  # with fewer tokens than items, the rest cannot fit
    recent = newest[: _fitting(item_cost[newest], room)]
    return Prompt(profile, recent[::-1])


def tokens(prompt: Prompt, texts: Texts, config: PromptConfig) -> NDArray[np.int32]:
    """The prompt as the generator reads it."""
    mark = texts.controls
    gap = np.array([mark.next] if config.separated else [], dtype=np.int32)
    return np.concatenate(
        [
            [mark.profile],
            *_listed(texts.labels, prompt.profile, gap),
            [mark.recent],
            *_listed(texts.titles, prompt.recent, gap),
            [mark.answer],
        ]
    ).astype(np.int32)


def words(prompt: Prompt, titles: Sequence[str], labels: Sequence[str]) -> str:
    """The prompt for people."""
    profile = ", ".join(labels[label] for label in prompt.profile)
    recent = "\n".join(f"- {titles[item]}" for item in prompt.recent)
    return f"Often: {profile}\nLately:\n{recent}"


def _most_frequent(history: NDArray[np.integer], item_labels: Ragged) -> NDArray[np.int32]:
    """Labels by how often they occur in the history; among equals the more recently seen first."""
    flat, _ = item_labels.take(history)
    labels, last, count = np.unique(flat[::-1], return_index=True, return_counts=True)
    return labels[np.lexsort((last, -count))]


def _fitting(costs: NDArray[np.integer], room: int) -> int:
    """How many of these fit, taken from the front."""
    return int(np.searchsorted(np.cumsum(costs), room, side="right"))


def _listed(rows: Ragged, which: NDArray[np.integer], gap: NDArray[np.int32]) -> list[NDArray[np.int32]]:
    """Rows with the gap between them."""
    return [part for row in which for part in (rows[int(row)], gap)][:-1]
