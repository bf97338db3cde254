"""How much there is of everything a run works on: counted where something is there to count, else as expected."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from merit.core import artifacts, console
from merit.core.artifacts import Artifact
from merit.core.settings import RunConfig
from merit.core.types import Ints
from merit.data import sources, validate
from merit.data.prepare import PrepareConfig, PrepareRun
from merit.data.title_words import vocabulary
from merit.labels import encoders
from merit.labels.build import labels_inputs
from merit.plan.config import Expected

TITLE_TOKENS = 2.0  # of a label that is not a token of its own, before there is a vocabulary to count with


@dataclass(frozen=True)
class Sizes:
    """What a plan reckons with; `origin` tells in words where the numbers are from."""

    train: int
    validation: int
    test: int
    users: int
    events: int
    bought: int  # events that are purchases
    items: int
    labels: int
    words: int  # of titles, that the propensity model knows
    golds: Ints  # labels of some examples
    prompt: float  # positions of a prompt
    label_tokens: float
    vector_width: int
    origin: str

    def longest(self, lanes: int, factor: float, most: int) -> float:
        """Labels until the last of so many samples ends, if samples are as long as golds, times the factor."""
        drawn = np.stack([np.random.default_rng(lane).permutation(self.golds) for lane in range(lanes)])
        return float(np.minimum(factor * drawn.max(0), most).mean())


def prepared(config: RunConfig) -> tuple[Artifact, Artifact] | None:
    """The examples and labels of this very configuration, if they are made."""
    settings = PrepareRun(source=config.source, prepare=config.prepare)
    if not (config.out / "labels" / artifacts.MANIFEST).exists():
        return None
    inputs = sources.open_source(config.source).inputs
    examples = artifacts.current(config.out / "examples", "examples", settings, config.seed, {}, inputs)
    if examples is None:
        return None
    parents = {"examples": examples}
    own = labels_inputs(config.labels)
    labels = artifacts.current(config.out / "labels", "labels", config.labels, config.seed, parents, own)
    return (examples, labels) if labels else None


def expected(told: Expected, config: RunConfig) -> Sizes:
    """What the configuration says of data that are elsewhere. Prompts are taken to fill their budget."""
    return Sizes(
        train=told.train,
        validation=told.validation,
        test=told.test,
        users=told.users,
        events=told.events,
        bought=told.events,
        items=told.items,
        labels=told.labels,
        words=config.states.words,
        golds=np.full(1, round(told.gold), np.int64),
        prompt=config.text.prompt.budget,
        label_tokens=told.label_tokens,
        vector_width=told.vector_width,
        origin="as the section plan.expected says",
    )


def counted(config: RunConfig) -> Sizes:
    """From the raw tables: users, events, items and tags are counted, examples and prompts estimated from them."""
    with console.spinner("counting the tables"):
        good = validate.validate(sources.open_source(config.source))
        bought = (pl.col("event") == "purchase").sum()
        [people], _ = validate.collect(good, good.interactions.group_by("user_id").agg(events=pl.len(), bought=bought))
    tags = good.items["tags"].list.len()
    split, buyers = config.prepare.split, people.filter(pl.col("events") > config.prepare.min_history)["bought"]
    share = {"validation": split.validation, "test": split.test, "train": 1 - split.validation - split.test}
    return Sizes(
        **{name: round(part * _examples(buyers, config.prepare, name)) for name, part in share.items()},
        users=len(people),
        events=int(people["events"].sum()),
        bought=int(buyers.sum()),
        items=len(good.items),
        labels=good.items["tags"].explode().n_unique(),
        words=len(vocabulary(good.items["title"], np.ones(len(good.items), np.int64), config.states.words)),
        golds=tags.filter(tags > 0).cast(pl.Int64).sample(1000, with_replacement=True, seed=config.seed).to_numpy(),
        prompt=config.text.prompt.budget,
        label_tokens=1.0 if config.backbone.whole_labels and config.backbone.name == "tiny" else TITLE_TOKENS,
        vector_width=encoders.make(config.labels.encoder).dimension,
        origin="counted in the tables; examples, prompts and tokens of a label estimated from them",
    )


def _examples(bought: pl.Series, config: PrepareConfig, split: str) -> int:
    """Every purchase could be one, as far as they are asked for."""
    most = config.per_train_user if split == "train" else config.per_test_user
    return max(1, int(bought.clip(upper_bound=most).sum()))
