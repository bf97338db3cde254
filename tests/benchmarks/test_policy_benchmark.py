"""The probe of the policy: enough texts of both kinds in every category, halves by rule, and sound intervals."""

from __future__ import annotations

from collections import Counter

import pytest
from scipy.stats import binomtest

from benchmarks import policy as bench
from merit.labels import encoders, policy
from merit.labels.names import normalise
from merit.labels.policy import Category, Policy


def test_every_category_is_asked_as_often_for_what_passes_as_for_what_does_not() -> None:
    texts = bench.asked()
    assert len(texts) == len({normalise(text) for _, _, text, _ in texts}) > 600
    by_kind = Counter(
        (name, kind) for name, kind, _, part in texts if part in (bench.OPEN, bench.HELD_OUT, bench.FRESH)
    )
    categories = policy.load().category
    assert set(categories) == {name for name, _ in by_kind}
    assert all(by_kind[name, "sensitive"] == by_kind[name, "harmless"] >= 18 for name in categories)


def test_evasions_are_asked_as_often_as_harmless_phrases() -> None:
    by_kind = Counter(kind for _, kind, _, part in bench.asked() if part.startswith(bench.EVASIONS))
    assert all(345 <= by_kind[kind] <= 369 for kind in bench.KINDS)  # without those that another file has
    newest = Counter(kind for _, kind, _, part in bench.asked() if part.startswith(bench.NEWEST))
    assert all(newest[kind] >= 105 for kind in bench.KINDS)


def test_halves_are_by_the_text_alone_and_about_equal() -> None:
    assert bench.half_of("Trail  Running") == bench.half_of("trail running")
    parts = Counter(part for *_, part in bench.asked())
    assert 0.8 < parts[bench.OPEN] / parts[bench.HELD_OUT] < 1.25 and parts[bench.FRESH] > 150


def test_texts_that_were_copied_into_the_policy_do_not_count() -> None:
    part_of = {text: part for _, _, text, part in bench.asked()}
    first = {part: text for text, part in reversed(part_of.items())}
    held, fresh, looked_at = (first[part] for part in (bench.HELD_OUT, bench.FRESH, bench.OPEN))
    copied = Category(description="all of them", threshold=0.9, terms=[held], phrases=[looked_at], allow=[fresh])
    left = {each.text for each in bench.judged(Policy(category={"x": copied}), encoders.make("hashed"))}
    assert set(part_of) - left == {held, fresh}


@pytest.mark.parametrize(("wrong", "texts"), [(0, 20), (3, 20), (20, 20), (1, 3)])
def test_intervals_are_wilsons(wrong: int, texts: int) -> None:
    other = binomtest(wrong, texts).proportion_ci(0.95, method="wilson")
    assert bench.wilson(wrong, texts) == pytest.approx((other.low, other.high), abs=1e-4)


def test_a_mistake_is_a_sensitive_text_that_passes_or_a_harmless_one_that_does_not() -> None:
    tea = Category(description="tea", threshold=0.9, terms=["tonic"])
    found = bench.judged(Policy(category={"tea": tea}), encoders.make("hashed"))
    blocked = {each.text for each in found if each.blocked}
    assert "tonic water" in blocked and all("tonic" in text for text in blocked)
    wrong = {each.text for each in found if (each.kind == "sensitive") != each.blocked}
    assert wrong == {each.text for each in found if each.wrong} and "tonic water" in wrong
