"""A shop in tokens: what the generator reads, and what it should say.

shop = encode_shop(items, space, …)         # once: vocabulary, label paths, item texts
part = encode_examples(shard, "train", shop, prompt)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from merit.config import Frozen
from merit.data.labelled import Labelled
from merit.data.prompt import PromptConfig, Texts, choose, tokenise, tokens
from merit.data.ragged import Ragged, offsets_of
from merit.generator import tokenizer
from merit.generator.tokenizer import Vocabulary
from merit.labels.linearise import ClusterForm, Paths, linearise
from merit.labels.space import LabelSpace, item_labels
from merit.labels.trie import Trie


class TextConfig(Frozen):
    """How the shop is put into tokens."""

    item_text: Literal["labels", "rarest", "title"] = "labels"
    """What stands for an item among the recent ones: its labels, its rarest label alone, or its title. A label is a
    token or two, a title a dozen."""
    cluster_form: ClusterForm = "none"
    prompt: PromptConfig = PromptConfig()


@dataclass(frozen=True)
class Shop:
    vocabulary: Vocabulary
    paths: Paths
    texts: Texts
    item_labels: Ragged
    """By item: its live labels, in the order of the data."""

    def trie(self, live: NDArray[np.bool_]) -> Trie:
        """What may be said: live labels only."""
        return self.paths.trie().restrict(live)


def learn_vocabulary(items: pl.DataFrame, space: LabelSpace, size: int, whole: int) -> Vocabulary:
    """A vocabulary of this shop: its most frequent live labels whole, everything else in pieces."""
    live = space.table.filter(pl.col("status") == "live").sort("count", "id", descending=[True, False])
    room = max(0, min(whole, size - 1024))
    return tokenizer.train([*items["title"], *live["text"]], live["text"].head(room).to_list(), size)


def encode_shop(
    items: pl.DataFrame, space: LabelSpace, medoids: Sequence[str | None], vocabulary: Vocabulary, config: TextConfig
) -> Shop:
    """Tokenise every label and item once."""
    names = space.texts
    paths = linearise(
        names,
        vocabulary.encode,
        form=config.cluster_form,
        vocabulary=len(vocabulary),
        assignment=space.table["cluster"].to_numpy(),
        medoid_texts=medoids,
        forbidden=vocabulary.special_ids(),
    )
    labels = _canonical(Ragged(*item_labels(space, items)), paths)
    spoken = _item_texts(items, labels, space, config)
    texts = tokenise(spoken, names, vocabulary.encode, vocabulary.controls, config.prompt)
    return Shop(vocabulary, paths, texts, labels)


def write_prompts(examples: Labelled, shop: Shop, config: TextConfig) -> Ragged:
    """The prompt of each example, in tokens."""
    rows = (examples.items[row] for row in range(len(examples)))
    prompts = [
        tokens(choose(items, shop.item_labels, shop.texts, config.prompt), shop.texts, config.prompt) for items in rows
    ]
    return Ragged(offsets_of(np.array([len(prompt) for prompt in prompts])), np.concatenate(prompts))


def _canonical(labels: Ragged, paths: Paths) -> Ragged:
    """Labels that are one path are one label to the generator."""
    kept = np.arange(len(paths.offsets) - 1, dtype=np.int32)
    kept[paths.merged[:, 0]] = paths.merged[:, 1]
    return Ragged(labels.offsets, kept[labels.values])


def _item_texts(items: pl.DataFrame, labels: Ragged, space: LabelSpace, config: TextConfig) -> list[str]:
    if config.item_text == "title":
        return items["title"].to_list()
    names, counts = space.texts, space.table["count"].to_numpy()
    rows = [labels[item] for item in range(len(labels))]
    if config.item_text == "rarest":
        rows = [row[np.argsort(counts[row], kind="stable")[:1]] for row in rows]
    return [" ".join(names[label] for label in row) for row in rows]
