"""XLGen (Jung et al. 2023): labels in order of frequency, generated under the guidance of label clusters.

Clusters are k-means over what the histories of a label's users have in common; each is a new token.

    MCG   one model, two tasks told apart by a task token: text → clusters, then text + clusters → labels
    BCL   a head on the mean state of the text says the clusters (cross-entropy beside the generator's own)

In training the gold clusters stand behind the text, at test those the model says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from merit.baselines import dense
from merit.baselines.budget import Budget
from merit.baselines.fitting import FitConfig, fit
from merit.baselines.generative import COLLATE, Speaker, corpus_of, few, fresh, recall, spoken, text_of
from merit.baselines.linear import histories
from merit.baselines.world import Answer, World
from merit.core.config import Frozen
from merit.core.errors import ConfigError
from merit.core.ragged import Ragged
from merit.core.seeds import stream
from merit.core.types import Ints
from merit.evaluation.predictions import owners
from merit.generator import backbone
from merit.generator.decoding import DecodeConfig
from merit.generator.training import loss_of
from merit.labels import trie
from merit.objective.collate import OBJECTIVES, Batch, Corpus, collate
from merit.objective.losses import linear_set_loss

IN_ORDER = OBJECTIVES["teacher-forcing"]


class XlgenConfig(Frozen):
    """Of both variants; there are never more clusters than live labels, whatever is asked for."""

    clusters: int = Field(30, ge=2)
    head_weight: float = Field(1.0, ge=0)
    """λ of BCL."""
    fit: FitConfig = FitConfig()


@dataclass(frozen=True)
class _Guide:
    """The clusters of a world, as tokens behind the vocabulary."""

    cluster: Ints  # by label
    number: int
    first: int  # the token of cluster 0

    @property
    def to_clusters(self) -> int:
        """Task tokens stand behind the cluster tokens."""
        return self.first + self.number

    @property
    def to_labels(self) -> int:
        return self.first + self.number + 1

    def of(self, labels: Ragged) -> Ragged:
        """The different clusters of each row, those of the most frequent labels first."""
        return Ragged.of([list(dict.fromkeys(self.cluster[labels[row]].tolist())) for row in range(len(labels))])

    def behind(self, prompts: Ragged, clusters: Ragged, task: int) -> Ragged:
        """Prompts with their clusters and a task token behind them."""
        rows = ([*prompts[row], *(clusters[row] + self.first), task] for row in range(len(prompts)))
        return Ragged.of([list(row) for row in rows])


def xlgen_mcg(world: World, seed: int, config: XlgenConfig | None = None) -> Answer:
    """Both tasks are examples of one corpus: clusters are further labels of one token each."""
    config = config or XlgenConfig()
    budget = Budget(world.seconds)
    guide, pupil, text = _guide(world, config, seed), _speaker(world, config, seed), text_of(world)
    gold = frequent_first(world.train.gold, world.popularity)
    corpus = _two_tasks(world, guide, pupil, gold)
    no_clusters = Ragged.of([[]] * max(len(text.validation), len(text.test)))

    def loss(rows: Ints, epoch: int) -> Tensor:
        return loss_of(pupil.model, collate(corpus, rows.tolist(), epoch, IN_ORDER, COLLATE, seed), 1.0)[0]

    def guided(prompts: Ragged) -> Ragged:
        asked = guide.behind(prompts, no_clusters, guide.to_clusters)
        clusters = Speaker(pupil.model, pupil.words, _cluster_trie(guide)).lists(asked, DecodeConfig())
        return guide.behind(prompts, clusters, guide.to_labels)

    told = fit(
        pupil.model,
        loss,
        corpus.prompts.lengths(),
        config.fit,
        seed,
        budget,
        lambda: recall(pupil, guided(few(text.validation)), world),
    )
    return spoken(pupil, guided(text.test), told, budget)


def xlgen_bcl(world: World, seed: int, config: XlgenConfig | None = None) -> Answer:
    """The head reads the text only: the clusters stand behind it, where a causal model has not looked yet."""
    config = config or XlgenConfig()
    budget = Budget(world.seconds)
    guide, pupil, text = _guide(world, config, seed), _speaker(world, config, seed), text_of(world)
    gold = frequent_first(world.train.gold, world.popularity)
    clusters = guide.of(gold)
    prompts = guide.behind(text.train, clusters, guide.to_labels)
    corpus = corpus_of(prompts, gold, _label_paths(world), pupil.words)
    head = _cluster_head(backbone.head(pupil.model).shape[1], guide.number)
    wanted = torch.from_numpy(dense.gold_matrix(clusters, guide.number).toarray())
    sizes = text.train.lengths()

    def loss(rows: Ints, epoch: int) -> Tensor:
        batch = collate(corpus, rows.tolist(), epoch, IN_ORDER, COLLATE, seed)
        written, means = _both(pupil.model, batch, sizes[rows])
        missed = nn.functional.binary_cross_entropy_with_logits(head(means), wanted[torch.from_numpy(rows)])
        return written + config.head_weight * missed

    def guided(asked: Ragged) -> Ragged:
        return guide.behind(asked, _named(pupil.model, head, asked), guide.to_labels)

    told = fit(
        nn.ModuleList([pupil.model, head]),
        loss,
        corpus.prompts.lengths(),
        config.fit,
        seed,
        budget,
        lambda: recall(pupil, guided(few(text.validation)), world),
    )
    return spoken(pupil, guided(text.test), told, budget)


def frequent_first(gold: Ragged, popularity: Ints) -> Ragged:
    """Every row by falling popularity, then number."""
    order = np.lexsort((gold.values, -popularity[gold.values], owners(gold)))
    return Ragged(gold.offsets, gold.values[order])


def label_clusters(world: World, number: int, seed: int) -> Ints:
    """By label. Labels nobody wanted yet have nothing in common with anybody, and share a cluster."""
    from sklearn.cluster import KMeans
    from sklearn.preprocessing import normalize

    n_labels = len(world.labels)
    met = dense.gold_matrix(world.train.gold, n_labels).T @ histories(world.train, n_labels)
    found = KMeans(number, n_init=1, random_state=seed).fit_predict(normalize(met))
    return np.asarray(found, dtype=np.int64)


def _guide(world: World, config: XlgenConfig, seed: int) -> _Guide:
    number = min(config.clusters, int(world.labels.live_mask().sum()))
    return _Guide(label_clusters(world, number, seed), number, first=len(text_of(world).shop.vocabulary))


def _speaker(world: World, config: XlgenConfig, seed: int) -> Speaker:
    """The backbone with rows for the new tokens."""
    text = text_of(world)
    if text.backbone.lora_rank:
        raise ConfigError("XLGen adds tokens, which LoRA would leave untrained. Set backbone.lora_rank to 0.")
    model = fresh(text, seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(stream(seed, "clusters").integers(2**63)))
        model.resize_token_embeddings(len(text.shop.vocabulary) + config.clusters + 2, mean_resizing=False)
    return Speaker(model, text.shop.vocabulary, text.shop.trie(world.labels.live_mask()))


def _label_paths(world: World) -> Ragged:
    paths = text_of(world).shop.paths
    return Ragged(paths.offsets, paths.tokens)


def _two_tasks(world: World, guide: _Guide, pupil: Speaker, gold: Ragged) -> Corpus:
    """Twice the training examples: first those that ask for clusters, then those that ask for labels."""
    text, clusters, paths = text_of(world), guide.of(gold), _label_paths(world)
    nothing = Ragged.of([[]] * len(gold))
    to_clusters = guide.behind(text.train, nothing, guide.to_clusters)
    to_labels = guide.behind(text.train, clusters, guide.to_labels)
    tokens = Ragged(np.arange(guide.number + 1), (guide.first + np.arange(guide.number)).astype(np.int32))
    as_labels = Ragged(clusters.offsets, clusters.values + np.int32(len(paths)))
    return corpus_of(
        dense.stacked(to_clusters, to_labels), dense.stacked(as_labels, gold), dense.stacked(paths, tokens), pupil.words
    )


def _cluster_trie(guide: _Guide) -> trie.Trie:
    return trie.build(
        np.arange(guide.number + 1), guide.first + np.arange(guide.number), np.arange(guide.number, dtype=np.int32)
    )


def _cluster_head(width: int, clusters: int) -> nn.Linear:
    """It begins at one half for every cluster, without chance."""
    head = nn.Linear(width, clusters)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    return head


def _both(model: Any, batch: Batch, sizes: Ints) -> tuple[Tensor, Tensor]:
    """The loss of the labels, and the mean state (B, width) of each text, from one reading."""
    hidden = backbone.states(model, batch.input_ids)
    chosen = hidden.flatten(0, 1)[batch.rows]
    written, _ = linear_set_loss(chosen, backbone.head(model), batch.valid_ids, batch.weights)
    return written, _means(hidden, sizes)


def _means(hidden: Tensor, sizes: Ints) -> Tensor:
    """(B, width): without what stands behind the text, padding included."""
    size = torch.from_numpy(sizes)[:, None]
    inside = (torch.arange(hidden.shape[1]) < size).to(hidden.dtype)
    return torch.einsum("blw,bl->bw", hidden, inside) / size


def _named(model: Any, head: nn.Linear, prompts: Ragged, block: int = 256) -> Ragged:
    """The clusters more likely than not, the likeliest first; at least one."""
    found: list[list[int]] = []
    with torch.inference_mode():
        for at in range(0, len(prompts), block):
            rows = [prompts[row] for row in range(at, min(at + block, len(prompts)))]
            tokens = nn.utils.rnn.pad_sequence([torch.from_numpy(row.astype(np.int64)) for row in rows], True)
            means = _means(backbone.states(model, tokens), np.array([len(row) for row in rows]))
            found += [_likely(row) for row in head(means).numpy()]
    return Ragged.of(found)


def _likely(logits: NDArray[np.float32]) -> list[int]:
    order = np.argsort(-logits, kind="stable")
    return [int(cluster) for cluster in order[: max(1, int((logits > 0).sum()))]]
