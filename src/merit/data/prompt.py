"""What the generator reads about a user: a profile over the year, then the newest items in words, newest last.

    PROFILE trail running, home organisation RECENT an item, …, the newest item ANSWER

PROFILE, RECENT and ANSWER are control tokens. Titles and labels are texts by
strangers: whatever they contain, they never become a control token, because they are encoded apart from them and
checked afterwards.

What does not fit the budget is left out; with patching, older items are pooled instead (merit.data.patches), and only
what does not fit even so is left out. Control tokens are never pooled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from merit.core.config import Frozen
from merit.core.errors import ConfigError
from merit.core.ragged import Ragged, head, offsets_of, owners, ranks, select
from merit.core.types import Ints
from merit.data.patches import cut

Encode = Callable[[Sequence[str]], list[list[int]]]  # `Vocabulary.encode` is one


class PromptConfig(Frozen):
    """How much of a history a prompt holds, counted in the generator's own tokens."""

    budget: int = Field(96, ge=16)
    """Tokens in all. Whole labels and whole titles are left out to keep it; nothing is cut in the middle."""
    profile_labels: int = Field(15, ge=0)
    profile_share: float = Field(0.4, ge=0, le=1)
    """At most this part of the budget for the profile: the newest items must not be crowded out."""
    title_tokens: int = Field(24, ge=1)
    """A title longer than this is cut before it is used: sellers write novels, and the budget is for many items."""


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


class Controls(NamedTuple):
    """Ids that only we may write."""

    profile: int
    recent: int
    next: int
    answer: int


@dataclass(frozen=True)
class Prompts:
    """What prompts say, row by row, before it is said in tokens."""

    profile: Ragged
    """Labels by frequency."""
    older: Ragged
    """Items before the recent ones, which are pooled."""
    recent: Ragged
    """Items, the newest last."""


@dataclass(frozen=True)
class Texts:
    """Every title and label, tokenised once: a prompt is then put together from slices."""

    titles: Ragged  # by item
    labels: Ragged  # by label id
    controls: Controls
    removed: int  # control tokens a tokenizer let through, taken out of the texts

    @cached_property
    def pieces(self) -> Ragged:
        """Labels, then titles, then the control tokens: all that a prompt is made of."""
        controls = np.array(self.controls, dtype=np.int32)
        sizes = np.concatenate([self.labels.lengths(), self.titles.lengths(), np.ones(4, dtype=np.int64)])
        return Ragged(offsets_of(sizes), np.concatenate([self.labels.values, self.titles.values, controls]))


def tokenise(
    titles: Sequence[str], labels: Sequence[str], encode: Encode, controls: Controls, config: PromptConfig
) -> Texts:
    """Titles are cut to `title_tokens`, labels never. Control tokens that share an id are refused."""
    forbidden = set(controls)
    if len(forbidden) < 4:
        raise ConfigError(f"The four control tokens of a prompt need four different ids, not {sorted(forbidden)}.")
    rows = [*encode(titles), *encode(labels)]
    clean = [[token for token in row if token not in forbidden] for row in rows]
    removed = sum(map(len, rows)) - sum(map(len, clean))
    short = [row[: config.title_tokens] for row in clean[: len(titles)]]
    return Texts(Ragged.of(short), Ragged.of(clean[len(titles) :]), controls, removed)


def choose(
    histories: Ragged, item_labels: Ragged, texts: Texts, config: PromptConfig, patching: PatchingConfig | None = None
) -> Prompts:
    """Profiles and newest items that fit the budget. `histories`: items in order of time."""
    room = config.budget - 3  # PROFILE, RECENT, ANSWER
    ranked = head(_most_frequent(histories, item_labels), config.profile_labels)
    costs = texts.labels.sizes(ranked.values)
    profile = head(ranked, _fitting(costs, ranked, np.full(len(ranked), int(room * config.profile_share))))
    rooms = room - _sums(texts.labels.sizes(profile.values), profile)
    newest = head(_backwards(histories), patching.full_budget if patching else room)
    sizes = texts.titles.sizes(newest.values)
    if patching is None:  # with fewer tokens than items, the rest cannot fit
        recent = read = np.minimum(_fitting(sizes, newest, rooms), rooms)
    else:
        recent, read = _resolution(sizes, newest, rooms, config, patching)
    older = select(newest, (ranks(newest) >= recent[owners(newest)]) & (ranks(newest) < read[owners(newest)]))
    return Prompts(profile, _backwards(older), _backwards(head(newest, recent)))


def write(prompts: Prompts, texts: Texts, window: int = 1) -> tuple[Ragged, Ragged]:
    """The prompts as the generator reads them, and how many of the tokens each of its positions stands for.

    That is one, or a window of older items between controls.
    """
    first_item, first_control = len(texts.labels), len(texts.labels) + len(texts.titles)
    once = np.arange(len(prompts.profile) + 1)
    profile, recent, answer = (np.full(len(once) - 1, first_control + at, np.int32) for at in (0, 1, 3))
    items = _beside(prompts.older, prompts.recent)
    titles = Ragged(items.offsets, items.values + first_item)
    pieces = _beside(Ragged(once, profile), prompts.profile, Ragged(once, recent), titles, Ragged(once, answer))
    owner, is_item = owners(pieces), (pieces.values >= first_item) & (pieces.values < first_control)
    tokens, runs = texts.pieces.take(pieces.values)
    written = Ragged(offsets_of(_sums(runs, pieces)), tokens)
    number = _running(is_item, pieces)
    pooled = is_item & (number <= prompts.older.lengths()[owner])
    total = _sums(runs * pooled, pieces)[owner]  # windows run over the borders of items: all older ones are one run
    runs = np.where(pooled, np.where(number == 1, total, 0), runs)
    sizes, cuts = cut(runs, np.where(pooled, window, 1))
    return written, Ragged(offsets_of(_sums(cuts, pieces)), sizes.astype(np.int32))


def _most_frequent(histories: Ragged, item_labels: Ragged) -> Ragged:
    """Labels by how often they occur in each history; among equals the more recently seen first."""
    flat, sizes = item_labels.take(histories.values)
    owner, width = np.repeat(owners(histories), sizes), 1 + int(flat.max(initial=0))
    keys, last, count = np.unique((owner * width + flat)[::-1], return_index=True, return_counts=True)
    owner, labels = np.divmod(keys, width)
    order = np.lexsort((last, -count, owner))
    return Ragged(offsets_of(np.bincount(owner, minlength=len(histories))), labels[order].astype(np.int32))


def _resolution(
    sizes: Ints, newest: Ragged, room: Ints, config: PromptConfig, patching: PatchingConfig
) -> tuple[Ints, Ints]:
    """By row, how many items stay in full, and how many are read at all, of items with so many tokens, newest first."""
    read = _fitting(sizes, newest, room + patching.full_budget - config.budget)
    kept = ranks(newest) < read[owners(newest)]
    sizes, newest = sizes[kept], select(newest, kept)
    counts = Ragged(newest.offsets + np.arange(len(newest) + 1), np.zeros(len(newest.values) + len(newest), np.int32))
    owner, number = owners(counts), ranks(counts)  # from none to all items of each row

    def sums(values: Ints) -> Ints:
        """Of the first values of each row, beside `number`."""
        summed = np.zeros(len(number), dtype=np.int64)
        summed[number > 0] = _running(values, newest)
        return summed

    def pooled(tokens: Ints) -> Ints:
        """Positions of so many tokens of older items."""
        return -(-tokens // patching.window)

    def last(true: NDArray[np.bool_]) -> Ints:
        return np.asarray(np.maximum.reduceat(np.where(true, number, 0), counts.offsets[:-1]))

    full = sums(sizes)
    rest = pooled(full[counts.offsets[1:] - 1][owner] - full)
    whole = last(full + rest <= room[owner])  # with so many in full, the rest fits as patches
    share = (room * patching.recent_share).astype(np.int64)
    in_full = np.maximum(_fitting(sizes, newest, share), whole)
    if patching.recent_items is not None:
        in_full = np.minimum(in_full, patching.recent_items)
    at = (counts.offsets[:-1] + in_full)[owner]
    fits = (number >= in_full[owner]) & (full[at] + pooled(full - full[at]) <= room[owner])
    return in_full, last(fits)


def _running(values: NDArray[Any], lists: Ragged) -> Ints:
    """Beside the values of lists: the sum of each and of those before it in its row."""
    total = offsets_of(values)
    return total[1:] - np.repeat(total[lists.offsets[:-1]], lists.lengths())


def _sums(values: Ints, lists: Ragged) -> Ints:
    """By row, the sum of what stands beside its values."""
    return np.diff(offsets_of(values)[lists.offsets])


def _fitting(costs: Ints, lists: Ragged, room: Ints) -> Ints:
    """How many values of each row fit into its room, taken from the front."""
    return _sums((_running(costs, lists) <= room[owners(lists)]).astype(np.int64), lists)


def _backwards(lists: Ragged) -> Ragged:
    """The values of each row in reverse."""
    ends = np.repeat(lists.offsets[:-1] + lists.offsets[1:] - 1, lists.lengths())
    return Ragged(lists.offsets, lists.values[ends - np.arange(len(lists.values))])


def _beside(*lists: Ragged) -> Ragged:
    """The rows of the first, each continued by that of the second, and so on."""
    order = np.argsort(np.concatenate([owners(part) for part in lists]), kind="stable")
    values = np.concatenate([part.values for part in lists])
    return Ragged(np.sum([part.offsets for part in lists], axis=0), values[order])
