"""Prompts → labels: batched, cached, and never outside the label trie.

The log-probability of a label is the sum over its tokens and its terminator, under the model's distribution
renormalised over what the trie allows at each position (temperature 1, whatever was sampled at). So a label's longer
namesakes are not counted for it, and blocked labels take nothing from others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor
from torch.nn.functional import pad

from merit.core.config import Frozen
from merit.core.console import track
from merit.core.errors import DataError
from merit.core.seeds import Hashes, derive, mix, unit_interval
from merit.core.types import Floats
from merit.data.patches import Windows
from merit.generator.constraint import (
    EDGES,
    Constraint,
    Walk,
    begin,
    constrain,
    inner_choices,
    move,
    root_choices,
    settle,
)
from merit.generator.patching import reading
from merit.labels.token_paths import Trie

if TYPE_CHECKING:
    from merit.generator.kv_cache import Continuations

Pick = Callable[
    [Tensor, Tensor], tuple[Tensor, Tensor]
]  # logits (n, C), numbers of their beams (n,) → columns, log-probs (n, W)

LOOK_AHEAD = 1 / 3  # of the beams must have a forced second token: where two tokens a step begin to pay
DROP = 0.25  # finished rows leave the batch when they are such a share: often enough, and the cache is seldom copied


class DecodeConfig(Frozen):
    """How labels are chosen, how many, and of how many prompts at a time."""

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
    def width(self) -> int:
        """Continuations of each prompt, decoded side by side."""
        return {"greedy": 1, "sample": self.samples, "beam": self.beams}[self.mode]

    @property
    def least(self) -> int:
        """Labels before END may come; with a fixed budget one more than there can be."""
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
    windows: Windows | None = None,
) -> Decoded:
    """Labels for each prompt from a Hugging Face causal LM. `trie` holds the live labels and no others.

    `keys` name the prompts (`seeds.stable_hash` of the users): a prompt's samples depend on the seed and its key, never
    on its company; without keys its place is its name. `states` asks for the states at the classification positions
    of so many first labels: what predicts a label's first token, last layer, after the final norm. `windows` are the
    patches that prompts contain (`patches.windows_of`): only the prompts are read differently.
    """
    from merit.generator.kv_cache import evaluating, parts, prefill  # loads transformers

    config = config or DecodeConfig()
    decoder, head = parts(model)
    constraint = constrain(trie, head, sep, end, config.least, config.max_labels)
    _check(prompts, len(head.weight), len(windows) if windows else 0)
    out = _empty(len(prompts), config, constraint, states)
    if constraint.most:
        names = np.arange(len(prompts), dtype=np.uint64) if keys is None else keys
        read = reading(model, decoder, windows)
        with evaluating(model):
            for rows in _batches(prompts, config.batch_size):
                cache, last = prefill(read, head.weight.device, [prompts[row] for row in rows], config.width)
                walk = begin(constraint, len(rows) * config.width, states)
                noise = _noise(names[rows], config, constraint, seed)
                batch = _Batch(rows, cache, walk, last.repeat_interleave(config.width, 0), noise)
                _finish(decoder, constraint, config, batch, out)
    return out


def _check(prompts: Sequence[NDArray[np.int32]], vocabulary: int, patches: int) -> None:
    for place, prompt in enumerate(prompts):
        if not len(prompt):
            raise DataError(f"Prompt {place} has no tokens, so nothing can follow it.")
        if prompt.min() < -patches or prompt.max() >= vocabulary:
            raise DataError(f"Prompt {place} has tokens the model does not know. Use the model's own tokenizer.")


def _empty(prompts: int, config: DecodeConfig, constraint: Constraint, states: int) -> Decoded:
    shape = (prompts, config.width)
    return Decoded(
        labels=np.full((*shape, constraint.most), -1, np.int32),
        log_probs=np.zeros((*shape, constraint.most), np.float32),
        counts=np.zeros(shape, np.int32),
        scores=np.zeros(shape, np.float32),
        states=np.zeros((*shape, states, constraint.head.weight.shape[1]), np.float32),
    )


def _batches(prompts: Sequence[NDArray[np.int32]], size: int) -> Iterator[NDArray[np.int64]]:
    """Prompts of like length together: little padding. The longest first, so that too large a batch fails at once."""
    order = np.argsort([-len(prompt) for prompt in prompts], kind="stable")
    batches = [order[at : at + size] for at in range(0, len(order), size)]
    return iter(batches) if len(batches) < 2 else iter(track(batches, "Decoding", total=len(batches)))


@dataclass
class _Batch:
    rows: NDArray[np.int64]  # places of the prompts
    cache: Continuations
    walk: Walk  # beams are (rows · beams,), row by row
    hidden: Tensor  # (rows · beams, width)  states that choose the next token
    noise: Tensor  # (rows · beams, steps)

    def keep(self, rows: Tensor, beams: Tensor) -> None:
        self.rows = self.rows[rows.cpu().numpy()]
        self.cache.keep(rows.nonzero().flatten())
        self.walk, self.noise = self.walk.take(beams), self.noise[beams]


def _noise(names: Hashes, config: DecodeConfig, constraint: Constraint, seed: int) -> Tensor:
    """(beams, steps): one uniform number for each token a beam can possibly write; none where nothing is drawn."""
    if config.mode != "sample":
        return torch.empty(len(names) * config.width, 0, device=constraint.tokens.device)
    samples = np.arange(config.width, dtype=np.uint64)
    steps = np.arange(constraint.most * (constraint.depth + 1) + 1, dtype=np.uint64)
    streams = mix(derive(names, seed, "decode")[:, None], samples).reshape(-1, 1)
    return torch.from_numpy(unit_interval(mix(streams, steps))).to(constraint.tokens.device)


def _finish(decoder: Any, constraint: Constraint, config: DecodeConfig, batch: _Batch, out: Decoded) -> None:
    """Decode a batch to the end of its last beam."""
    step = 0
    while True:
        _note_states(batch)
        chosen = CHOOSE[config.mode](constraint, config, batch, step)
        tokens, sizes = _written(constraint, batch.walk, *chosen, look_ahead=config.mode != "beam")
        left = ~batch.walk.done.view(-1, config.width).all(1)
        if (share := float(left.float().mean())) <= 1 - DROP:
            beams = left.repeat_interleave(config.width)
            _write(out, batch.rows[~left.cpu().numpy()], batch.walk.take(~beams))
            if share == 0:
                return
            batch.keep(left, beams)
            tokens, sizes = tokens[beams], sizes[beams]
        batch.hidden = batch.cache.step(decoder, tokens, sizes)
        step += 1


def _written(
    constraint: Constraint, walk: Walk, column: Tensor, log_prob: Tensor, look_ahead: bool
) -> tuple[Tensor, Tensor]:
    """The tokens (beams, J) that the beams write, and how many each. J is 2 where enough second tokens are forced.

    Half the tokens of a label have no alternative in the trie. To read two at once costs a third more than one; more
    than two gains nothing, as the beams that have only one fill up with padding. Beams are compared token by token.
    A beam that is done waits for its row, and reads anything.
    """
    tokens = move(constraint, walk, column, log_prob)[:, None]
    second = torch.full_like(column, -1)
    if look_ahead:
        forced = constraint.forced[walk.node].masked_fill(column < EDGES, 0)  # 0 where a label was just completed
        if int((forced > 0).sum()) > LOOK_AHEAD * int((column >= 0).sum()):
            second = torch.where(forced > 0, forced, -1)
            more = move(constraint, walk, second, torch.zeros_like(log_prob))
            tokens = torch.cat([tokens, more[:, None]], 1)
    settle(constraint, walk, torch.where(second < 0, column, second))
    return tokens, 1 + (second >= 0).long()


def _note_states(batch: _Batch) -> None:
    """Beams at the root are at a classification position: keep their states, as far as they are asked for."""
    walk = batch.walk
    if kept := walk.states.shape[1]:
        at = ((walk.node == 0) & ~walk.done & (walk.count < kept)).nonzero().flatten()
        walk.states[at, walk.count[at]] = batch.hidden[at]


def _write(out: Decoded, rows: NDArray[np.int64], walk: Walk) -> None:
    """The beams of these rows into their places. A beam that never lived has no labels."""
    walk.count[walk.score.isneginf()] = 0
    beyond = torch.arange(out.labels.shape[2], device=walk.count.device) >= walk.count[:, None]
    walk.labels[beyond], walk.log_probs[beyond] = -1, 0
    # After SEP a beam may have chosen END, and left the state of a label that never came.
    walk.states[torch.arange(out.states.shape[2], device=walk.count.device) >= walk.count[:, None]] = 0
    for target, values in (
        (out.labels, walk.labels),
        (out.log_probs, walk.log_probs),
        (out.counts, walk.count),
        (out.scores, walk.score),
        (out.states, walk.states.float()),
    ):
        target[rows] = values.cpu().numpy().reshape(len(rows), *target.shape[1:])


def _greedy(constraint: Constraint, config: DecodeConfig, batch: _Batch, step: int) -> tuple[Tensor, Tensor]:
    columns, log_probs = _choices(constraint, batch, 1, _best)
    return columns[:, 0], log_probs[:, 0]


def _sample(constraint: Constraint, config: DecodeConfig, batch: _Batch, step: int) -> tuple[Tensor, Tensor]:
    noise = batch.noise.gather(1, batch.walk.written[:, None])  # by its own tokens, not by the batch's steps
    draw = partial(_drawn, noise=noise, temperature=config.temperature)
    columns, log_probs = _choices(constraint, batch, 1, draw)
    return columns[:, 0], log_probs[:, 0]


def _beam(constraint: Constraint, config: DecodeConfig, batch: _Batch, step: int) -> tuple[Tensor, Tensor]:
    """The best continuations of each row over all its beams; a beam that is done is its own only continuation."""
    beams = config.beams
    if step == 0:
        batch.walk.score.view(-1, beams)[:, 1:] = -torch.inf  # the beams of a row begin as one
    columns, log_probs = _choices(constraint, batch, beams, partial(_top, beams=beams))
    totals = (batch.walk.score[:, None] + log_probs).view(-1, beams * beams)
    best, place = totals.topk(beams)  # (rows, beams)
    rows = torch.arange(len(best), device=best.device)[:, None]
    parents, chosen = (rows * beams + place // beams).flatten(), (rows * beams**2 + place).flatten()
    batch.walk = batch.walk.take(parents)
    batch.cache.reorder(parents)
    dead = best.flatten().isneginf()  # fewer continuations than beams
    batch.walk.done |= dead
    batch.walk.score[dead] = -torch.inf
    return columns.flatten()[chosen].masked_fill(dead, -1), log_probs.flatten()[chosen].masked_fill(dead, 0.0)


CHOOSE = {"greedy": _greedy, "sample": _sample, "beam": _beam}


def _choices(constraint: Constraint, batch: _Batch, width: int, pick: Pick) -> tuple[Tensor, Tensor]:
    """(beams, width): the columns picked in every beam and their log-probabilities. A beam that is done takes none."""
    walk = batch.walk
    columns = torch.full((len(walk.node), width), -1, device=walk.node.device)
    log_probs = torch.full(columns.shape, -torch.inf, device=walk.node.device)
    log_probs[:, 0] = 0.0
    at_root = walk.node == 0
    for where, choices in ((at_root, root_choices), (~at_root, inner_choices)):
        beams = (where & ~walk.done).nonzero().flatten()
        if len(beams):
            columns[beams], log_probs[beams] = pick(choices(constraint, walk, beams, batch.hidden[beams]), beams)
    return columns, log_probs


def _best(logits: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    highest, column = logits.max(1, keepdim=True)
    return column, highest - logits.logsumexp(1, keepdim=True)


def _drawn(logits: Tensor, rows: Tensor, noise: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """By the inverse of the distribution function: one number decides, so a beam's draw is its own."""
    reached = (logits / temperature).softmax(1).cumsum(1, dtype=torch.float64)
    column = torch.searchsorted(reached, noise[rows] * reached[:, -1:], right=True)
    column = column.clamp(max=logits.shape[1] - 1)
    return column, (logits - logits.logsumexp(1, keepdim=True)).gather(1, column)


def _top(logits: Tensor, rows: Tensor, beams: int) -> tuple[Tensor, Tensor]:
    highest, column = logits.topk(min(beams, logits.shape[1]))
    missing = (0, beams - highest.shape[1])
    log_probs = highest - logits.logsumexp(1, keepdim=True)
    return pad(column, missing), pad(log_probs, missing, value=-torch.inf)
