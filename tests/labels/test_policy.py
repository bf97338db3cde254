"""What the policy blocks and what it lets pass: by word, by meaning, and measured on texts it has not seen."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from merit.core.errors import ConfigError
from merit.core.types import LabelEncoder
from merit.labels import encoders, policy
from merit.labels.names import normalise
from merit.labels.policy import BlockReason, Category, Override, Policy

PROBE = tomllib.loads(Path(__file__).with_name("policy_probe.toml").read_text(encoding="utf-8"))
WINE = Category(
    description="wine",
    threshold=0.8,
    terms=["wine", "hard cider"],
    phrases=["glass of merlot"],
    allow=["wine vinegar", "glass of milk"],
)


@cache
def minilm() -> LabelEncoder:
    return encoders.make("minilm")


@cache
def anchors() -> policy.Anchors:
    return policy.anchor(policy.load(), minilm())


def judge(*texts: str, rules: Policy | None = None) -> list[BlockReason | None]:
    encoder = encoders.make("hashed")
    anchors = policy.anchor(rules or Policy(category={"alcohol": WINE}), encoder)
    return policy.judge(texts, encoder.encode(texts), anchors)


@pytest.mark.parametrize(
    "text", ["WINES", "Wine & beer", "red-wine", "w\u200bine", "ＷＩＮＥ", "Hard  Ciders", "imported wine/ale"]
)
def test_a_term_blocks_as_whole_words(text: str) -> None:
    (found,) = judge(text)
    assert found is not None and found.category == "alcohol" and found.similarity is None


@pytest.mark.parametrize("text", ["winery tours", "swine feed", "apple cider", "cider, hard", "red wine vinegar"])
def test_parts_of_words_and_covered_terms_pass(text: str) -> None:
    assert judge(text) == [None]


def test_an_allowed_phrase_excuses_only_the_words_it_covers() -> None:
    (found,) = judge("wine and wine vinegar")
    assert found is not None and found.matched == "wine"


EXACT = Policy(
    category={"faith": Category(description="faith", threshold=0.8, exact=["salah", "مسجد", "prêtre", "仏像"])}
)


@pytest.mark.parametrize("text", ["Salah times", "s@lah", "مسجد قريب", "livres de pretre", "木製仏像台"])
def test_an_exact_term_is_found_in_every_script(text: str) -> None:
    (found,) = judge(text, rules=EXACT)
    assert found is not None and found.category == "faith"


@pytest.mark.parametrize("text", ["salad", "salads", "sal ah bowl", "petre", "石仏 像"])
def test_no_slip_makes_an_exact_term_of_another_word(text: str) -> None:
    assert judge(text, rules=EXACT) == [None]


def test_sayings_are_compared_with_sentences_only() -> None:
    rules = Policy(
        category={"faith": Category(description="faith", threshold=0.4, sayings=["candles on friday evening"])}
    )
    shelf, sentence = judge("friday candles", "candles on a friday evening", rules=rules)
    assert shelf is None and sentence is not None and sentence.matched == "candles on friday evening"


def test_meaning_blocks_unless_something_harmless_is_nearer() -> None:
    near, harmless = judge("glasses of merlot", "glass of milk")
    assert near is not None and near.matched == "glass of merlot" and 0.8 <= (near.similarity or 0) < 1
    assert harmless is None


def test_blocks_of_texts_give_the_same_verdicts(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"{word} of {what}" for word in ("glass", "glasses", "box") for what in ("merlot", "milk", "wine")]
    whole = judge(*texts)
    monkeypatch.setattr(policy, "BLOCK", 2)
    assert judge(*texts) == whole


@given(st.text(max_size=30), st.text(max_size=30))
def test_a_term_is_found_wherever_it_stands(before: str, after: str) -> None:
    (found,) = policy.by_words([f"{before} hard cider {after}"], Policy(category={"alcohol": WINE}))
    assert found is not None


def test_an_override_lets_one_label_through() -> None:
    rules = Policy(
        category={"alcohol": WINE}, override=[Override(label="Red  wine", reason="reviewed by legal in May")]
    )
    passed, blocked = judge("RED WINE", "white wine", rules=rules)
    assert passed is None and blocked is not None
    assert policy.overridden(["tea", "red wine"], rules) == {1: "reviewed by legal in May"}


def test_an_override_without_a_reason_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text('[category]\n[[override]]\nlabel = "wine"\nreason = "ok"\n')
    with pytest.raises(ConfigError, match=r"override\.0\.reason.*at least 10 characters"):
        policy.load(path)
    path.write_text("[category.x]\ndescription = 'x'\nthreshold = 0.5\nterm = ['y']\n")
    with pytest.raises(ConfigError, match="did you mean 'terms'"):
        policy.load(path)


def test_no_categories_block_nothing() -> None:
    assert judge("wine", "guns", rules=Policy(category={})) == [None, None]
    assert judge() == []


def test_the_default_policy_reads_and_passes_its_own_exceptions() -> None:
    rules = policy.load()
    assert {"health", "hardship", "identity", "sexual", "alcohol", "tobacco", "gambling", "weapons"} <= set(
        rules.category
    )
    for name, each in rules.category.items():
        alone = Policy(category={name: each})
        wrong = [text for text, found in zip(each.allow, policy.by_words(each.allow, alone), strict=True) if found]
        assert not wrong, f"{name} allows and forbids {wrong}"


GROCERIES = {
    "alcohol": ["BEERS/ALES", "DOMESTIC WINE", "BOURBON/TN WHISKEY", "VODKAS(42 UNDER PROOF)", "LIQUOR", "COCKTAILS"],
    "tobacco": ["CIGARETTES", "CIGARS", "TOBACCO OTHER", "SNUFF"],
    "health": ["LAXATIVES", "COLD AND FLU", "ANTACIDS", "SMOKING CESSATIONS", "PREGNANCY TEST KITS", "PHARMACY"],
    "sexual": ["PROPHYLACTICS"],
    "identity": ["KOSHER FOODS", "ETHNIC PERSONAL CARE", "HISPANIC"],
}
ORDINARY = [
    *("BABY FOODS", "DIAPERS & DISPOSABLES", "FEMININE HYGIENE", "VITAMINS", "FIRST AID PRODUCTS", "TOYS", "BUTTS"),
    *(
        "BREAST - BONELESS",
        "CHRISTMAS  SEASONAL",
        "VINEGAR WINE/RICE",
        "ROOT BEER",
        "WATER GUNS",
        "GLASSWARE & DINNERWARE",
    ),
    *(
        "AUTHENTIC THAI FOODS",
        "REFRIGERATED MEXICAN PRODUCTS",
        "SPORTS NUTRITION",
        "CHARCOAL AND LIGHTER FLUID",
        "SUGAR",
    ),
]


@pytest.mark.slow
def test_groceries() -> None:
    """The demo: nothing age-restricted or medical gets through, and the shop stays open."""
    for category, texts in GROCERIES.items():
        found = policy.judge(texts, minilm().encode(texts), anchors())
        assert [each and each.category for each in found] == [category] * len(texts)
    found = policy.judge(ORDINARY, minilm().encode(ORDINARY), anchors())
    assert [text for text, each in zip(ORDINARY, found, strict=True) if each] == []


@cache
def probed(part: str, kind: str) -> dict[str, tuple[BlockReason | None, BlockReason | None]]:
    """Each text with its verdict, and with the one by meaning alone."""
    texts = [text for each in PROBE[part][kind].values() for text in each]
    vectors = minilm().encode(texts)
    whole = policy.judge(texts, vectors, anchors())
    return dict(zip(texts, zip(whole, policy.by_vectors(texts, vectors, anchors()), strict=True), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize(("part", "missed", "wrong"), [("tuning", 0.05, 0.02), ("heldout", 0.08, 0.02)])
def test_probe(part: str, missed: float, wrong: float) -> None:
    """Run with -s to see the figures of docs/policy.md."""
    sensitive, harmless = probed(part, "sensitive"), probed(part, "harmless")
    through = [text for text, (found, _) in sensitive.items() if found is None]
    stopped = [text for text, (found, _) in harmless.items() if found]
    unworded = sum(meant is None for _, meant in sensitive.values())
    print(f"\n{part}: {len(through)} of {len(sensitive)} sensitive texts pass: {through}")
    print(f"{part}: by meaning alone, without the terms, {unworded} of them would pass")
    print(f"{part}: {len(stopped)} of {len(harmless)} harmless texts are blocked: {stopped}")
    assert len(through) <= missed * len(sensitive)
    assert len(stopped) <= wrong * len(harmless)


@pytest.mark.slow
def test_probe_of_harmless_uses_of_terms() -> None:
    """Blocking by words has this price; the test only keeps the figure of docs/policy.md true."""
    hard = probed("hard", "harmless")
    stopped = [text for text, (found, _) in hard.items() if found]
    print(f"\nhard: {len(stopped)} of {len(hard)} harmless uses of terms are blocked: {stopped}")
    assert len(stopped) >= 0.5 * len(hard)


def test_the_probe_is_not_in_the_policy() -> None:
    rules = policy.load()
    named = [text for each in rules.category.values() for text in [*each.phrases, *each.allow]]
    known = {normalise(text) for text in [*named, *rules.allow]}
    held = [
        text for part in ("heldout", "hard") for kind in PROBE[part].values() for each in kind.values() for text in each
    ]
    assert len({normalise(text) for text in held} - known) == len(held) >= 200


def test_many_labels_are_cheap() -> None:
    vectors = np.zeros((20_000, 8), dtype=np.float32)
    vectors[:, 0] = 1
    ready = policy.Anchors(
        Policy(category={}),
        [("a", "b")] * 300,
        np.full(300, 0.5, np.float32),
        np.zeros(300, np.bool_),
        np.ones((900, 8), np.float32) / np.sqrt(8),
    )
    assert policy.by_vectors(["a label"] * len(vectors), vectors, ready).count(None) == len(vectors)
