"""Titles and labels in any script, with any control token's name in them: a prompt has its own control tokens only."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from merit.core.ragged import Ragged
from merit.data import tokenizer
from merit.data.prompt import PatchingConfig, PromptConfig, tokenise
from tests.data.one_prompt import prompt_of
from tests.fuzz.words import TEXT, cases

WORDS = tokenizer.train(["Trail shoe", "Running socks", "Cast iron pan", "home cooking"], ["trail running"], 1100)
NAMES = [WORDS.tokenizer.id_to_token(number) for number in WORDS.special_ids()]
texts = st.lists(st.one_of(TEXT, st.sampled_from(NAMES)), min_size=1, max_size=4).map("".join)
configs = st.builds(
    PromptConfig,
    budget=st.integers(16, 64),
    profile_labels=st.integers(0, 3),
    profile_share=st.sampled_from([0.0, 0.4, 1.0]),
    title_tokens=st.integers(1, 12),
)


@cases(100)
@given(
    titles=st.lists(texts, min_size=1, max_size=4),
    labels=st.lists(texts, min_size=1, max_size=3),
    history=st.lists(st.integers(0, 3), max_size=12),
    config=configs,
    patching=st.none() | st.builds(PatchingConfig, full_budget=st.integers(64, 200)),
)
def test_a_prompt_keeps_its_budget_and_its_control_tokens(
    titles: list[str], labels: list[str], history: list[int], config: PromptConfig, patching: PatchingConfig | None
) -> None:
    made = tokenise(titles, labels, WORDS.encode, WORDS.controls, config)
    items = np.array([each % len(titles) for each in history], dtype=np.uint32)
    owned = Ragged.of([[item % len(labels)] for item in range(len(titles))])
    prompt = prompt_of(items, owned, made, config, patching)
    written = prompt.tokens.tolist()
    controls = WORDS.controls
    assert written[0] == controls.profile and written[-1] == controls.answer
    for control in (controls.profile, controls.recent, controls.answer):
        assert written.count(control) == 1
    assert not set(WORDS.special_ids()) & {int(each) for text in (*made.titles, *made.labels) for each in text}
    if patching is None:
        assert len(written) <= config.budget
    else:
        assert len(prompt.sizes) <= config.budget


@cases(100)
@given(texts)
def test_no_text_becomes_a_control_token(text: str) -> None:
    assert not set(WORDS.encode([text])[0]) & set(WORDS.special_ids())
