"""One training loop for every objective and backbone.

The batch of a step is a function of seed and step alone, and so is the learning rate; a checkpoint holds the rest. A
run that was killed and resumed is therefore the same run, to the byte on a CPU.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from accelerate import Accelerator
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from merit import console, denormals
from merit.config import digest
from merit.data.prompt import PatchingConfig
from merit.errors import TrainingError
from merit.generator import backbone, checkpoint
from merit.generator.patching import SCHEDULES, Schedule, drawn, in_full
from merit.objective.collate import Batch, CollateConfig, Corpus, Objective, check_corpus, collate
from merit.objective.losses import linear_set_loss
from merit.seeds import stream

BEST = "best.safetensors"
POOL = 50  # batches whose examples are sorted by length together: little padding, still a shuffle


PARTS = ("loss", "classification", "completion", "history", "padding")  # of a step, for the log

Plan = Callable[[int], tuple[int, NDArray[np.int64]]]


class TrainConfig(CollateConfig):
    steps: int = Field(1500, ge=1)
    batch_size: int = Field(64, ge=1)
    accumulate: int = Field(1, ge=1)
    """Batches per step. Halve the batch and double this when memory runs out: the result is nearly the same."""
    learning_rate: float = Field(2e-3, gt=0)
    warmup: float = Field(0.05, ge=0, le=1)
    final_rate: float = Field(0.05, ge=0, le=1)
    """Where the cosine schedule ends, as a part of the learning rate."""
    weight_decay: float = Field(0.01, ge=0)
    clip: float = Field(1.0, gt=0)
    evaluate_every: int = Field(0, ge=0)
    """Steps between evaluations on validation users; 0 for none."""
    patience: int = Field(0, ge=0)
    """Stop after so many evaluations without a better recall; 0 never stops early."""
    checkpoint_every: int = Field(250, ge=1)


class Log(Protocol):
    """Where figures go: TensorBoard's SummaryWriter fits."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> Any: ...


@dataclass
class Progress:
    """All that changes while training, besides weights and optimiser."""

    step: int = 0
    tokens: int = 0
    best: float = -1.0
    best_step: int = 0
    stale: int = 0
    stopped: bool = False


@dataclass(frozen=True)
class _Run:
    """What stays the same from step to step."""

    accelerator: Accelerator
    model: Any
    optimizer: Any
    corpus: Corpus
    objective: Objective
    config: TrainConfig
    seed: int
    folder: Path
    log: Log | None
    schedule: Schedule


def train(
    model: Any,
    corpus: Corpus,
    objective: Objective,
    config: TrainConfig,
    seed: int,
    folder: Path,
    evaluate: Callable[[Any], Mapping[str, float]] | None = None,
    log: Log | None = None,
    patching: PatchingConfig | None = None,
) -> Progress:
    """Train in place. Checkpoints go to `folder`; a later call with the same arguments goes on from the last.

    With `evaluate` (figures of validation users) the weights of the best "recall" are kept and put back at the end;
    the other figures are only told. With `patching`, the corpus has patched prompts too, read as its schedule says.
    """
    check_corpus(corpus, config)
    schedule = SCHEDULES[patching.schedule] if patching else in_full
    accelerator = Accelerator()
    optimizer = torch.optim.AdamW(_groups(model, config.weight_decay), lr=config.learning_rate, betas=(0.9, 0.98))
    model, optimizer = accelerator.prepare(model, optimizer)
    run = _Run(accelerator, model, optimizer, corpus, objective, config, seed, folder, log, schedule)
    identity = f"{digest(config)}-{digest(objective)}-{seed}-{len(corpus)}" + (
        f"-{digest(patching)}" if patching else ""
    )
    progress = _resume(run, identity)
    plan = _plan(corpus, config, seed, schedule)
    with denormals.flushed(), console.steps("training", config.steps, progress.step) as bar:
        while progress.step < config.steps and not progress.stopped:
            begin = time.perf_counter()
            told = _step(run, plan, progress)
            if evaluate and config.evaluate_every and progress.step % config.evaluate_every == 0:
                _judge(run, evaluate(run.model), progress)
            if progress.step % config.checkpoint_every == 0 or progress.step == config.steps or progress.stopped:
                header = vars(progress) | {"digest": identity}
                checkpoint.save(folder / f"step-{progress.step:07}.safetensors", run.model, run.optimizer, header)
            bar(f"loss {told['loss']:.3f}, {told['tokens'] / (time.perf_counter() - begin):,.0f} tokens/s")
    if progress.best_step:
        checkpoint.restore(folder / BEST, run.model, optimizer=None)
    return progress


def loss_of(model: Any, batch: Batch, beta: float) -> tuple[Tensor, Tensor]:
    """The batch's loss, and the loss of every target position."""
    hidden = backbone.states(model, batch.input_ids, batch.patches).flatten(0, 1)[batch.rows]  # (N, width)
    return linear_set_loss(hidden, backbone.head(model), batch.valid_ids, batch.weights, beta)


def learning_rate(step: int, config: TrainConfig) -> float:
    """Linear warm-up, then half a cosine down to the final rate."""
    warm = max(1, round(config.warmup * config.steps))
    if step < warm:
        return config.learning_rate * (step + 1) / warm
    way = (step - warm) / max(1, config.steps - warm)
    low = config.final_rate
    return config.learning_rate * (low + (1 - low) * 0.5 * (1 + math.cos(math.pi * way)))


def epoch_batches(lengths: NDArray[np.int64], size: int, epoch: int, seed: int) -> list[NDArray[np.int64]]:
    """All examples once, in batches of like length, in an order of this epoch's own."""
    rng = stream(seed, "order", epoch)
    order = rng.permutation(len(lengths))
    pools = [order[at : at + size * POOL] for at in range(0, len(order), size * POOL)]
    by_length = np.concatenate([pool[np.argsort(lengths[pool], kind="stable")] for pool in pools])
    batches = [by_length[at : at + size] for at in range(0, len(by_length), size)]
    return [batches[place] for place in rng.permutation(len(batches))]


def _plan(corpus: Corpus, config: TrainConfig, seed: int, schedule: Schedule) -> Plan:
    """Number of a micro-batch → its epoch and its examples."""
    lengths = (corpus.patched or corpus.prompts).lengths()
    everybody = _passes(np.arange(len(corpus)), lengths, config.batch_size, seed)
    only = [step for step in range(config.steps) if schedule(step / config.steps).only]
    pooled = np.flatnonzero(corpus.patched.some()) if corpus.patched else np.zeros(0, np.int64)
    if not only or not len(pooled):
        return everybody
    return _passes(pooled, lengths, config.batch_size, seed, everybody, only[0] * config.accumulate)


def _passes(
    rows: NDArray[np.int64],
    lengths: NDArray[np.int64],
    size: int,
    seed: int,
    before: Plan | None = None,
    first: int = 0,
) -> Plan:
    """Epoch after epoch over these rows, from micro-batch `first` on, and as `before` says up to there."""
    per_epoch = math.ceil(len(rows) / size)
    earlier = before(first - 1)[0] + 1 if before and first else 0  # epochs: what is drawn in one is never drawn again

    @lru_cache(2)  # a step may end one epoch and begin the next
    def batches(epoch: int) -> list[NDArray[np.int64]]:
        return [rows[each] for each in epoch_batches(lengths[rows], size, earlier + epoch, seed)]

    def planned(number: int) -> tuple[int, NDArray[np.int64]]:
        if before and number < first:
            return before(number)
        epoch, place = divmod(number - first, per_epoch)
        return earlier + epoch, batches(epoch)[place]

    return planned


def _step(run: _Run, plan: Plan, progress: Progress) -> dict[str, float]:
    """One update of the weights; returns what to tell about it."""
    config = run.config
    rate = learning_rate(progress.step, config)
    for group in run.optimizer.param_groups:
        group["lr"] = rate
    run.optimizer.zero_grad(set_to_none=True)
    told: list[dict[str, float]] = []
    phase = run.schedule(progress.step / config.steps)
    for part in range(config.accumulate):
        epoch, examples = plan(progress.step * config.accumulate + part)
        patched = drawn(phase, examples, epoch, run.seed)
        batch = collate(run.corpus, examples.tolist(), epoch, run.objective, config, run.seed, patched)
        told.append(_backward(run, batch, progress.step))
    run.accelerator.clip_grad_norm_(run.model.parameters(), config.clip)
    run.optimizer.step()
    progress.step += 1
    means = {name: float(np.mean([part[name] for part in told])) for name in PARTS}
    means |= {"tokens": sum(part["tokens"] for part in told), "rate": rate}
    progress.tokens += int(means["tokens"])
    _tell(run, {f"train/{name}": value for name, value in means.items()}, progress.step)
    return means


def _tell(run: _Run, figures: dict[str, float], step: int) -> None:
    for name, value in figures.items():
        if run.log:
            run.log.add_scalar(name, value, step)


def _backward(run: _Run, batch: Batch, step: int) -> dict[str, float]:
    try:
        loss, rows = loss_of(run.model, batch, run.objective.beta)
        if not torch.isfinite(loss):
            raise _not_finite(run.folder, batch, step)
        run.accelerator.backward(loss / run.config.accumulate)
    except (torch.OutOfMemoryError, MemoryError) as error:
        raise _no_memory(batch) from error
    except RuntimeError as error:
        if "not enough memory" in str(error) or "can't allocate" in str(error):  # what torch says on a CPU
            raise _no_memory(batch) from error
        raise
    chosen = batch.classification
    targets, histories = rows[: len(chosen)], rows[len(chosen) :]
    return {
        "loss": float(loss.detach()),
        "classification": float(targets[chosen].mean()),
        "completion": float(targets[~chosen].mean()),
        "history": float(histories.mean()) if len(histories) else 0.0,
        "padding": batch.padding,
        "tokens": float(batch.input_ids.numel()),
    }


def _not_finite(folder: Path, batch: Batch, step: int) -> TrainingError:
    file = folder / f"not-a-number-{step:07}.safetensors"
    tensors = {name: value for name, value in vars(batch).items() if isinstance(value, Tensor)}
    if batch.patches:
        tokens = batch.patches.tokens
        tensors |= {"patch_offsets": torch.from_numpy(tokens.offsets), "patch_tokens": torch.from_numpy(tokens.values)}
    checkpoint.write_tensors(file, tensors, {"step": step})
    return TrainingError(
        f"The loss is not a number at step {step}. The batch is kept in {file}. Halve the learning rate "
        "(train.learning_rate) and run again; it goes on from the last checkpoint only with the old settings."
    )


def _no_memory(batch: Batch) -> TrainingError:
    lines, width = batch.input_ids.shape
    return TrainingError(
        f"Memory ran out on a batch of {lines} examples of {width} tokens. Halve train.batch_size and double "
        "train.accumulate (nearly the same result), or lower prompt.budget."
    )


def _groups(model: Any, decay: float) -> list[dict[str, Any]]:
    """Matrices decay; norms and other vectors do not."""
    weights = [value for value in model.parameters() if value.requires_grad]
    return [
        {"params": [value for value in weights if value.ndim > 1], "weight_decay": decay},
        {"params": [value for value in weights if value.ndim <= 1], "weight_decay": 0.0},
    ]


def _resume(run: _Run, identity: str) -> Progress:
    file = checkpoint.latest(run.folder, identity)
    if not file:
        return Progress()
    header = checkpoint.restore(file, run.model, run.optimizer)
    console.tell(f"going on from {file}", file=str(file), step=header["step"])
    return Progress(**{name: value for name, value in header.items() if name != "digest"})


def _judge(run: _Run, figures: Mapping[str, float], progress: Progress) -> None:
    """Keep the weights of the best recall, and stop when they have not been beaten for long."""
    _tell(run, {f"validation/{name}": value for name, value in figures.items()}, progress.step)
    recall = figures["recall"]
    if recall > progress.best:
        progress.best, progress.best_step, progress.stale = recall, progress.step, 0
        checkpoint.save(run.folder / BEST, run.model, None, {"step": progress.step, "recall": recall})
    else:
        progress.stale += 1
        progress.stopped = bool(run.config.patience) and progress.stale >= run.config.patience
