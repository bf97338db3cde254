"""The sensitive-interest policy: which labels may not be used to address people, and why.

    texts, anchors = ["red wine", "wine glasses"], policy.anchor(policy.load(), encoder)
    reasons = policy.judge(texts, encoder.encode(texts), anchors)
    reasons[0].category        # "alcohol"; reasons[1] is None

A text is blocked by its words (a term of a category, as whole words in any spelling that `spelling` can read, unless a
harmless phrase covers it) or by its vector (as near to a sensitive phrase as the category's threshold, and no nearer to
a harmless one). docs/policy.md says what is blocked, how well it works, and what it cannot see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from merit.core import config
from merit.core.config import Frozen
from merit.core.types import Floats, LabelEncoder
from merit.labels.names import normalise
from merit.labels.spelling import SLIP, Spelling, plain, words_of

DEFAULT = Path(__file__).with_name("sensitive.toml")
SENTENCE = 4  # words
MARGIN = 0.06  # below a threshold: labels so near are listed for a person to look at
BLOCK = 8192  # texts per matrix product: 8192 × 600 phrases in float32 are 20 MB


class Category(Frozen):
    """One kind of sensitive interest."""

    description: str
    threshold: Annotated[float, Field(gt=0, le=1)]
    """Cosine from which a text means the same as a phrase. Tuned for one encoder: measure again for another."""
    terms: list[str] = []
    exact: list[str] = []
    """Terms that no slip makes of another word: trade names, and words of other languages, which are near harmless ones
    of this one."""
    phrases: list[str] = []
    sayings: list[str] = []
    """Phrases in the words of people, for texts of SENTENCE words or more: a shelf's name is near too many of them."""
    allow: list[str] = []


class Override(Frozen):
    """A label that is used in spite of the policy."""

    label: str
    reason: Annotated[str, Field(min_length=10)]
    """Written down for whoever asks later; ten characters are too few for an excuse, and enough to try."""


class Policy(Frozen):
    """What a policy file says, as sensitive.toml does."""

    category: dict[str, Category]
    allow: list[str] = []
    """Harmless phrases for all categories at once: the ordinary shelves of a shop."""
    override: list[Override] = []


@dataclass(frozen=True)
class BlockReason:
    """Why a text is blocked."""

    category: str
    matched: str
    similarity: float | None
    """Cosine to the matched phrase; None where a term was found in the text itself."""


def load(path: Path = DEFAULT) -> Policy:
    """A policy file, or the one that comes with merit."""
    return config.load(Policy, path)


def judge(texts: Sequence[str], vectors: Floats, anchors: Anchors) -> list[BlockReason | None]:
    """Why each text may not be used; None for those that may. `vectors` are those of the texts."""
    excused = overridden(texts, anchors.policy)
    by_either = zip(by_words(texts, anchors.policy), by_vectors(texts, vectors, anchors), strict=True)
    return [None if row in excused else by_word or by_vector for row, (by_word, by_vector) in enumerate(by_either)]


def overridden(texts: Sequence[str], policy: Policy) -> dict[int, str]:
    """Which of the texts the policy lets through by name, and the written reason."""
    reasons = {normalise(override.label): override.reason for override in policy.override}
    if not reasons:
        return {}
    return {at: reasons[key] for at, text in enumerate(texts) if (key := normalise(text)) in reasons}


# --- by words --------------------------------------------------------------------------------------------------------


def by_words(texts: Sequence[str], policy: Policy) -> list[BlockReason | None]:
    """Terms as whole words, however they are spelled, unless an allowed phrase of that category covers their words."""
    terms, exact, allowed = (
        tuple((name, text) for name, rules in policy.category.items() for text in getattr(rules, field))
        for field in ("terms", "exact", "allow")
    )
    judge = _term_judge(terms, exact, allowed)
    return [judge(text) for text in texts]


Named = tuple[tuple[str, str], ...]  # category, text


@lru_cache(maxsize=8)
def _term_judge(terms: Named, exact: Named, allowed: Named) -> Callable[[str], BlockReason | None]:
    forms = ((form, named) for named in (*exact, *terms) for form in (plain(named[1]), named[1]))
    by_words = {words_of(form): named for form, named in forms if form == named[1] or len(form) >= SLIP}
    lifts = {(name, words_of(phrase)) for name, phrase in allowed}
    longest = max(map(len, [*by_words, *(words for _, words in lifts)]), default=0)
    spelling = Spelling(*([text for _, text in texts] for texts in (terms, exact, allowed)))

    def reason(words: tuple[str, ...]) -> BlockReason | None:
        for start, end in _spans(len(words), longest):
            if match := by_words.get(words[start:end]):
                around = (words[a:b] for a, b in _spans(len(words), longest) if a <= start and end <= b)
                if not any((match[0], phrase) in lifts for phrase in around):
                    return BlockReason(*match, None)
        return None

    return lambda text: next(filter(None, map(reason, spelling.readings(text))), None)


def _spans(count: int, longest: int) -> Iterator[tuple[int, int]]:
    return ((start, end) for start in range(count) for end in range(start + 1, min(count, start + longest) + 1))


# --- by vectors ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Anchors:
    """A policy and its phrases as vectors: first the sensitive ones, one per limit, then the harmless ones."""

    policy: Policy
    seeds: list[tuple[str, str]]  # category, phrase or saying
    limits: Floats  # (S,)
    sayings: NDArray[np.bool_]  # (S,)
    vectors: Floats  # (S + H, d)


def anchor(policy: Policy, encoder: LabelEncoder) -> Anchors:
    """Encode the phrases of a policy, once for any number of calls of `judge`."""
    phrases = [(name, phrase) for name, rules in policy.category.items() for phrase in rules.phrases]
    seeds = phrases + [(name, saying) for name, rules in policy.category.items() for saying in rules.sayings]
    limits = np.array([policy.category[name].threshold for name, _ in seeds], dtype=np.float32)
    harmless = [*policy.allow, *(phrase for rules in policy.category.values() for phrase in rules.allow)]
    vectors = encoder.encode([*(phrase for _, phrase in seeds), *harmless])
    return Anchors(policy, seeds, limits, np.arange(len(seeds)) >= len(phrases), vectors)


def by_vectors(texts: Sequence[str], vectors: Floats, anchors: Anchors) -> list[BlockReason | None]:
    """Nearness to sensitive phrases, against nearness to harmless ones.

    The reason is the sensitive phrase that exceeds its limit by most.
    """
    return list(_nearest(texts, vectors, anchors, 0.0, weigh_harmless=True))


def borderline(texts: Sequence[str], vectors: Floats, anchors: Anchors) -> list[BlockReason | None]:
    """The sensitive phrase that a text nearly means, or means less than a harmless one: for a person to judge."""
    return list(_nearest(texts, vectors, anchors, MARGIN, weigh_harmless=False))


def _nearest(
    texts: Sequence[str], vectors: Floats, anchors: Anchors, margin: float, *, weigh_harmless: bool
) -> Iterator[BlockReason | None]:
    short = np.fromiter((len(words_of(text)) < SENTENCE for text in texts), bool, len(texts))
    for start in range(0, len(vectors), BLOCK):
        block = vectors[start : start + BLOCK]
        if not anchors.seeds:
            yield from [None] * len(block)
            continue
        cosine = block @ anchors.vectors.T  # (N, S + H)
        seeds, harmless = cosine[:, : len(anchors.limits)], cosine[:, len(anchors.limits) :]
        seeds = np.where(short[start : start + BLOCK, None] & anchors.sayings, np.float32(-1), seeds)
        best = (seeds - anchors.limits).argmax(1)  # (N,)
        near = seeds[np.arange(len(cosine)), best]  # (N,)
        sensitive = near >= anchors.limits[best] - np.float32(margin)
        if weigh_harmless:
            sensitive &= near >= harmless.max(1, initial=-1.0)
        for seed, similarity, named in zip(best.tolist(), near.tolist(), sensitive.tolist(), strict=True):
            category, phrase = anchors.seeds[seed]
            yield BlockReason(category, phrase, round(similarity, 4)) if named else None
