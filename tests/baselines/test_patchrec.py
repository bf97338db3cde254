"""PatchRec's prompts against a twin that writes them item by item."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from merit.baselines.patchrec import PatchrecConfig, _ranks, item_groups, session_groups, write
from merit.core.ragged import Ragged
from merit.data.prompt import Controls, Texts

PROFILE, RECENT, NEXT, ANSWER = 1, 2, 3, 4
TITLES = [[10, 11], [12], [], [13, 14, 15], [16]]
TEXTS = Texts(Ragged.of(TITLES), Ragged.of([[9]]), Controls(PROFILE, RECENT, NEXT, ANSWER), 0)

Group = tuple[list[int], bool]  # items, and whether they are a patch
Position = dict[int, float]  # what each token counts for


def slow_write(groups: list[Group], room: int) -> list[Position]:
    """Every position as the tokens in it; the newest groups first, until one does not fit."""
    spoken = [([item for item in items if TITLES[item]], pooled) for items, pooled in groups]
    spoken = [(items, pooled) for items, pooled in spoken if items]
    left, kept = room - 2, []
    for items, pooled in reversed(spoken):
        left -= 1 + (1 if pooled else sum(len(TITLES[item]) for item in items))
        if left < 0:
            break
        kept.insert(0, (items, pooled))
    positions: list[Position] = [{RECENT: 1.0}]
    for place, (items, pooled) in enumerate(kept):
        positions += [{NEXT: 1.0}] if place else []
        if not pooled:
            positions += [{token: 1.0} for item in items for token in TITLES[item]]
            continue
        mean: Position = {}
        for item in items:
            for token in TITLES[item]:
                mean[token] = mean.get(token, 0.0) + 1 / len(TITLES[item]) / len(items)
        positions.append(mean)
    return [*positions, {ANSWER: 1.0}]


def slow_groups(items: list[int], config: PatchrecConfig, sessions: bool) -> list[Group]:
    """From the newest back: in words, a patch each, and then a patch for so many."""
    back = items[::-1]
    groups: list[Group] = [([item], False) for item in back[: config.recent]]
    rest = back[config.recent :]
    if not sessions:
        return [*groups, *(([item], True) for item in rest)][::-1]
    groups += [([item], True) for item in rest[: config.session]]
    rest = rest[config.session :]
    groups += [(rest[at : at + config.session][::-1], True) for at in range(0, len(rest), config.session)]
    return groups[::-1]


def positions(prompts: Ragged, row: int) -> list[Position]:
    windows = prompts.windows  # type: ignore[attr-defined]
    found: list[Position] = []
    for id_ in prompts[row].tolist():
        if id_ >= 0:
            found.append({id_: 1.0})
            continue
        start, stop = windows.tokens.offsets[~id_ : ~id_ + 2]
        own: Position = {}
        for token, share in zip(windows.tokens.values[start:stop].tolist(), windows.shares[start:stop], strict=True):
            own[token] = own.get(token, 0.0) + float(share)
        found.append(own)
    return found


@given(
    st.lists(st.lists(st.integers(0, 4), max_size=25), min_size=1, max_size=4),
    st.integers(0, 4),
    st.integers(1, 4),
    st.integers(6, 40),
    st.booleans(),
)
def test_prompts_are_those_written_item_by_item(
    histories: list[list[int]], recent: int, session: int, room: int, sessions: bool
) -> None:
    items, config = Ragged.of(histories), PatchrecConfig(recent=recent, session=session)
    groups = session_groups if sessions else item_groups
    prompts = write(items, TEXTS, room, *groups(_ranks(items), config))
    assert len(prompts) == len(histories)
    assert prompts.lengths().max() <= room
    for row, history in enumerate(histories):
        expected = slow_write(slow_groups(history, config, sessions), room)
        assert positions(prompts, row) == [pytest.approx(position) for position in expected]


def test_any_item_may_be_compressed_by_itself() -> None:
    items = Ragged.of([[0, 3, 0, 3]])
    prompts = write(items, TEXTS, 40, _ranks(items), np.array([True, False, False, True]))
    assert prompts[0].tolist() == [RECENT, ~0, NEXT, 13, 14, 15, NEXT, 10, 11, NEXT, ~1, ANSWER]
