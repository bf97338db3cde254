"""A few examples to try a machine with: some of the real ones, or made-up ones of the expected sizes."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from merit.core.artifacts import Artifact
from merit.core.ragged import Ragged, offsets_of
from merit.core.seeds import stream
from merit.core.settings import RunConfig
from merit.core.types import Floats, Ints
from merit.data import texts
from merit.data.labelled import label_examples
from merit.data.prepare import shards
from merit.data.tokenizer import Vocabulary
from merit.generator.backbone import TINY
from merit.generator.model import read_shop
from merit.labels import space, trie
from merit.labels.build import load_vectors
from merit.labels.trie import Trie
from merit.objective.collate import Corpus
from merit.plan.shapes import facts_of, stand_in
from merit.plan.sizes import Sizes
from merit.propensity.states import known_words

ROWS = 1024
MADE_UP_LABELS = 5_000  # enough for the shape of a trie; all of them would only take time to make up


@dataclass(frozen=True)
class Sample:
    """Examples, what is known of their users, and how long it took to put them into tokens."""

    vocabulary: Vocabulary
    trie: Trie
    corpus: Corpus
    inputs: Ragged
    """The prompts as a trained generator reads them."""
    history: Ragged
    times: NDArray[np.int32]
    vectors: Floats
    live: NDArray[np.bool_]
    once: float
    """Seconds for what is read whatever the number of prompts: the shop."""
    each: float
    """Seconds for a prompt."""


def real(examples: Artifact, labels: Artifact, config: RunConfig) -> tuple[Sample, Sizes]:
    """Examples of the first shard, with mistakes drawn by popularity, and the sizes of all."""
    begin = time.perf_counter()
    known, settings = space.load(labels.path), config.generator(config.stage_2)
    shop = read_shop(examples, labels, known, settings)
    part = next(shards(examples))
    once = time.perf_counter() - begin
    all_ = label_examples(part.users, part.events, part.examples, "train", shop.item_labels)
    rows = np.sort(stream(config.seed, "plan").permutation(len(all_))[:ROWS])
    each = (time.perf_counter() - begin - once) / len(all_)
    items, gold = all_.items.gather(rows), all_.gold.gather(rows)
    begin = time.perf_counter()
    prompts = texts.write_prompts(items, shop, config.text)
    patching = config.text.patching
    patched = texts.write_patched(items, shop, config.text.prompt, patching) if patching else None
    each += (time.perf_counter() - begin) / len(rows)
    live, said = known.live_mask(), shop.paths.kept.astype(np.int64)
    said = said[live[said]]
    weights = 1 + np.bincount(all_.gold.values, minlength=len(known))[said]
    mined, counts = _mistakes(gold, said, weights, config.stage_2.mined_per_example, config.seed)
    times, _ = Ragged(all_.history.offsets, all_.counts).take(rows)
    words, paths = shop.vocabulary, Ragged(shop.paths.offsets, shop.paths.tokens)
    corpus = Corpus(prompts, gold, mined, counts, paths, words.sep, words.end, patched)
    vectors, told = load_vectors(labels), examples.manifest.summary
    inputs = prompts if patched is None else patched
    sample = Sample(words, shop.trie(live), corpus, inputs, all_.history.gather(rows), times, vectors, live, once, each)
    return sample, Sizes(
        **{name: told[name] for name in ("train", "validation", "test", "users", "events", "items")},
        bought=told["events"] * int((part.events["event"] == "purchase").sum()) // len(part.events),
        labels=len(known),
        words=len(known_words(examples, config.states.words).vocabulary),
        golds=all_.gold.lengths(),
        prompt=float(inputs.lengths().mean()),
        label_tokens=float(paths.lengths()[all_.gold.values].mean()),
        vector_width=vectors.shape[1],
        origin=f"counted in {examples.path.parent}",
    )


def made_up(sizes: Sizes, config: RunConfig) -> Sample:
    """Random tokens that fill every prompt's budget."""
    rng = stream(config.seed, "plan")
    words = _vocabulary(config)
    own = np.setdiff1d(np.arange(len(words)), sorted(words.special_ids()))
    labels, length = min(sizes.labels, MADE_UP_LABELS), max(1, round(sizes.label_tokens))
    tokens = np.unique(rng.choice(own, (labels, length)), axis=0).astype(np.int32)
    paths = Ragged(offsets_of(np.full(len(tokens), length)), tokens.ravel())
    gold = Ragged.of([rng.permutation(len(tokens))[:size].tolist() for size in rng.choice(sizes.golds, ROWS)])
    written = rng.choice(own, (ROWS, round(sizes.prompt))).astype(np.int32)
    prompts = Ragged(offsets_of(np.full(ROWS, written.shape[1])), written.ravel())
    every = np.arange(len(tokens))
    mined, counts = _mistakes(gold, every, np.ones_like(every), config.stage_2.mined_per_example, config.seed)
    vectors = rng.standard_normal((len(tokens), sizes.vector_width)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return Sample(
        words,
        trie.build(paths.offsets, paths.values, every.astype(np.int32)),
        Corpus(prompts, gold, mined, counts, paths, words.sep, words.end),
        prompts,
        history=gold,
        times=np.ones(len(gold.values), np.int32),
        vectors=vectors,
        live=np.ones(len(tokens), bool),
        once=0.0,
        each=0.0,
    )


def _mistakes(gold: Ragged, said: Ints, weights: Ints, most: int, seed: int) -> tuple[Ragged, NDArray[np.int32]]:
    """Labels that may be said, drawn by weight, as many for every example as training would read at most."""
    drawn = stream(seed, "plan", "mined").choice(said, (len(gold), most), p=weights / weights.sum())
    found = Ragged.of([np.setdiff1d(row, gold[at]).tolist() for at, row in enumerate(drawn)])
    return found, np.ones(len(found.values), np.int32)


def _vocabulary(config: RunConfig) -> Vocabulary:
    """As many words as the backbone has; the last of them are control tokens."""
    if config.backbone.name == TINY:
        return stand_in(config.backbone.vocabulary)
    return stand_in(facts_of(config.backbone, config.plan).vocab_size)
