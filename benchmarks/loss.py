"""A self-correction training step against plain teacher forcing and against the naive dense loss.

    python -m benchmarks.loss [--quick]

All three read the same batch of tokens with the same tiny model and take a whole step (forward, backward, AdamW), at
several vocabularies. Plain teacher forcing is torch's cross-entropy on the logits of the target positions. The dense
version is what one writes first: logits of every position and a mask over the vocabulary. Peak memory is that of a
whole process that does nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks import harness
from merit.core.ragged import Ragged
from merit.core.seeds import stream
from merit.generator import backbone
from merit.objective.collate import OBJECTIVES, Batch, CollateConfig, Corpus, collate
from merit.objective.losses import linear_set_loss

SEP, END = 1, 2
PROMPT, GOLD, MINED = 200, 4, 8


def corpus(examples: int, vocabulary: int, seed: int) -> Corpus:
    """Prompts of 200 tokens, 4 gold and 8 mined labels of one to four tokens."""
    rng = stream(seed, "loss")
    labels = [rng.integers(10, vocabulary, rng.integers(1, 5)).tolist() for _ in range(2000)]
    drawn = np.stack([rng.choice(len(labels), GOLD + MINED, replace=False) for _ in range(examples)])
    prompts = rng.integers(10, vocabulary, (examples, PROMPT))
    return Corpus(
        prompts=Ragged.of(prompts.tolist()),
        gold=Ragged.of(drawn[:, :GOLD].tolist()),
        mined=Ragged.of(drawn[:, GOLD:].tolist()),
        mined_counts=np.ones(examples * MINED, np.int32),
        paths=Ragged.of(labels),
        sep=SEP,
        end=END,
    )


def world(vocabulary: int, examples: int, seed: int) -> tuple[Any, Batch, Tensor]:
    """A model, a batch, and the tokens of its targets."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    torch.set_flush_denormal(True)
    shape = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=3,
        num_attention_heads=4,
        tie_word_embeddings=True,
    )
    batch = collate(
        corpus(examples, vocabulary, seed), range(examples), 0, OBJECTIVES["self-correction"], CollateConfig(), seed
    )
    following = torch.cat([batch.input_ids[:, 1:], torch.full((examples, 1), END)], 1)
    return LlamaForCausalLM(shape), batch, following.flatten()[batch.rows]


def self_correction(model: Any, batch: Batch, targets: Tensor) -> Tensor:
    hidden = backbone.states(model, batch.input_ids).flatten(0, 1)[batch.rows]
    return linear_set_loss(hidden, backbone.head(model), batch.valid_ids, batch.weights)[0]


def teacher_forcing(model: Any, batch: Batch, targets: Tensor) -> Tensor:
    hidden = backbone.states(model, batch.input_ids).flatten(0, 1)[batch.rows]
    rows = F.cross_entropy(hidden @ backbone.head(model).T, targets, reduction="none")
    return (rows * batch.weights).sum()


def dense(model: Any, batch: Batch, targets: Tensor) -> Tensor:
    logits = model(input_ids=batch.input_ids).logits.flatten(0, 1)
    right = torch.zeros_like(logits, dtype=torch.bool)
    real = batch.valid_ids >= 0
    rows = batch.rows[:, None].expand_as(batch.valid_ids)
    right[rows[real], batch.valid_ids[real]] = True
    losses = logits.logsumexp(-1) - logits.masked_fill(~right, -torch.inf).logsumexp(-1)
    return (losses[batch.rows] * batch.weights).sum()


LOSSES: dict[str, Callable[[Any, Batch, Tensor], Tensor]] = {
    "self-correction": self_correction,
    "teacher-forcing": teacher_forcing,
    "dense": dense,
}


def stepper(vocabulary: int, examples: int, seed: int, name: str) -> Callable[[], None]:
    model, batch, targets = world(vocabulary, examples, seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        LOSSES[name](model, batch, targets).backward()
        optimizer.step()

    return step


def two_steps(vocabulary: int, examples: int, seed: int, name: str) -> None:
    """For the memory of a process: the optimiser's moments exist from the second step on."""
    step = stepper(vocabulary, examples, seed, name)
    step()
    step()


def compare(vocabulary: int, examples: int, rounds: int, seed: int) -> dict[str, float]:
    steps = {name: stepper(vocabulary, examples, seed, name) for name in LOSSES}
    forced = harness.alternate(steps["self-correction"], steps["teacher-forcing"], rounds)
    naive = harness.alternate(steps["self-correction"], steps["dense"], max(1, rounds // 3))
    peak = {name: harness.in_child(two_steps, vocabulary, examples, seed, name)[0] for name in LOSSES}
    return {
        "step_ratio": 1 / forced.speedup,
        "memory_ratio": peak["self-correction"] / peak["teacher-forcing"],
        "dense_speedup": naive.speedup,
        "dense_saving": peak["dense"] / peak["self-correction"],
        "step_seconds": forced.ours,
        "peak_gib": peak["self-correction"],
    }


def collate_headroom(examples: int, seconds_per_step: float, seed: int) -> float:
    """How many times faster batches are made than the model eats them."""
    text = corpus(256, 4096, seed)
    make = partial(collate, text, objective=OBJECTIVES["self-correction"], config=CollateConfig(), seed=seed)
    begin, made = perf_counter(), 0
    while perf_counter() - begin < 2:
        make(examples=[(made + number) % 256 for number in range(examples)], epoch=made // 256)
        made += examples
    return (made / (perf_counter() - begin)) / (examples / seconds_per_step)


def main() -> None:
    arguments = harness.parser(__doc__).parse_args()
    vocabularies, examples, rounds = ((4096, 49152), 8, 3) if arguments.quick else ((4096, 49152, 150_000), 16, 6)
    found = {size: compare(size, examples, rounds, arguments.seed) for size in vocabularies}
    large = [figures for size, figures in found.items() if size >= 49152]
    figures: dict[str, float] = {
        "step_ratio_vs_teacher_forcing": max(each["step_ratio"] for each in found.values()),
        "memory_ratio_vs_teacher_forcing": max(each["memory_ratio"] for each in found.values()),
        "speedup_vs_dense": min(each["dense_speedup"] for each in large),
        "memory_saving_vs_dense": min(each["dense_saving"] for each in large),
        "collate_headroom": collate_headroom(examples, found[4096]["step_seconds"], arguments.seed),
    }
    for size, each in found.items():
        figures |= {f"{name}_{size}": value for name, value in each.items()}
    remarks = {
        "step_ratio_vs_teacher_forcing": f"the worst of vocabularies {', '.join(map(str, found))}",
        "speedup_vs_dense": "the least of vocabularies from 49152 on",
        "memory_saving_vs_dense": "whole processes, the least from 49152 on",
    }
    harness.finish("loss", {name: round(value, 3) for name, value in figures.items()}, arguments.seed, remarks)


if __name__ == "__main__":
    harness.run(main)
