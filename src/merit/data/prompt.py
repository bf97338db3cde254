"""What the generator reads about a user: a profile over the year, then the newest items in words, newest last.

    PROFILE trail running, home organisation RECENT an item, …, the newest item ANSWER

PROFILE, RECENT, ANSWER and (for the commas, if asked for) NEXT are control tokens. Titles and labels are texts by
strangers: whatever they contain, they never become a control token, because they are encoded apart from them and
checked afterwards.

What does not fit the budget is left out; with patching, older items are pooled instead (merit.data.patches), and only
what does not fit even so is left out. Control tokens are never pooled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from merit.core.config import Frozen
from merit.core.errors import ConfigError
from merit.core.ragged import Ragged
from merit.core.types import Ints
from merit.data.patches import cut


class PromptConfig(Frozen):
    """How much of a history a prompt holds, counted in the generator's own tokens."""

    budget: int = Field(96, ge=16)
    """Tokens in all. Whole labels and whole titles are left out to keep it; nothing is cut in the middle."""
    profile_labels: int = Field(15, ge=0)
    profile_share: float = Field(0.4, ge=0, le=1)
    """At most this part of the budget for the profile: the newest items must not be crowded out."""
    title_tokens: int = Field(24, ge=1)
    """A title longer than this is cut before it is used: sellers write novels, and the budget is for many items."""
    separated: bool = False
    """Whether NEXT stands between labels and between items. Most labels are single tokens, and it would double them."""


class PatchingConfig(Frozen):
    """Older items pooled, newer ones in full. A section of its own turns it on."""

    window: int = Field(10, ge=1)
    """Tokens of a patch: the paper's ten. With 1 nothing is pooled."""
    full_budget: int = Field(2048, ge=16)
    """Tokens that are read. The prompt's own budget is what they may cost in positions, patches counted as one."""
    recent_share: float = Field(0.5, ge=0, le=1)
    """At least this part of the room for items is for the newest ones in full. More where the history fits anyway:
    no more is pooled than must be."""
    recent_items: int | None = Field(None, ge=0)
    """By age: at most so many of the newest items stay in full, though there were room for more."""
    schedule: Literal["curriculum", "from-the-start"] = "curriculum"
    """When training begins to read patches. The paper found them harmful from the start."""


class TextEncoder(Protocol):
    """Texts → token ids, with any control token written out in a text treated as ordinary characters."""

    def __call__(self, texts: Sequence[str]) -> list[list[int]]:
        """A list for each text, in the order given; `Vocabulary.encode` is one."""
        ...


@dataclass(frozen=True)
class Controls:
    """Ids that only we may write."""

    profile: int
    recent: int
    next: int
    answer: int

    def ids(self) -> set[int]:
        """Four, unless two of them are the same, which `tokenise` refuses."""
        return {self.profile, self.recent, self.next, self.answer}


@dataclass(frozen=True)
class Prompt:
    """What is said, before it is said in tokens: label ids by frequency, items with the newest last."""

    profile: NDArray[np.int32]
    recent: NDArray[np.integer]
    older: NDArray[np.integer] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Items before the recent ones, which are pooled."""


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
    """Titles are cut to `title_tokens`, labels never. Control tokens that share an id are refused."""
    forbidden = controls.ids()
    if len(forbidden) < 4:
        raise ConfigError(f"The four control tokens of a prompt need four different ids, not {sorted(forbidden)}.")
    rows = [*encode(titles), *encode(labels)]
    clean = [[token for token in row if token not in forbidden] for row in rows]
    removed = sum(map(len, rows)) - sum(map(len, clean))
    short = [row[: config.title_tokens] for row in clean[: len(titles)]]
    return Texts(Ragged.of(short), Ragged.of(clean[len(titles) :]), controls, removed)


def choose(
    history: NDArray[np.integer],
    item_labels: Ragged,
    texts: Texts,
    config: PromptConfig,
    patching: PatchingConfig | None = None,
) -> Prompt:
    """Profile and newest items that fit the budget. `history`: items in order of time."""
    room = config.budget - 3  # PROFILE, RECENT, ANSWER
    ranked = _most_frequent(history, item_labels)[: config.profile_labels]
    costs = texts.labels.sizes(ranked) + config.separated
    fitting = _fitting(costs, int(room * config.profile_share))
    profile, room = ranked[:fitting], room - int(costs[:fitting].sum())
    if patching is None:
        newest = history[::-1][:room]  # with fewer tokens than items, the rest cannot fit
        recent = newest[: _fitting(texts.titles.sizes(newest) + config.separated, room)]
        return Prompt(profile, recent[::-1])
    newest = history[::-1][: patching.full_budget]
    sizes, readable = texts.titles.sizes(newest), room + patching.full_budget - config.budget
    in_full, all_ = _resolution(sizes, room, readable, config.separated, patching)
    return Prompt(profile, newest[:in_full][::-1], newest[in_full:all_][::-1])


def tokens(prompt: Prompt, texts: Texts, config: PromptConfig) -> NDArray[np.int32]:
    """The prompt as the generator reads it."""
    mark = texts.controls
    gap = np.array([mark.next] if config.separated else [], dtype=np.int32)
    return np.concatenate(
        [
            [mark.profile],
            *_listed(texts.labels, prompt.profile, gap),
            [mark.recent],
            *_listed(texts.titles, np.concatenate([prompt.older, prompt.recent]), gap),
            [mark.answer],
        ]
    ).astype(np.int32)


def spans(prompt: Prompt, texts: Texts, config: PromptConfig, window: int) -> Ints:
    """How many of the prompt's tokens each position stands for: one, or a window of older items between controls."""
    labels, older, recent = (
        rows.sizes(which)
        for rows, which in ((texts.labels, prompt.profile), (texts.titles, prompt.older), (texts.titles, prompt.recent))
    )
    before = 2 + int(labels.sum()) + config.separated * max(0, len(labels) - 1)
    gaps = config.separated * max(0, len(older) + len(recent) - 1)
    text = older if config.separated else older.sum(keepdims=True)
    runs, windows = np.ones((2, 2 * len(text) + 1), dtype=np.int64)  # one run of text, one of other tokens, in turns
    runs[1::2], windows[1::2] = text, window
    runs[2::2] = int(config.separated)  # NEXT
    runs[0] = before
    runs[-1] = before + int(older.sum() + recent.sum()) + gaps + 1 - int(runs[:-1].sum())
    return cut(runs, windows)[0]


def _most_frequent(history: NDArray[np.integer], item_labels: Ragged) -> NDArray[np.int32]:
    """Labels by how often they occur in the history; among equals the more recently seen first."""
    flat, _ = item_labels.take(history)
    labels, last, count = np.unique(flat[::-1], return_index=True, return_counts=True)
    return labels[np.lexsort((last, -count))]


def _fitting(costs: NDArray[np.integer], room: int) -> int:
    """How many of these fit, taken from the front."""
    return int(np.searchsorted(np.cumsum(costs), room, side="right"))


def _resolution(sizes: Ints, room: int, readable: int, separated: bool, patching: PatchingConfig) -> tuple[int, int]:
    """How many items stay in full, and how many are read at all, of items with so many tokens, the newest first."""
    costs = sizes + separated
    most = _fitting(costs, readable)
    full = np.concatenate([[0], np.cumsum(costs[:most])])
    window = patching.window

    def pooled(start: NDArray[np.integer] | int, stop: NDArray[np.integer] | int) -> Ints:
        """Positions of the items from start to stop. Windows run over the borders of items, but not over NEXT."""
        if separated:
            each = np.concatenate([[0], np.cumsum(-(-sizes[:most] // window) + 1)])
            return np.asarray(each[stop] - each[start])
        return np.asarray(-(-(full[stop] - full[start]) // window))

    places = np.arange(most + 1)
    whole = np.flatnonzero(full + pooled(places, most) <= room)  # with so many in full, the rest fits as patches
    least = _fitting(costs[:most], int(room * patching.recent_share))
    in_full = max(least, int(whole[-1]) if len(whole) else 0)
    if patching.recent_items is not None:
        in_full = min(in_full, patching.recent_items)
    fits = full[in_full] + pooled(in_full, places[in_full:]) <= room
    return in_full, in_full + int(np.flatnonzero(fits)[-1])


def _listed(rows: Ragged, which: NDArray[np.integer], gap: NDArray[np.int32]) -> list[NDArray[np.int32]]:
    """Rows with the gap between them."""
    if not len(gap):
        return [rows.take(which)[0]]
    return [part for row in which for part in (rows[int(row)], gap)][:-1]
