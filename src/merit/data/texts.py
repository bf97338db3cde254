"""A shop in tokens: what the generator reads, and what it should say.

shop = encode_shop(items, space, …)         # once: vocabulary, label paths, item texts
part = encode_examples(shard, "train", shop, prompt)
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import Field, model_validator
from safetensors import safe_open
from safetensors.numpy import save_file

from merit.core import artifacts
from merit.core.artifacts import Artifact
from merit.core.config import Frozen
from merit.core.ragged import Ragged, stacked
from merit.data import tokenizer
from merit.data.patches import pool
from merit.data.prompt import PatchingConfig, PromptConfig, Texts, choose, tokenise, write
from merit.data.tokenizer import Vocabulary
from merit.labels.space import LabelSpace, item_labels
from merit.labels.token_paths import ClusterForm, Paths, Trie, linearise

TOKENS, TOKENIZER = "tokens.safetensors", "tokenizer.json"
BLOCK = 4_096  # histories whose prompts are written at a time
PATHS = ("offsets", "tokens", "merged")  # arrays


class TextConfig(Frozen):
    """How the shop is put into tokens."""

    item_text: Literal["labels", "rarest", "title"] = "labels"
    """What stands for an item among the recent ones: its labels, its rarest label alone, or its title. A label is a
    token or two, a title a dozen."""
    cluster_form: ClusterForm = "none"
    prompt: PromptConfig = PromptConfig()
    patching: PatchingConfig | None = Field(None, exclude_if=lambda value: value is None)
    """Pools older items instead of leaving them out. Off, it leaves no trace in an artifact's settings."""

    @model_validator(mode="after")
    def _longer(self) -> Self:
        if self.patching and self.patching.full_budget < self.prompt.budget:
            raise ValueError(
                f"text.patching.full_budget ({self.patching.full_budget} tokens read) is less than text.prompt.budget "
                f"({self.prompt.budget} positions): there would be nothing to pool"
            )
        return self


@dataclass(frozen=True)
class EncodedShop:
    """Labels and items in tokens, as `encode_shop` makes them."""

    vocabulary: Vocabulary
    paths: Paths
    texts: Texts
    item_labels: Ragged
    """By item: its live labels, in the order of the data."""

    def trie(self, live: NDArray[np.bool_]) -> Trie:
        """All that may be decoded: live labels only."""
        return self.paths.trie().restrict(live)


def encode_shop(
    items: pl.DataFrame, labels: Artifact, space: LabelSpace, vocabulary: Vocabulary, config: TextConfig
) -> EncodedShop:
    """Every label and item in tokens. A text that stands for several of them is tokenised once."""
    names, ids = space.texts, dict[str, list[int]]()

    def encode(texts: Sequence[str]) -> list[list[int]]:
        new = [text for text in dict.fromkeys(texts) if text not in ids]
        ids.update(zip(new, vocabulary.encode(new), strict=True))
        return [ids[text] for text in texts]

    paths = linearise(
        names,
        encode,
        form=config.cluster_form,
        vocabulary=len(vocabulary),
        assignment=space.table["cluster"].to_numpy(),
        medoid_texts=pl.read_parquet(labels.file("clusters.parquet"))["name"].to_list(),
        cluster_tokens=vocabulary.clusters,
        forbidden=vocabulary.special_ids(),
    )
    kept = np.arange(len(paths.offsets) - 1, dtype=np.int32)
    kept[paths.merged[:, 0]] = paths.merged[:, 1]  # labels that are one path are one label to the generator
    offsets, carried = item_labels(space, items)
    of_item = Ragged(offsets, kept[carried])
    item_texts = _item_texts(items, of_item, space, config)
    texts = tokenise(item_texts, names, encode, vocabulary.controls, config.prompt)
    return EncodedShop(vocabulary, paths, texts, of_item)


def write_prompts(histories: Ragged, shop: EncodedShop, config: TextConfig) -> Ragged:
    """The prompt of each history (items in order of time), in tokens, all of them in full."""
    return write_patched(histories, shop, config.prompt, None)[0]


def write_inputs(histories: Ragged, shop: EncodedShop, config: TextConfig) -> Ragged:
    """The prompts as a trained generator reads them: with patches, where the settings ask for them."""
    if config.patching is None:
        return write_prompts(histories, shop, config)
    return pool(*write_patched(histories, shop, config.prompt, config.patching))


def write_patched(
    histories: Ragged, shop: EncodedShop, config: PromptConfig, patching: PatchingConfig | None
) -> tuple[Ragged, Ragged]:
    """The prompts before older items are pooled, and how many tokens each of their positions stands for."""
    blocks = []
    for rows in np.split(np.arange(len(histories)), range(BLOCK, len(histories), BLOCK)):
        prompts = choose(histories.gather(rows), shop.item_labels, shop.texts, config, patching)
        blocks.append(write(prompts, shop.texts, patching.window if patching else 1))
    tokens, sizes = zip(*blocks, strict=True)
    return stacked(tokens), stacked(sizes)


def save(shop: EncodedShop, folder: Path) -> None:
    """Write the shop to files of a folder: tokens.safetensors and tokenizer.json."""
    shop.vocabulary.tokenizer.save(str(folder / TOKENIZER))
    rows = {"titles": shop.texts.titles, "labels": shop.texts.labels, "item_labels": shop.item_labels}
    arrays: dict[str, NDArray[Any]] = {f"{name}.offsets": ragged.offsets for name, ragged in rows.items()}
    arrays |= {f"{name}.values": ragged.values for name, ragged in rows.items()}
    arrays |= {f"paths.{part}": getattr(shop.paths, part) for part in PATHS}
    header = json.dumps(
        {"form": shop.paths.form, "removed": shop.texts.removed}
    )  # keys of metadata have no fixed order
    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    save_file(arrays, folder / TOKENS, metadata={"merit": header})


@artifacts.opens
def read_shop(corpus: Artifact) -> EncodedShop:
    """Labels and items in tokens, as they were saved."""
    vocabulary = tokenizer.load(corpus.path / TOKENIZER)
    with safe_open(corpus.path / TOKENS, framework="np") as file:
        header, arrays = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    facts = json.loads(header["merit"])
    titles, labels, item_labels = (
        Ragged(arrays[f"{name}.offsets"], arrays[f"{name}.values"]) for name in ("titles", "labels", "item_labels")
    )
    paths = Paths(facts["form"], *(arrays[f"paths.{part}"] for part in PATHS))
    texts = Texts(titles, labels, vocabulary.controls, facts["removed"])
    return EncodedShop(vocabulary, paths, texts, item_labels)


def _item_texts(items: pl.DataFrame, labels: Ragged, space: LabelSpace, config: TextConfig) -> list[str]:
    if config.item_text == "title":
        return items["title"].to_list()
    names, counts = space.texts, space.table["count"].to_numpy()
    rows = [labels[item] for item in range(len(labels))]
    if config.item_text == "rarest":
        rows = [row[np.argsort(counts[row], kind="stable")[:1]] for row in rows]
    return [" ".join(names[label] for label in row) for row in rows]
