"""From examples to a batch: which labels are read in which order this epoch, what is right where, and padding.

Every draw comes from a stream named after the epoch and the example, so a resumed run sees the same batches, and
another batch size or another worker changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from merit.core.config import Frozen
from merit.core.errors import ConfigError, DataError
from merit.core.ragged import Ragged
from merit.core.seeds import stream
from merit.data.patches import Patched, Windows, numbered
from merit.objective.targets import Label, target_sequence

Tokens = NDArray[np.int32]


class Objective(Frozen):
    """A row of the paper's ablation table. The rows differ in nothing else."""

    sets: bool = True
    """Whether every missing gold label is right at a classification position, or only the next one in order."""
    mined: bool = False
    """Whether mined labels are mixed in."""
    beta: float = Field(1.0, ge=0, le=1)
    """1: pooled over the right tokens (the paper); 0: uniform over them."""


OBJECTIVES = {
    "teacher-forcing": Objective(sets=False),
    "permutation-invariance": Objective(),
    "cross-entropy-invariance": Objective(beta=0.0),
    "self-correction": Objective(mined=True),
}


class CollateConfig(Frozen):
    """How long a target may be, and how many mined labels are in it."""

    max_target: int = Field(96, ge=4)
    """Tokens. Whole mined labels are left out first, then whole gold ones; END is then never right."""
    mined_per_example: int = Field(8, ge=0)
    """At most, drawn afresh every epoch in proportion to how often each was mined."""


@dataclass(frozen=True)
class Corpus:
    """Examples in tokens and label ids."""

    prompts: Ragged  # tokens
    gold: Ragged  # label ids, in the order the data gives them
    mined: Ragged  # label ids
    mined_counts: NDArray[np.int32]  # beside mined.values
    paths: Ragged  # by label id: the tokens of the label
    sep: int
    end: int
    patched: Patched | None = None
    """The prompts once more, with patches: what the same budget holds of a longer history."""

    def __len__(self) -> int:
        return len(self.prompts)


@dataclass(frozen=True)
class Batch:
    """Prompts and targets, padded on the right: causal attention never looks there, so no mask is needed."""

    input_ids: Tensor  # (B, L); ~n, below zero, is patch n
    rows: Tensor  # (N,) of input_ids.flatten(): positions whose states predict
    valid_ids: Tensor  # (N, K) padded with -1
    weights: Tensor  # (N,) mean over an example's positions, then over examples
    classification: Tensor  # (N,) whether a label is chosen here
    padding: float  # share of input_ids that is nothing but padding
    patches: Windows | None = None


def check_corpus(corpus: Corpus, config: CollateConfig) -> None:
    """Refuse what cannot be learnt from, before hours are spent on it."""
    if not len(corpus) or not len(corpus.gold.values):
        raise DataError("There is nothing to train on: no example has a gold label that is live in this label space.")
    if (corpus.gold.lengths() == 0).any():
        raise DataError("An example has no gold label left; leave such examples out before training.")
    longest = int(corpus.paths.lengths()[np.unique(corpus.gold.values)].max()) + 1
    if longest > config.max_target:
        raise ConfigError(
            f"A label takes {longest} tokens with its terminator, but a target may have {config.max_target}. "
            f"Set stage_1.max_target and stage_2.max_target to {longest} or more."
        )


def choose_labels(
    corpus: Corpus, example: int, epoch: int, objective: Objective, config: CollateConfig, seed: int
) -> tuple[list[Label], list[Label]]:
    """The labels to be read, in order, and the gold ones (cut ones included)."""
    rng = stream(seed, "collate", epoch, example)
    gold = corpus.gold[example]
    mined = _draw_mined(corpus, example, config.mined_per_example, rng) if objective.mined else gold[:0]
    if objective.sets:
        gold = rng.permutation(gold)
    kept = _fitting(np.concatenate([gold, mined]), corpus.paths, config.max_target)
    order = rng.permutation(kept) if objective.sets else kept
    paths = [[tuple(corpus.paths[int(label)].tolist()) for label in labels] for labels in (order, gold)]
    return paths[0], paths[1]


def compose(
    labels: list[Label], gold: list[Label], objective: Objective, corpus: Corpus
) -> tuple[list[int], list[set[int]]]:
    """Target tokens and right sets of one example under an objective."""
    tokens, valid = target_sequence(labels, gold, corpus.sep, corpus.end)
    if objective.sets:
        return tokens, valid
    whole = len(labels) == len(gold)  # a cut target is not taught to end here
    return tokens, [{token} if whole or token != corpus.end else {corpus.sep} for token in tokens]


def collate(
    corpus: Corpus,
    examples: Sequence[int],
    epoch: int,
    objective: Objective,
    config: CollateConfig,
    seed: int,
    patched: NDArray[np.bool_] | None = None,
) -> Batch:
    """One batch. `examples` are row numbers of the corpus; those that are `patched` are read with their patches."""
    chosen = [choose_labels(corpus, example, epoch, objective, config, seed) for example in examples]
    targets = [compose(labels, gold, objective, corpus) for labels, gold in chosen]
    prompts, windows = _prompts(corpus, examples, patched)
    width = max(len(prompt) + len(tokens) - 1 for prompt, (tokens, _) in zip(prompts, targets, strict=True))
    input_ids = np.zeros((len(prompts), width), dtype=np.int64)
    rows, filled = [], 0
    for line, (prompt, (tokens, _)) in enumerate(zip(prompts, targets, strict=True)):
        read = np.concatenate([prompt, tokens[:-1]])
        input_ids[line, : len(read)] = read
        rows.append(line * width + np.arange(len(prompt) - 1, len(read)))
        filled += len(read)
    valid_ids = Ragged.of([sorted(right) for _, valid in targets for right in valid]).padded()
    sizes = np.array([len(tokens) for tokens, _ in targets])
    weights = np.repeat(1 / (sizes * len(sizes)), sizes)  # the mean over an example's positions, then over examples
    starts = np.concatenate([[True, *(token == corpus.sep for token in tokens[:-1])] for tokens, _ in targets])
    ids, patches = (input_ids, None) if windows is None else numbered(input_ids, windows)
    return Batch(
        input_ids=torch.from_numpy(ids),
        rows=torch.from_numpy(np.concatenate(rows)),
        valid_ids=torch.from_numpy(valid_ids),
        weights=torch.from_numpy(weights.astype(np.float32)),
        classification=torch.from_numpy(starts),
        padding=1 - filled / input_ids.size,
        patches=patches,
    )


def _prompts(
    corpus: Corpus, examples: Sequence[int], patched: NDArray[np.bool_] | None
) -> tuple[list[Tokens], Windows | None]:
    """The prompt of each example in its form, and the windows of patches among them."""
    if corpus.patched is None or patched is None:
        return [corpus.prompts[example] for example in examples], None
    forms = (corpus.prompts, corpus.patched)
    chosen = [forms[bool(form)][example] for example, form in zip(examples, patched, strict=True)]
    return chosen, corpus.patched.windows if any((prompt < 0).any() for prompt in chosen) else None


def _draw_mined(corpus: Corpus, example: int, most: int, rng: np.random.Generator) -> NDArray[np.int32]:
    mined = corpus.mined[example]
    if len(mined) <= most:
        return mined
    counts = corpus.mined_counts[corpus.mined.offsets[example] : corpus.mined.offsets[example + 1]]
    return rng.choice(mined, size=most, replace=False, p=counts / counts.sum())


def _fitting(labels: NDArray[np.int32], paths: Ragged, room: int) -> NDArray[np.int32]:
    """The labels from the front that fit: gold ones stand first, so mined ones go first."""
    costs = np.cumsum(paths.lengths()[labels] + 1)
    return labels[: max(1, int(np.searchsorted(costs, room, side="right")))]
