"""Readings of a text: the terms that are hidden in it, and no others."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from merit.labels import policy, spelling
from merit.labels.policy import Category, Policy
from merit.labels.spelling import Spelling, words_of

TERMS = ["condom", "red wine", "cigarette", "hemorrhoid", "beer", "gun", "pregnancy test"]
SPELLING = Spelling(TERMS, ["wine glasses", "beer can", "glue gun"])
HIDDEN = {
    "digits": ("c0nd0ms", "condom"),
    "another alphabet": ("\u0441\u043endom", "condom"),
    "wide letters": ("\uff43\uff4f\uff4e\uff44\uff4f\uff4d", "condom"),
    "accents": ("c\u00f3nd\u00f6m", "condom"),
    "joined": ("redwineglasses", "wine"),
    "joined with a word that nobody knows": ("cigarettefoo", "cigarette"),
    "with gaps": ("c-i-g-a-r-e-t-t-e-s", "cigarette"),
    "in parts": ("con doms", "condom"),
    "three letters alone": ("g u n", "gun"),
    "a slip": ("cigarrete", "cigarette"),
    "two slips": ("hemmorhoid", "hemorrhoid"),
    "doubled letters": ("beeer", "beer"),
    "two at once": ("pregn4ncyt3st", "pregnancy"),
}


@pytest.mark.parametrize("how", HIDDEN)
def test_terms_are_read_however_they_are_written(how: str) -> None:
    text, term = HIDDEN[how]
    found = {word for words in SPELLING.readings(text) for word in words}
    assert term in found


@pytest.mark.parametrize("text", ["winter", "condo", "gunther", "beef", "7up", "mp3 player", "nun's gown"])
def test_other_words_are_read_as_they_are(text: str) -> None:
    whole = {word for term in TERMS for word in words_of(term)}
    assert not any(whole.intersection(words) for words in SPELLING.readings(text))


def test_a_reading_is_lifted_by_the_same_phrases() -> None:
    rules = Policy(category={"x": Category(description="x", threshold=0.9, terms=["wine"], allow=["wine glasses"])})
    blocked = [reason is not None for reason in policy.by_words(["wineglasses", "w1ne glasses", "winebottle"], rules)]
    assert blocked == [False, False, True]


def test_words_that_are_spelled_right_are_no_slips() -> None:
    rules = policy.load()
    assert policy.by_words(["piston", "whisker", "condo", "satin sheets", "station"], rules) == [None] * 5
    assert all(policy.by_words(["Hemorrhoidal", "Fem yeast treatments"], rules))


@given(st.text("abcd", min_size=1, max_size=7), st.text("abcd", min_size=1, max_size=7))
def test_slips_are_counted_as_by_definition(one: str, two: str) -> None:
    def slow(a: str, b: str) -> int:
        if not a or not b:
            return len(a) + len(b)
        steps = [slow(a[:-1], b) + 1, slow(a, b[:-1]) + 1, slow(a[:-1], b[:-1]) + (a[-1] != b[-1])]
        if len(a) > 1 and len(b) > 1 and a[-2:] == b[-2:][::-1]:
            steps.append(slow(a[:-2], b[:-2]) + 1)
        return min(steps)

    assert spelling._distance(one[:5], two[:5]) == slow(one[:5], two[:5])


@given(st.text(max_size=40))
def test_the_first_reading_is_the_text_itself(text: str) -> None:
    assert next(SPELLING.readings(text)) == words_of(text)
