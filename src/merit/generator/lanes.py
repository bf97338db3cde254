"""Many continuations of one prompt over one key-value cache.

A row of the batch is a prompt, a lane one of its continuations (a sample, a beam). The lanes of a row enter the model
as several query positions of that row, each with a mask of its own: the prompt, and the slots this lane has written.
So the prompt's keys and values are computed once, held once and read once a step for all lanes, and moving a beam
from one parent to another is a copy of its mask. Prompts are padded on the right: under a causal mask no token sees
what stands behind it, so the prefill needs no padding mask, and the lanes' masks leave the padding out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import Cache, DynamicCache
from transformers.cache_utils import DynamicLayer

from merit.errors import ConfigError

PREFILL_TOKENS = 4096  # at a time: 25 % faster than a whole batch on a CPU (activations stay in its cache), less memory
BENT_LOGITS = ("final_logit_softcapping", "logit_scale", "logits_scaling")


@dataclass(frozen=True)
class Parts:
    decoder: Any  # token ids → last hidden state after the final norm
    weight: Tensor  # (vocabulary, width) of the head
    bias: Tensor | None

    @property
    def device(self) -> torch.device:
        return self.weight.device


def parts(model: Any) -> Parts:
    """The two halves of any Hugging Face causal language model: `model.model` and `model.lm_head` of a Llama."""
    for name in BENT_LOGITS:  # the head's product alone would not be the model's distribution
        if getattr(model.config, name, None) not in (None, 1, 1.0):
            raise ConfigError(f"{type(model).__name__} changes its logits by '{name}', which decoding does not know.")
    if model.config._attn_implementation not in ("sdpa", "eager"):  # the others take no mask per lane
        raise ConfigError('Decoding needs a model loaded with attn_implementation="sdpa" or "eager".')
    head = model.get_output_embeddings()
    return Parts(model.get_decoder(), head.weight, getattr(head, "bias", None))


@contextmanager
def evaluating(model: Any) -> Iterator[None]:
    """Without gradients and dropout; a model in training is in training again afterwards."""
    training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        model.train(training)


class _Slots(DynamicLayer):  # type: ignore[misc]
    """Keys and values of one layer, with room ahead: a step writes its slots and copies nothing else."""

    def __init__(self, keys: Tensor, values: Tensor, length: int) -> None:
        super().__init__()
        self.keys, self.values, self.length = keys, values, length
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        begin, self.length = self.length, self.length + key_states.shape[2]
        self.keys = _written(self.keys, key_states, begin)
        self.values = _written(self.values, value_states, begin)
        return self.keys[:, :, : self.length], self.values[:, :, : self.length]

    def keep(self, rows: Tensor) -> None:
        self.keys, self.values = (held[rows, :, : self.length] for held in (self.keys, self.values))


def _written(held: Tensor, new: Tensor, begin: int) -> Tensor:
    """`new` at `begin` along the third dimension; a quarter more room is made where there is none."""
    stop = begin + new.shape[2]
    if stop > held.shape[2]:
        room = held.new_zeros(*held.shape[:2], stop + stop // 4, *held.shape[3:])
        room[:, :, :begin] = held[:, :, :begin]
        held = room
    held[:, :, begin:stop] = new
    return held


class Continuations:
    """The cache of a batch and what each lane sees of it. `rows` and `lanes` give the shape of every step."""

    def __init__(self, caches: Sequence[Cache], lengths: Tensor, lanes: int) -> None:
        longest = int(lengths.max())
        layers = [_joined([cache.layers[at] for cache in caches], longest) for at in range(len(caches[0].layers))]
        self.cache = Cache(layers=layers)
        self.position = lengths  # (rows,) of the next token
        self.length, self.lanes = longest, lanes
        keys = layers[0].keys
        self.hidden = torch.finfo(keys.dtype).min  # not -inf, which is NaN in a row that sees nothing
        padding = torch.arange(longest, device=keys.device) >= lengths[:, None]  # (rows, longest)
        mask = torch.zeros(padding.shape, dtype=keys.dtype, device=keys.device).masked_fill_(padding, self.hidden)
        self.mask = mask[:, None].repeat(1, lanes, 1)  # (rows, lanes, room), added to the attention scores
        self.own = torch.full((lanes, lanes), self.hidden, dtype=keys.dtype, device=keys.device).fill_diagonal_(0)

    def step(self, decoder: Any, tokens: Tensor) -> Tensor:
        """The states (rows · lanes, width) after one more token (rows · lanes,) in every lane."""
        self.mask = _written(self.mask, self.own.expand(len(self.mask), -1, -1), self.length)
        self.length += self.lanes
        states: Tensor = decoder(
            input_ids=tokens.view(-1, self.lanes),
            position_ids=self.position[:, None].expand(-1, self.lanes),
            attention_mask=self.mask[:, None, :, : self.length],
            past_key_values=self.cache,
            use_cache=True,
        ).last_hidden_state
        self.position = self.position + 1
        return states.flatten(0, 1)

    def keep(self, rows: Tensor) -> None:
        """Forget the other rows."""
        for layer in self.cache.layers:
            layer.keep(rows)
        self.mask, self.position = self.mask[rows], self.position[rows]

    def reorder(self, parents: Tensor) -> None:
        """Lane i of the flat (rows · lanes,) continues what lane parents[i] of the same row has read."""
        self.mask = self.mask.flatten(0, 1)[parents].view_as(self.mask)


def _joined(parts: Sequence[Any], longest: int) -> _Slots:
    """One layer of several prefilled chunks, with a quarter of room behind. Zeros, as padding must be finite."""
    held = []
    for tensors in ([part.keys for part in parts], [part.values for part in parts]):
        rows, (_, heads, _, width) = sum(len(tensor) for tensor in tensors), tensors[0].shape
        joined = tensors[0].new_zeros(rows, heads, longest + longest // 4, width)
        at = 0
        for tensor in tensors:
            joined[at : at + len(tensor), :, : tensor.shape[2]] = tensor
            at += len(tensor)
        held.append(joined)
    return _Slots(held[0], held[1], longest)


def prefill(model: Parts, prompts: Sequence[NDArray[np.int32]], lanes: int) -> tuple[Continuations, Tensor]:
    """Read the prompts (best in order of length); also the state (rows, width) of the last token of each."""
    lengths = torch.tensor([len(prompt) for prompt in prompts], device=model.device)
    size = max(1, PREFILL_TOKENS // int(lengths.max()))
    caches, states = [], []
    for at in range(0, len(prompts), size):
        cache, last = DynamicCache(), lengths[at : at + size] - 1
        tokens = _padded(prompts[at : at + size]).to(model.device)
        read = model.decoder(input_ids=tokens, past_key_values=cache, use_cache=True).last_hidden_state
        states.append(read[torch.arange(len(last), device=model.device), last])
        caches.append(cache)
    return Continuations(caches, lengths, lanes), torch.cat(states)


def _padded(prompts: Sequence[NDArray[np.int32]]) -> Tensor:
    tokens = np.zeros((len(prompts), max(map(len, prompts))), np.int64)
    for row, prompt in zip(tokens, prompts, strict=True):
        row[: len(prompt)] = prompt
    return torch.from_numpy(tokens)
