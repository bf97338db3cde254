"""What a method sees, what it gives back, and how both are built. A method is a function from a world to an answer.

    world = make_world(examples, labels, backbone, text, seconds)
    answer = method(world, seed)                 # world: train and validation users, and test users without their gold
    answer.predictions("ALS", seed)              # lists, for the evaluator
    answer.scores(labels)                        # (test users, labels), where users can be ranked for a label

Every method gets the same users, labels, tokens and time. The gold of test users is not in the world, so no method can
look at it by mistake. `methods.READS` says what each method reads of the rest, and `World.offered` takes away what it
does not.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from merit.core.artifacts import Artifact
from merit.core.errors import DataError
from merit.core.ragged import Ragged, column_lists, head
from merit.core.types import SPLITS, Floats, Ints
from merit.data.corpus import purchases_table, read_examples, read_table, read_words
from merit.data.labelled import LabelledExamples
from merit.data.texts import TOKENS, read_shop
from merit.data.title_words import TitleWords, WordCounts
from merit.data.trends import Trends
from merit.evaluation.evaluate import training_popularity
from merit.evaluation.predictions import BUDGET, LENGTH, Predictions, top
from merit.evaluation.ranking import Scores
from merit.labels import space
from merit.labels.build import load_vectors
from merit.labels.space import LabelSpace
from merit.propensity.features import read_words_and_trends

if TYPE_CHECKING:  # torch stays out of the methods that do without it
    from merit.data.texts import EncodedShop, TextConfig
    from merit.generator.backbone import BackboneConfig


TITLE_WORDS, RECENT, REVERSED = "title words", "recent popularity", "reversed histories"
"""What not every method can read, as `methods.READS` names it."""


@dataclass(frozen=True)
class WorldExamples(LabelledExamples):
    """Examples, and what else is known of their users. A method to which something is not offered finds None."""

    words: WordCounts | None
    """Of the titles in the history."""
    trends: Trends | None
    """How popular labels were in the weeks before."""


@dataclass(frozen=True)
class World:
    """Users, labels, tokens and time, the same for every method."""

    train: WorldExamples
    purchases: WorldExamples
    """The examples of the factor model, for methods that read no prompts: more purchases of the same users where there
    are few, each once more with its reversed history. Of each history the nearest items only."""
    validation: WorldExamples
    test: WorldExamples
    """Without gold and without what came later."""
    item_words: Ragged
    """By item: the words of its title, of which there are `title_words`."""
    item_labels: Ragged
    """By item: its live labels."""
    title_words: int
    labels: LabelSpace
    vectors: Floats
    """By label: its text vector."""
    popularity: Ints
    """By label: events of training users; zero for labels that are not live."""
    seconds: float
    """For training, on this machine. A method that is not done by then stops."""
    tokens: Text | None
    """For methods that read and write them; none, where the corpus has no prompts."""

    @property
    def text(self) -> Text:
        """The tokens, or an error that says how to make them."""
        if self.tokens is None:
            raise DataError("The corpus has no prompts, which this method reads. Make it with `--set reads=text`.")
        return self.tokens

    @property
    def live(self) -> Ints:
        """Labels that may be predicted, ascending."""
        return np.flatnonzero(self.labels.live_mask())

    def offered(self, reads: Collection[str]) -> World:
        """The world of a method that reads no more than this."""

        def known(examples: WorldExamples) -> WorldExamples:
            words, trends = TITLE_WORDS in reads, RECENT in reads
            return replace(
                examples, words=examples.words if words else None, trends=examples.trends if trends else None
            )

        train, words = known(self.train), TITLE_WORDS in reads
        return replace(
            self,
            train=train,
            purchases=known(self.purchases) if REVERSED in reads else train,
            validation=known(self.validation),
            test=known(self.test),
            item_words=self.item_words if words else Ragged.empty(len(self.item_words)),
            title_words=self.title_words if words else 0,
        )


@dataclass(frozen=True)
class Text:
    """The world in tokens, for methods that share the generator's backbone."""

    shop: EncodedShop
    backbone: BackboneConfig
    settings: TextConfig
    train: Ragged
    """Prompts, a row for each example."""
    validation: Ragged
    test: Ragged


@dataclass(frozen=True)
class Answer:
    """The predictions of a method for the test users, a row for each, in the order of the world."""

    ranked: Ragged
    """At least BUDGET labels of each test user, best first (all live ones, where there are fewer)."""
    free: Ragged | None = None
    """Lists at the length the method chose, where it stops by itself; otherwise the first LENGTH are taken."""
    scores: Scores | None = None
    """Comparable across users, where the method can rank users for a label."""
    summary: dict[str, float] = field(default_factory=dict)
    """Parameters, training and inference seconds, and whatever else is worth a line in the table of costs."""

    def predictions(self, method: str, seed: int) -> Predictions:
        """Lists for the evaluator: at the length the method chose, else the first LENGTH, and ranked."""
        return Predictions(method, seed, head(self.ranked, LENGTH) if self.free is None else self.free, self.ranked)


Method = Callable[[World, int], Answer]


def make_world(corpus: Artifact, labels: Artifact, backbone: BackboneConfig, text: TextConfig, seconds: float) -> World:
    """The world of a comparison. `seconds` is what a method may spend on training, on this machine."""
    label_space = space.load(labels.path)
    train, validation, test, purchases = (_known(corpus, name) for name in (*SPLITS, purchases_table(corpus)))
    vocabulary = read_words(corpus)
    items = pl.read_parquet(corpus.file("items.parquet"))
    nothing = Ragged.empty(len(test))
    return World(
        train=train,
        purchases=purchases,
        validation=validation,
        test=replace(test, gold=nothing, target_items=nothing, later=nothing),
        item_words=TitleWords.of(vocabulary, items["title"]).of_item,
        item_labels=Ragged(*space.item_labels(label_space, items)),
        title_words=len(vocabulary),
        labels=label_space,
        vectors=load_vectors(labels),
        popularity=training_popularity(label_space),
        seconds=seconds,
        tokens=_text(corpus, backbone, text) if TOKENS in corpus.manifest.files else None,
    )


def _text(corpus: Artifact, backbone: BackboneConfig, text: TextConfig) -> Text:
    prompts = (column_lists(read_table(corpus, split, "prompt")["prompt"]) for split in SPLITS)
    return Text(read_shop(corpus), backbone, text, *prompts)


def _known(corpus: Artifact, name: str) -> WorldExamples:
    words, trends = read_words_and_trends(corpus, read_table(corpus, name, "week", "words", "word_counts"))
    return WorldExamples(**vars(read_examples(corpus, name)), words=words, trends=trends)


def answer_of(scores: Floats, world: World, summary: dict[str, float], k: int = BUDGET) -> Answer:
    """The k best labels by the scores (test users, labels); labels that are not live score zero for every user."""
    kept: Floats = np.where(world.labels.live_mask(), scores, 0).astype(np.float32)
    return Answer(top(kept, world.live, k), scores=lambda labels: kept[:, labels], summary=summary)
