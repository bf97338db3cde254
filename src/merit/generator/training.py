"""Training of a generator: one way for every objective and backbone.

The batch of a step is a function of seed and step alone, and so is the learning rate; a checkpoint holds the rest. A
run that was killed and resumed is therefore the same run, to the byte on a CPU. Several processes share every batch
out among themselves and sum their parts of its loss: the same run again, up to rounding.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import broadcast
from pydantic import Field
from torch import Tensor

from merit.core import console, processes
from merit.core.config import digest
from merit.core.errors import TrainingError
from merit.core.tracking import Write
from merit.data.prompt import PatchingConfig
from merit.generator import backbone, checkpoint
from merit.generator.batches import BatchConfig, Plan, plan_batches, share_of
from merit.generator.patching import SCHEDULES, Schedule, drawn, in_full
from merit.objective.collate import Batch, Corpus, Objective, check_corpus, collate
from merit.objective.descent import DescentConfig, descend
from merit.objective.losses import linear_set_loss

BEST = "best.safetensors"
NO_MEMORY = re.compile("not enough memory|can't allocate")  # what torch says on a CPU
PARTS = ("loss", "classification", "completion", "padding")  # of a step, for the log


class TrainConfig(DescentConfig, BatchConfig):
    """How a training goes. A checkpoint made with other settings is not continued."""

    evaluate_every: int = Field(0, ge=0)
    """Steps between evaluations on validation users; 0 for none."""
    patience: int = Field(0, ge=0)
    """Stop after so many evaluations without a better recall; 0 never stops early."""
    checkpoint_every: int = Field(80, ge=1)


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
    reader: Any  # of the model: as the processes share it
    model: Any
    original: Any  # the caller's model: the same, or the one whose copy is on devices
    optimizer: Any
    corpus: Corpus
    objective: Objective
    config: TrainConfig
    seed: int
    folder: Path
    log: Write | None
    schedule: Schedule
    fingerprint: str
    """What tells the pretrained weights apart from others of the same shape."""


def train(
    model: Any,
    corpus: Corpus,
    objective: Objective,
    config: TrainConfig,
    seed: int,
    folder: Path,
    evaluate: Callable[[Any], Mapping[str, float]] | None = None,
    log: Write | None = None,
    patching: PatchingConfig | None = None,
) -> Progress:
    """Train in place. Checkpoints go to `folder`; a later call with the same arguments goes on from the last.

    With `evaluate` (metrics of validation users) the weights of the best "recall" are kept and put back at the end;
    other metrics are only logged. With `patching`, the corpus has patched prompts too, read as its schedule says.
    """
    check_corpus(corpus, config)
    schedule = SCHEDULES[patching.schedule] if patching else in_full
    fingerprint = checkpoint.fingerprint(model)
    accelerator = processes.join()
    elsewhere = accelerator.is_fsdp2 or accelerator.device.type != "cpu"  # the caller's model stays on the CPU, whole
    trained = deepcopy(model) if elsewhere else model
    optimizer = torch.optim.AdamW(_groups(trained, config.weight_decay), lr=config.learning_rate, betas=(0.9, 0.98))
    reader, optimizer = accelerator.prepare(Reader(trained), optimizer)
    shared = (accelerator, reader, trained, model, optimizer)
    run = _Run(*shared, corpus, objective, config, seed, folder, log, schedule, fingerprint)
    identity = f"{digest(config)}-{digest(objective)}-{seed}-{len(corpus)}" + (
        f"-{digest(patching)}" if patching else ""
    )
    progress = _resume(run, identity)
    steps = range(progress.step, progress.step if progress.stopped else config.steps)
    gradients = partial(_gradients, run, plan_batches(corpus, config, seed, schedule))
    clip = partial(accelerator.clip_grad_norm_, list(reader.parameters()), config.clip)
    main = accelerator.is_main_process  # no other process shows a bar
    with console.steps("training", config.steps, progress.step) if main else nullcontext(lambda status: None) as bar:
        begin = time.perf_counter()
        for step, metrics in descend(optimizer, steps, gradients, clip, partial(learning_rate, config=config)):
            progress.step, progress.tokens = step + 1, progress.tokens + int(metrics["tokens"])
            _log(run, "train", metrics | {"rate": learning_rate(step, config)}, progress.step)
            if evaluate and config.evaluate_every and progress.step % config.evaluate_every == 0:
                _judge(run, evaluate, progress)
            if progress.step % config.checkpoint_every == 0 or progress.step == config.steps or progress.stopped:
                header = vars(progress) | {"digest": identity, "backbone": fingerprint}
                _save(run, f"step-{progress.step:07}.safetensors", header, optimizer)
            now = time.perf_counter()
            bar(f"loss {metrics['loss']:.3f}, {metrics['tokens'] / (now - begin):,.0f} tokens/s")
            if progress.stopped:
                break
            begin = now
    if progress.best_step:
        checkpoint.restore(folder / BEST, run.model, optimizer=None)
    _give_back(run)
    return progress


class Reader(torch.nn.Module):
    """A model that answers with its loss: what wraps a model for several processes acts on calls of the whole."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        self._no_split_modules = getattr(model, "_no_split_modules", None)  # the layers, for FSDP

    def forward(self, batch: Batch, beta: float) -> tuple[Tensor, Tensor]:
        """As `loss_of`, through whatever wraps the model for several processes."""
        return loss_of(self.model, batch, beta)


def loss_of(model: Any, batch: Batch, beta: float) -> tuple[Tensor, Tensor]:
    """The batch's loss, and the loss of every target position."""
    hidden = backbone.states(model, batch.input_ids, batch.patches).flatten(0, 1)[batch.rows]  # (N, width)
    return linear_set_loss(hidden, backbone.head(model), batch.valid_ids, batch.weights, beta)


def learning_rate(step: int, config: TrainConfig) -> float:
    """Linear warm-up, then half a cosine down to the final rate."""
    warm = max(1, round(config.warmup * config.steps))
    if step < warm:
        return config.learning_rate * (step + 1) / warm
    return config.rate_after_warmup((step - warm) / max(1, config.steps - warm))


def _gradients(run: _Run, plan: Plan, step: int) -> dict[str, float]:
    """The metrics of a step, whose gradients are computed batch after batch."""
    config, accelerator, parts = run.config, run.accelerator, []
    phase = run.schedule(step / config.steps)
    for part in range(config.accumulate):
        epoch, whole = plan(step * config.accumulate + part)
        examples, share = share_of(whole, accelerator.process_index, accelerator.num_processes)
        patched = drawn(phase, examples, epoch, run.seed)
        batch = collate(run.corpus, examples.tolist(), epoch, run.objective, config, run.seed, patched)
        batch = _weighted(batch, share, accelerator.device)
        last = part + 1 == config.accumulate  # only then are gradients exchanged
        try:
            with nullcontext() if last else accelerator.no_sync(run.reader):
                loss, rows = run.reader(batch, run.objective.beta)
                parts.append(_metrics(run, batch, loss.detach(), rows, share))
                if not math.isfinite(parts[-1]["loss"]):
                    raise _not_finite(run, batch, step)
                mean = loss * accelerator.num_processes / config.accumulate  # gradients become the mean over processes
                accelerator.backward(mean)
        except (MemoryError, RuntimeError) as error:
            if isinstance(error, (MemoryError, torch.OutOfMemoryError)) or NO_MEMORY.search(str(error)):
                raise _no_memory(batch) from error
            raise
    means = {name: float(np.mean([metrics[name] for metrics in parts])) for name in PARTS}
    return means | {"tokens": sum(metrics["tokens"] for metrics in parts)}


def _log(run: _Run, group: str, metrics: Mapping[str, float], step: int) -> None:
    for name, value in metrics.items():
        if run.log:
            run.log(f"{group}/{name}", value, step)


def _weighted(batch: Batch, share: float, device: torch.device) -> Batch:
    """A part of a batch, weighted as in the whole, on the device that reads it."""
    moved: dict[str, Any] = {name: value.to(device) for name, value in vars(batch).items() if isinstance(value, Tensor)}
    return replace(batch, **moved | {"weights": moved["weights"] * share})


def _metrics(run: _Run, batch: Batch, loss: Tensor, rows: Tensor, share: float) -> dict[str, float]:
    """Metrics of the whole batch, from the parts of all processes."""
    chosen = batch.classification
    parts = [part for kind in (rows[chosen], rows[~chosen]) for part in (kind.sum(), len(kind))]
    tokens = batch.input_ids.numel()
    sums = torch.tensor([*parts, tokens * batch.padding, tokens], dtype=torch.float64) * (share > 0)
    all_sums = run.accelerator.reduce(torch.cat([loss[None].double(), sums.to(loss.device)]))
    total, classified, classes, completed, completions, padded, paid = all_sums.tolist()
    return {
        "loss": total,
        "classification": classified / max(classes, 1),
        "completion": completed / max(completions, 1),
        "padding": padded / paid,
        "tokens": paid,
    }


def _not_finite(run: _Run, batch: Batch, step: int) -> TrainingError:
    other = f"-{run.accelerator.process_index}" if run.accelerator.process_index else ""
    file = run.folder / f"not-a-number-{step:07}{other}.safetensors"
    tensors = {name: value for name, value in vars(batch).items() if isinstance(value, Tensor)}
    if batch.patches:
        tokens = batch.patches.tokens
        tensors |= {"patch_offsets": torch.from_numpy(tokens.offsets), "patch_tokens": torch.from_numpy(tokens.values)}
    checkpoint.write_tensors(file, tensors, {"step": step})
    return TrainingError(
        f"The loss is not a number at step {step}. The batch is kept in {file}. Halve the learning rate "
        "(stage_1.learning_rate or stage_2.learning_rate) and run again; it goes on from the last checkpoint only with "
        "the old settings."
    )


def _no_memory(batch: Batch) -> TrainingError:
    lines, width = batch.input_ids.shape
    return TrainingError(
        f"Memory ran out on a batch of {lines} examples of {width} tokens. Halve stage_1.batch_size "
        "(or stage_2.batch_size) and double its accumulate (nearly the same result), or lower text.prompt.budget."
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
    header = checkpoint.restore(file, run.model, run.optimizer, run.fingerprint)
    console.tell(f"going on from {file}", file=str(file), step=header["step"])
    return Progress(**{name: value for name, value in header.items() if name not in ("digest", "backbone")})


def _judge(run: _Run, evaluate: Callable[[Any], Mapping[str, float]], progress: Progress) -> None:
    """Keep the weights of the best recall, and stop when they have long not been beaten.

    The main process judges, and all go on with its judgement.
    """
    _give_back(run)
    if run.accelerator.is_main_process:
        metrics = evaluate(run.original)
        _log(run, "validation", metrics, progress.step)
        if metrics["recall"] > progress.best:
            progress.best, progress.best_step, progress.stale = metrics["recall"], progress.step, 0
        else:
            progress.stale += 1
            progress.stopped = bool(run.config.patience) and progress.stale >= run.config.patience
    values = (progress.best, progress.best_step, progress.stale, progress.stopped)
    judgement = torch.tensor(values, dtype=torch.float64, device=run.accelerator.device)
    progress.best, *counts, stopped = broadcast(judgement).tolist()
    progress.best_step, progress.stale, progress.stopped = int(counts[0]), int(counts[1]), bool(stopped)
    if progress.best_step == progress.step:
        _save(run, BEST, {"step": progress.step, "recall": progress.best}, optimizer=None)


def _save(run: _Run, name: str, header: dict[str, Any], optimizer: Any) -> None:
    """One file for all processes, written by the main one."""
    checkpoint.save(run.folder / name, run.model, optimizer, header, run.accelerator.is_main_process)
    run.accelerator.wait_for_everyone()


def _give_back(run: _Run) -> None:
    """Let the caller's model have the weights as they are now."""
    if run.original is run.model:
        return
    weights = checkpoint.trainable(run.original)
    with torch.no_grad():
        for name, value in checkpoint.trainable(run.model).items():
            weights[name].copy_(checkpoint.whole(value))
