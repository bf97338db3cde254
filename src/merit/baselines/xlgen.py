"""XLGen (Jung et al. 2023): labels in order of frequency, generated under the guidance of label clusters.

Clusters are k-means over the histories of the users of each label; each cluster is a new token.

    MCG   one model, two tasks told apart by a task token: text → clusters, then text + clusters → labels
    BCL   a head on the mean state of the text predicts the clusters (cross-entropy beside the loss of the labels)

In training the gold clusters follow the text, at test the predicted ones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from merit.baselines.fitting import TimeBudget, TimedFitConfig
from merit.baselines.generative import COLLATE, IN_ORDER, corpus_of, fit_generator, greedy_answer, label_paths
from merit.baselines.generative import untrained as untrained_generator
from merit.baselines.linear import histories
from merit.baselines.world import Answer, World
from merit.core.config import Frozen
from merit.core.errors import ConfigError
from merit.core.ragged import Ragged, indicators, owners, stacked
from merit.core.seeds import torch_stream
from merit.core.types import Ints
from merit.generator import backbone
from merit.generator.decoding import DecodeConfig
from merit.generator.model import Generator
from merit.generator.training import loss_of
from merit.labels.token_paths import build_trie
from merit.objective.collate import Batch, Corpus, collate
from merit.objective.losses import linear_set_loss

BLOCK = 256  # prompts whose clusters are predicted together


class XlgenConfig(Frozen):
    """Of both variants; there are never more clusters than live labels."""

    clusters: int = Field(30, ge=2)
    head_weight: float = Field(1.0, ge=0)
    """λ of BCL."""
    fit: TimedFitConfig = TimedFitConfig()


@dataclass(frozen=True)
class _Guide:
    """The clusters of a world, as tokens after the vocabulary; the tokens of the two tasks follow them."""

    cluster: Ints  # by label
    number: int
    first: int  # the token of cluster 0

    @property
    def to_clusters(self) -> int:
        return self.first + self.number

    @property
    def to_labels(self) -> int:
        return self.first + self.number + 1

    def of(self, labels: Ragged) -> Ragged:
        """The different clusters of each row, those of the most frequent labels first."""
        return Ragged.of([list(dict.fromkeys(self.cluster[labels[row]].tolist())) for row in range(len(labels))])

    def behind(self, prompts: Ragged, clusters: Ragged, task: int) -> Ragged:
        """Prompts followed by their clusters and a task token."""
        rows = ([*prompts[row], *(clusters[row] + self.first), task] for row in range(len(prompts)))
        return Ragged.of([list(row) for row in rows])


def xlgen_mcg(world: World, seed: int, config: XlgenConfig | None = None) -> Answer:
    """Both tasks are examples of one corpus: clusters are further labels of one token each."""
    config = config or XlgenConfig()
    budget = TimeBudget(world.seconds)
    guide, generator = _untrained(world, config, seed)
    corpus = _two_tasks(world, guide)
    clusters = np.arange(guide.number)
    cluster_trie = build_trie(np.arange(guide.number + 1), guide.first + clusters, clusters.astype(np.int32))
    cluster_generator = replace(generator, trie=cluster_trie)

    def loss(rows: Ints, epoch: int) -> Tensor:
        return loss_of(generator.model, collate(corpus, rows.tolist(), epoch, IN_ORDER, COLLATE, seed), 1.0)[0]

    def guided(prompts: Ragged) -> Ragged:
        task = guide.behind(prompts, Ragged.empty(len(prompts)), guide.to_clusters)
        return guide.behind(prompts, cluster_generator.decode(task, DecodeConfig(), seed=0), guide.to_labels)

    summary = fit_generator(generator, world, loss, corpus.prompts.lengths(), config.fit, seed, budget, guided)
    return greedy_answer(generator, guided(world.text.test), summary, budget)


def xlgen_bcl(world: World, seed: int, config: XlgenConfig | None = None) -> Answer:
    """The head reads the text only: the clusters follow it, where a causal model has not looked yet."""
    config = config or XlgenConfig()
    budget = TimeBudget(world.seconds)
    (guide, generator), text = _untrained(world, config, seed), world.text
    gold = frequent_first(world.train.gold, world.popularity)
    clusters, sizes = guide.of(gold), text.train.lengths()
    prompts = guide.behind(text.train, clusters, guide.to_labels)
    corpus = corpus_of(prompts, gold, label_paths(world), text.shop.vocabulary)
    head = nn.Linear(backbone.head(generator.model).shape[1], guide.number)
    nn.init.zeros_(head.weight)  # every cluster starts at one half, without chance
    nn.init.zeros_(head.bias)
    target = torch.from_numpy(indicators(clusters, guide.number).toarray())

    def loss(rows: Ints, epoch: int) -> Tensor:
        batch = collate(corpus, rows.tolist(), epoch, IN_ORDER, COLLATE, seed)
        label_loss, means = _label_loss(generator.model, batch, sizes[rows])
        missed = nn.functional.binary_cross_entropy_with_logits(head(means), target[torch.from_numpy(rows)])
        return label_loss + config.head_weight * missed

    def guided(prompts: Ragged) -> Ragged:
        return guide.behind(prompts, _predicted_clusters(generator.model, head, prompts), guide.to_labels)

    both, lengths = nn.ModuleList([generator.model, head]), prompts.lengths()
    summary = fit_generator(generator, world, loss, lengths, config.fit, seed, budget, guided, both)
    return greedy_answer(generator, guided(text.test), summary, budget)


def frequent_first(gold: Ragged, popularity: Ints) -> Ragged:
    """Every row by falling popularity, then number."""
    order = np.lexsort((gold.values, -popularity[gold.values], owners(gold)))
    return Ragged(gold.offsets, gold.values[order])


def label_clusters(world: World, number: int, seed: int) -> Ints:
    """The cluster of each label. Labels that are gold for no training user share one."""
    from sklearn.cluster import KMeans
    from sklearn.preprocessing import normalize

    n_labels = len(world.labels)
    profiles = indicators(world.train.gold, n_labels).T @ histories(world.train, n_labels)
    clusters = KMeans(number, n_init=1, random_state=seed).fit_predict(normalize(profiles))
    return np.asarray(clusters, dtype=np.int64)


def _untrained(world: World, config: XlgenConfig, seed: int) -> tuple[_Guide, Generator]:
    """The clusters, and the generator with embeddings for the new tokens."""
    if world.text.backbone.lora_rank:
        raise ConfigError("XLGen adds tokens, which LoRA would leave untrained. Set backbone.lora_rank to 0.")
    generator = untrained_generator(world, seed)
    first, number = len(world.text.shop.vocabulary), min(config.clusters, len(world.live))
    with torch_stream(seed, "clusters"):
        generator.model.resize_token_embeddings(first + config.clusters + 2, mean_resizing=False)
    return _Guide(label_clusters(world, number, seed), number, first), generator


def _two_tasks(world: World, guide: _Guide) -> Corpus:
    """Twice the training examples: first with clusters as targets, then with labels."""
    text, paths = world.text, label_paths(world)
    gold = frequent_first(world.train.gold, world.popularity)
    clusters = guide.of(gold)
    first = guide.behind(text.train, Ragged.empty(len(gold)), guide.to_clusters)
    prompts = stacked([first, guide.behind(text.train, clusters, guide.to_labels)])
    as_labels = Ragged(clusters.offsets, clusters.values + np.int32(len(paths)))
    tokens = Ragged(np.arange(guide.number + 1), (guide.first + np.arange(guide.number)).astype(np.int32))
    return corpus_of(prompts, stacked([as_labels, gold]), stacked([paths, tokens]), text.shop.vocabulary)


def _label_loss(model: Any, batch: Batch, sizes: Ints) -> tuple[Tensor, Tensor]:
    """The loss of the labels, and the mean state (B, width) of each text, from one pass."""
    hidden = backbone.states(model, batch.input_ids)
    states = hidden.flatten(0, 1)[batch.rows]
    return linear_set_loss(states, backbone.head(model), batch.valid_ids, batch.weights)[0], _means(hidden, sizes)


def _means(hidden: Tensor, sizes: Ints) -> Tensor:
    """(B, width): without what follows the text, padding included."""
    size = torch.from_numpy(sizes)[:, None]
    inside = (torch.arange(hidden.shape[1]) < size).to(hidden.dtype)
    return torch.einsum("blw,bl->bw", hidden, inside) / size


def _predicted_clusters(model: Any, head: nn.Linear, prompts: Ragged) -> Ragged:
    """The clusters more likely than not, the likeliest first; at least one."""
    clusters: list[list[int]] = []
    with torch.inference_mode():
        for start in range(0, len(prompts), BLOCK):
            part = prompts.gather(np.arange(start, min(start + BLOCK, len(prompts))))
            means = _means(backbone.states(model, torch.from_numpy(part.padded(0))), part.lengths())
            clusters += [_likely(row) for row in head(means).numpy()]
    return Ragged.of(clusters)


def _likely(logits: NDArray[np.float32]) -> list[int]:
    clusters: list[int] = np.argsort(-logits, kind="stable").tolist()
    return clusters[: max(1, int((logits > 0).sum()))]
