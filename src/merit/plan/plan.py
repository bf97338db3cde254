"""`merit plan`: one row for each stage, with what can be counted and what was measured.

Work becomes time by the record of an earlier run in the same folder (timings.jsonl), else by one short probe: a
training step and the decoding of a few prompts. Stages without a language model have a time after a first run only.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from pathlib import Path
from timeit import timeit
from typing import Any

import numpy as np
import torch
from rich.filesize import decimal

from merit.core import artifacts, console, timings
from merit.core.artifacts import Manifest
from merit.core.config import Frozen
from merit.core.errors import ConfigError
from merit.core.pipeline import stages_of
from merit.core.settings import RunConfig
from merit.core.timings import Timing
from merit.data.tokenizer import SPECIALS
from merit.generator import backbone
from merit.generator.decoding import DecodeConfig, decode
from merit.labels.token_paths import build_trie
from merit.objective.losses import linear_set_loss
from merit.plan import count
from merit.plan.config import LOCAL
from merit.plan.count import BackboneShape, DataSizes, StageTokens

OPERATIONS = 3e11  # of a step of the probe at most: a few seconds on a small machine
TRAINING = 20  # bytes of a weight, at least: itself, its gradient, two moments, and activations
WRITTEN = 4  # labels that the probe writes beyond the first
FORMATS: dict[str, Callable[[float], str]] = {
    "tokens": lambda tokens: f"{tokens:,.0f}",
    "seconds": lambda seconds: str(timedelta(seconds=round(seconds))),
    "memory": lambda size: decimal(int(size)),
}

Record = Mapping[str, tuple[Timing, Manifest]]


class PlanRow(Frozen):
    """What one stage is planned to take. None: not known before a first run."""

    stage: str
    tokens: float | None = None
    """Positions a language model is trained on, reads or writes."""
    seconds: float | None = None
    memory: float | None = None
    """Bytes at the peak of an earlier run."""
    timed_by: str = ""
    """An earlier run, or a probe."""


class Plan(Frozen):
    """Stages in the order of the run; with --json, `merit plan` prints these fields and the total."""

    rows: tuple[PlanRow, ...]
    facts: dict[str, str]
    """The models and the data, in words."""
    notes: tuple[str, ...]

    @property
    def total(self) -> PlanRow:
        """Sums over the stages that have the figure; memory is that of the largest stage."""
        values = {name: [getattr(row, name) for row in self.rows if getattr(row, name) is not None] for name in FORMATS}
        totals = {name: (max if name == "memory" else sum)(figures) for name, figures in values.items() if figures}
        return PlanRow(stage="total", **totals)


def plan(config: RunConfig) -> Plan:
    """The plan of a run."""
    if config.preset == "quick":
        raise ConfigError(
            "The quick preset trains no generator, and there is nothing to plan: `merit run` takes a minute."
        )
    sizes = count.data_sizes(config)
    facts = {
        "data": f"{sizes.train:,} training examples of {sizes.users:,} users, {sizes.labels:,} labels; {sizes.origin}",
        "on": "this machine" if config.plan.device == LOCAL else config.plan.device,
    }
    notes = ["Nothing is taken as made already; label vectors kept from an earlier run cost nothing."]
    tokens: dict[str, StageTokens] = {}
    if config.reads == "items":
        facts["generator"] = f"reads items: {count.item_parameters(config, sizes):,} parameters"
    else:
        tokens = count.stage_tokens(config, sizes)
        facts |= _text_facts(config, sizes)
        notes.append(f"Lists are taken to be as long as gold lists, samples {count.LONGER:g} × as long after mistakes.")
        notes += [] if sizes.exact else ["The data are not prepared: prompts are taken to fill their budget."]
    timed: dict[str, dict[str, Any]] = {}
    if config.plan.device == LOCAL:
        timed = _times(config, sizes, tokens)
    counted = {stage: sum(work) for stage, work in tokens.items()}
    rows = tuple(PlanRow(stage=stage, tokens=counted.get(stage), **timed.get(stage, {})) for stage in stages_of(config))
    untimed = [row.stage for row in rows if row.seconds is None]
    if config.plan.device != LOCAL:
        notes.append(f"No time is promised of {config.plan.device}: run `merit plan` there, or a few steps.")
    elif untimed:
        notes.append(f"The total has no time of {', '.join(untimed)}: only a first run can tell.")
    return Plan(rows=rows, facts=facts, notes=tuple(notes))


def _times(config: RunConfig, sizes: DataSizes, tokens: Mapping[str, StageTokens]) -> dict[str, dict[str, Any]]:
    """Seconds of each stage by an earlier run, which knows its memory too, or else by a probe."""
    timed: dict[str, dict[str, Any]] = {
        stage: {"seconds": timing.seconds * factor, "memory": timing.peak, "timed_by": "earlier run"}
        for stage, (timing, factor) in _earlier(config, sizes, tokens).items()
    }
    if untimed := [stage for stage in tokens if stage not in timed]:
        rates = _probe(config, sizes, count.shape_of(config.backbone, config.plan, sizes.vocabulary, sizes.clusters))
        for stage in untimed:
            seconds = sum(amount * rate for amount, rate in zip(tokens[stage], rates, strict=True))
            timed[stage] = {"seconds": seconds, "timed_by": "probe"}
    return timed


def show(plan: Plan, title: str) -> None:
    """Print facts, stages with their total, and notes."""
    console.show_table(title, ["what", ""], plan.facts.items())
    rows = []
    for row in (*plan.rows, plan.total):
        values = {name: getattr(row, name) for name in FORMATS}
        cells = ["–" if value is None else FORMATS[name](value) for name, value in values.items()]
        rows.append([row.stage, *cells, row.timed_by])
    console.show_table("", ["stage", "tokens", "time", "peak memory", "timed by"], rows)
    for note in plan.notes:
        console.stdout.print(f"- {note}")


def recorded(folder: Path) -> Record:
    """Timing and manifest of the stages of a run, as far as their artifacts are those that were timed."""
    record = {}
    for stage, timing in timings.read(folder).items():
        if (folder / stage).exists() and not timing.resumed:
            manifest = artifacts.load(folder / stage, verify=False).manifest
            if manifest.hash == timing.hash:
                record[stage] = timing, manifest
    return record


def _comparable(stage: str, record: Record, config: RunConfig) -> bool:
    """Whether a stage was timed before, with settings that differ in amounts only."""
    if stage not in record or "examples" not in record:
        return False
    made = stages_of(config)[stage]
    now, then = made.settings(config).model_dump(mode="json"), record[stage][1].config
    if made.kind == "generator" and config.reads == "items":
        return bool(now == then)
    if made.kind == "generator":
        shape = ("objective", "batch_size", "max_target")
        both = [[run["backbone"], run["text"], *(run["train"][name] for name in shape)] for run in (now, then)]
        return bool(both[0] == both[1])
    same = stage == "examples" or now | {"examples": 0} == then | {"examples": 0}
    generator = made.parents.get("generator")
    return same and (generator is None or _comparable(generator, record, config))


def _earlier(config: RunConfig, sizes: DataSizes, tokens: Mapping[str, StageTokens]) -> dict[str, tuple[Timing, float]]:
    """Timings of comparable stages, and the planned work over the timed: tokens of a training, else examples."""
    record, earlier = recorded(config.out), {}
    for stage in (stage for stage in stages_of(config) if _comparable(stage, record, config)):
        timing, manifest = record[stage]
        planned, timed = float(sizes.train), record["examples"][1].summary["train"]
        if manifest.kind == "generator" and config.reads == "text":
            planned, timed = tokens[stage].trained, manifest.summary["tokens"]
        elif manifest.kind == "mined":
            planned, timed = tokens[stage].read / sizes.prompt, manifest.summary["examples"]
        earlier[stage] = timing, planned / timed
    return earlier


def _probe(config: RunConfig, sizes: DataSizes, shape: BackboneShape) -> StageTokens:
    """Seconds for a token trained on, read and written, on random tokens of the planned lengths."""
    rng, words = np.random.default_rng(config.seed), count.stand_in(shape.vocabulary)
    prompt, label, gold = (max(1, round(length)) for length in (sizes.prompt, sizes.label_tokens, sizes.gold))
    targets, batch = gold * (label + 1), config.stage_2.batch_size
    rows = max(1, min(batch, int(OPERATIONS / (6 * shape.parameters * (prompt + targets)))))
    free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    if TRAINING * shape.parameters > free:
        raise ConfigError(
            f"A training step of {config.backbone.name} takes {decimal(TRAINING * shape.parameters)} and more, and "
            f"{decimal(free)} are free here. Count without timing: --device A100."
        )
    ids = rng.integers(len(words) - len(SPECIALS), size=(rows, prompt + targets))
    paths = np.unique(rng.integers(len(words) - len(SPECIALS), size=(500, label)), axis=0)
    labels = build_trie(np.arange(0, paths.size + 1, label), paths.ravel(), np.arange(len(paths), dtype=np.int32))
    prompts, device = list(ids[:, :prompt].astype(np.int32)), "cuda" if torch.cuda.is_available() else "cpu"
    model = backbone.make(config.backbone, words, config.seed).to(config.engine.device)

    def decoding(most: int) -> None:
        decode(model, prompts, labels, words.sep, words.end, DecodeConfig(max_labels=most, fixed_budget=True))

    def training() -> None:
        tokens = torch.from_numpy(ids).to(device)
        states, valid = backbone.states(trained, tokens)[:, -targets:].flatten(0, 1), tokens[:, -targets:]
        weights = torch.ones(rows * targets, device=device)
        loss = linear_set_loss(states, backbone.head(trained), valid.reshape(-1, 1), weights)[0]
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        loss.item()  # a GPU is done

    with console.spinner("timing a training step and a decoding"):
        decoding(1)  # the first of each pays for starting
        first, longer = (timeit(partial(decoding, most), number=1) for most in (1, 1 + WRITTEN))
        trained = backbone.adapt(model, config.backbone, words, config.seed).to(device).train()
        optimizer = torch.optim.AdamW([value for value in trained.parameters() if value.requires_grad])
        training()
        seconds = timeit(training, number=1)
    written = max(0.0, longer - first) / (rows * WRITTEN * (label + 1))
    return StageTokens(seconds / ids.size, first / (rows * prompt), written)


def _text_facts(config: RunConfig, sizes: DataSizes) -> dict[str, str]:
    """What a language model is and reads; what cannot fit into its context is refused."""
    shape = count.shape_of(config.backbone, config.plan, sizes.vocabulary, sizes.clusters)
    prompt, patching, train = config.text.prompt, config.text.patching, config.stage_2
    written = max(config.predict.budget, config.mining.max_labels) * (sizes.label_tokens + 1)
    longest = max(config.stage_1.max_target, train.max_target, round(written))
    backbone.check_room(config.backbone.name, shape.context, prompt.budget, longest)
    read = f" ({patching.full_budget:,} tokens read, older ones pooled)" if patching else ""
    return {
        "backbone": f"{config.backbone.name}: {shape.parameters:,} parameters, {shape.trained:,} of them trained; "
        f"{shape.layers} layers of {shape.width:,}, {shape.vocabulary:,} tokens",
        "propensity model": f"{count.scorer_parameters(config, sizes, shape):,} parameters",
        "token budgets": f"{prompt.budget:,} positions of a prompt{read}, {train.max_target:,} of a target; "
        f"the backbone reads {shape.context:,}",
        "checkpoints": f"{-(-train.steps // train.checkpoint_every)} of {decimal(12 * shape.trained)} until trained",
    }
