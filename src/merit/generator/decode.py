"""Prompts → labels: batched, cached, and never outside the label trie.

The log-probability of a label is the sum over its tokens and its terminator, under the model's distribution
renormalised over what the trie allows at each position (temperature 1, whatever was sampled at). So a label's longer
namesakes are not counted for it, and blocked labels take nothing from others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from merit.config import Frozen
from merit.console import track
from merit.errors import DataError
from merit.generator.constraint import (
    Constraint,
    Walk,
    advance,
    begin,
    constrain,
    inner_choices,
    root_choices,
)
from merit.generator.lanes import Continuations, Parts, evaluating, parts, prefill
from merit.labels.trie import Trie
from merit.seeds import Hashes, derive, mix, unit_interval
from merit.types import Floats

Pick = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]  # logits (n, C), lanes (n,) → columns and log-probs (n, W)

DROP = 0.25  # finished rows leave the batch when they are such a share: often enough, and the cache is seldom copied


class DecodeConfig(Frozen):
    mode: Literal["greedy", "sample", "beam"] = "greedy"
    temperature: float = Field(1.0, gt=0)
    """Of `sample`."""
    samples: int = Field(1, ge=1)
    """Of `sample`, for each prompt. They share one reading of the prompt."""
    beams: int = Field(4, ge=1)
    """Of `beam`. All of them are given back, the best first."""
    max_labels: int = Field(20, ge=1)
    min_labels: int = Field(0, ge=0)
    """END has probability zero before so many labels."""
    fixed_budget: bool = False
    """END has probability zero throughout: exactly max_labels labels (all, where there are fewer). The labels at a
    smaller budget are then the first ones at a larger."""
    batch_size: int = Field(64, ge=1)
    """Prompts decoded together. Lower it when memory is short."""

    @property
    def lanes(self) -> int:
        return {"greedy": 1, "sample": self.samples, "beam": self.beams}[self.mode]

    @property
    def least(self) -> int:
        return self.max_labels + 1 if self.fixed_budget else self.min_labels


@dataclass(frozen=True)
class Decoded:
    """One row for each prompt and sample (or beam)."""

    labels: NDArray[np.int32]  # (prompts, samples, most)  in the order written; -1 beyond the last
    log_probs: Floats  # (prompts, samples, most)  0 beyond the last
    counts: NDArray[np.int32]  # (prompts, samples)
    scores: Floats  # (prompts, samples)  log-probability of the whole sequence, END included
    states: Floats  # (prompts, samples, states, width)  of the first labels; zeros beyond the last

    def lists(self) -> list[list[list[int]]]:
        """The label ids of each prompt and sample, without padding."""
        return [
            [labels[:count].tolist() for labels, count in zip(*sample, strict=True)]
            for sample in zip(self.labels, self.counts, strict=True)
        ]


def decode(
    model: Any,
    prompts: Sequence[NDArray[np.int32]],
    trie: Trie,
    sep: int,
    end: int,
    config: DecodeConfig | None = None,
    seed: int = 0,
    *,
    keys: Hashes | None = None,
    states: int = 0,
) -> Decoded:
    """Labels for each prompt from a Hugging Face causal LM. `trie` holds the live labels and no others.

    `keys` name the prompts (`seeds.stable_hash` of the users): a prompt's samples depend on the seed and its key, never
    on its company; without keys its place is its name. `states` asks for the states at the classification positions
    of so many first labels: what predicts a label's first token, last layer, after the final norm.
    """
    config = config or DecodeConfig()
    model_parts = parts(model)
    constraint = constrain(trie, model_parts, sep, end, config.least, config.max_labels)
    _check(prompts, len(model_parts.weight))
    out = _empty(len(prompts), config, constraint, states)
    if constraint.most:
        names = np.arange(len(prompts), dtype=np.uint64) if keys is None else keys
        with evaluating(model):
            for rows in _batches(prompts, config.batch_size):
                read = prefill(model_parts, [prompts[row] for row in rows], config.lanes)
                noise = _noise(names[rows], config, constraint, seed) if config.mode == "sample" else None
                _decode(model_parts, constraint, config, rows, *read, noise, out)
    return out


def _check(prompts: Sequence[NDArray[np.int32]], vocabulary: int) -> None:
    for place, prompt in enumerate(prompts):
        if not len(prompt):
            raise DataError(f"Prompt {place} has no tokens, so nothing can follow it.")
        if prompt.min() < 0 or prompt.max() >= vocabulary:
            raise DataError(f"Prompt {place} has tokens the model does not know. Use the model's own tokenizer.")


def _empty(prompts: int, config: DecodeConfig, constraint: Constraint, states: int) -> Decoded:
    shape = (prompts, config.lanes)
    return Decoded(
        labels=np.full((*shape, constraint.most), -1, np.int32),
        log_probs=np.zeros((*shape, constraint.most), np.float32),
        counts=np.zeros(shape, np.int32),
        scores=np.zeros(shape, np.float32),
        states=np.zeros((*shape, states, constraint.weight.shape[1]), np.float32),
    )


def _batches(prompts: Sequence[NDArray[np.int32]], size: int) -> Iterator[NDArray[np.int64]]:
    """Prompts of like length together: little padding. The longest first, so that too large a batch fails at once."""
    order = np.argsort([-len(prompt) for prompt in prompts], kind="stable")
    batches = [order[at : at + size] for at in range(0, len(order), size)]
    return iter(batches) if len(batches) < 2 else iter(track(batches, "Decoding", total=len(batches)))


def _noise(names: Hashes, config: DecodeConfig, constraint: Constraint, seed: int) -> Tensor:
    """(lanes, steps): one uniform number for each token a lane can possibly write."""
    samples = np.arange(config.lanes, dtype=np.uint64)
    steps = np.arange(constraint.most * (constraint.depth + 1) + 1, dtype=np.uint64)
    streams = mix(derive(names, seed, "decode")[:, None], samples).reshape(-1, 1)
    return torch.from_numpy(unit_interval(mix(streams, steps))).to(constraint.label.device)


def _decode(
    model: Parts,
    constraint: Constraint,
    config: DecodeConfig,
    rows: NDArray[np.int64],
    cache: Continuations,
    last: Tensor,
    noise: Tensor | None,
    out: Decoded,
) -> None:
    """One batch, to the end of its last lane."""
    lanes = config.lanes
    walk = begin(constraint, len(rows) * lanes, out.states.shape[2])
    if config.mode == "beam":
        walk.score.view(-1, lanes)[:, 1:] = -torch.inf  # the beams of a row begin as one
    hidden, step = last.repeat_interleave(lanes, 0), 0
    while True:
        _note_states(walk, hidden)
        pick = _picker(config, noise, step)
        columns, log_probs = _candidates(constraint, walk, hidden, pick, lanes if config.mode == "beam" else 1)
        if config.mode == "beam":
            walk, columns, log_probs = _keep_best(walk, columns, log_probs, lanes, cache)
        going = (~walk.done).nonzero().flatten()
        tokens = torch.full_like(walk.node, int(constraint.terminators[0]))
        tokens[going] = advance(constraint, walk, going, columns[going, 0], log_probs[going, 0])
        finished = walk.done.view(-1, lanes).all(1)
        if (share := float(finished.float().mean())) >= DROP:
            _write(out, rows[finished.cpu().numpy()], walk.take(finished.repeat_interleave(lanes)))
            if share == 1:
                return
            ...
        hidden = cache.step(model.decoder, tokens)
        step += 1
