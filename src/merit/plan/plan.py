"""plan: what every stage of a run will take, before it is run.

The same list of amounts serves two questions: how long on this machine (a probe measures it), and how long on devices
that are not here (their published figures, and shares of them that are assumed and said).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from merit.core import artifacts, timings
from merit.core.artifacts import Artifact
from merit.core.errors import ConfigError, MissingArtifact
from merit.core.settings import RunConfig
from merit.generator import backbone
from merit.plan import costs, devices, sizes
from merit.plan.config import HERE
from merit.plan.devices import Device
from merit.plan.probe import make_probe
from merit.plan.published import Published
from merit.plan.sample import made_up, real
from merit.plan.shapes import Shape, has_words, shape_of
from merit.plan.sizes import Sizes
from merit.plan.table import Measured, Plan, Row, count, size
from merit.plan.work import Pace, Passing, Tabulating, Work, tokens_of
from merit.plan.workload import LONGER, disk, scorer_parameters, work_of


def plan(config: RunConfig) -> Plan:
    """One row for each stage, with what was assumed."""
    here = config.plan.device == HERE
    ready = sizes.prepared(config) if has_words(config.backbone, config.plan) else None
    sample, amounts = real(*ready, config) if ready else (None, _unprepared(config))
    shape = shape_of(config.backbone, config.plan, len(sample.vocabulary) if sample else None)
    check_room(config, shape, amounts)
    work = work_of(config, amounts)
    if here:
        pace: Pace = make_probe(config, sample or made_up(amounts, config), shape, _free())
    else:
        pace = _published(config, shape, amounts)
    bytes_ = disk(config, amounts, shape)
    rows = [
        Row(
            stage=stage,
            tokens=sum(map(tokens_of, parts)),
            seconds=sum(map(pace.seconds, parts)),
            memory=max(map(pace.memory, parts)),
            disk=bytes_[stage],
            basis=_basis(parts, here),
        )
        for stage, parts in work.items()
    ]
    return Plan(rows=tuple(rows), facts=_facts(config, shape, amounts), notes=_notes(config, rows, bool(ready)))


def measured(config: RunConfig, folder: Path) -> dict[str, Measured]:
    """What the stages of a finished run took, as far as their artifacts are those that were timed."""
    record = timings.read(folder)
    found = {stage: artifacts.load(folder / stage, verify=False) for stage in record if (folder / stage).exists()}
    if not found:
        raise MissingArtifact(f"{folder} has no record of a run ({timings.FILE}). Make one with `merit run CONFIG`.")
    _check_backbone(config, folder, found)
    return {
        stage: Measured(
            seconds=record[stage].seconds,
            memory=record[stage].peak,
            disk=sum(each.bytes for each in artifact.manifest.files.values()),
        )
        for stage, artifact in found.items()
        if artifact.manifest.hash == record[stage].hash
    }


def check_room(config: RunConfig, shape: Shape, amounts: Sizes) -> None:
    """Positions a backbone was never made for are refused before anything is spent on them."""
    written = max(config.predict.budget, config.mining.max_labels) * (amounts.label_tokens + 1)
    target = max(config.stage_1.max_target, config.stage_2.max_target)
    said = max(target, round(written))
    backbone.check_room(config.backbone.name, shape.context, config.text.prompt.budget, said)


def _unprepared(config: RunConfig) -> Sizes:
    told = config.plan.expected
    return sizes.expected(told, config) if told else sizes.counted(config)


def _published(config: RunConfig, shape: Shape, amounts: Sizes) -> Published:
    wide = config.propensity.model
    own = max(0, 2 * wide.own - 1) * amounts.labels  # looked up, not multiplied: what a label is and what it says
    own += max(0, wide.own - 1) * amounts.words
    return Published(
        device=devices.named(config.plan.device),
        plan=config.plan,
        devices=config.devices,
        shape=shape,
        scorer=scorer_parameters(config, amounts, shape) - own,
        pair=wide.hidden * wide.second + wide.second,
        events=amounts.events,
        batch=config.stage_2.batch_size,
    )


def _basis(parts: list[Work], here: bool) -> str:
    if isinstance(parts[-1], Tabulating | Passing):  # what is no more than a constant stands last
        return "estimated"
    return "measured" if here else "counted"


def _facts(config: RunConfig, shape: Shape, amounts: Sizes) -> dict[str, str]:
    asked, prompt, patching = config.plan, config.text.prompt, config.text.patching
    rows = costs.rows_of_device(config.stage_2.batch_size, config.devices.processes)
    tokens = amounts.prompt + config.stage_2.max_target
    held = costs.training_memory(shape, asked.precision, config.devices, rows, tokens)
    kept = -(-config.stage_2.steps // config.stage_2.checkpoint_every)
    read = f" ({patching.full_budget:,} tokens read, older ones pooled)" if patching else ""
    where = (
        "this machine" if asked.device == HERE else f"{config.devices.processes} × {asked.device}, {asked.precision}"
    )
    return {
        "backbone": f"{config.backbone.name}: {shape.parameters:,} parameters, {shape.trained:,} of them trained; "
        f"{shape.layers} layers of {shape.width:,}, {shape.vocabulary:,} tokens",
        "propensity model": f"{scorer_parameters(config, amounts, shape):,} parameters",
        "token budgets": f"{prompt.budget:,} positions of a prompt{read}, {config.stage_2.max_target:,} of a target; "
        f"the backbone reads {shape.context:,}",
        "on": where,
        "memory of training": "; ".join(f"{name} {size(each)}" for name, each in held.items())
        + f" (each device reads {rows} × {tokens:,.0f} positions at a time)",
        "checkpoints": f"{kept} of {size(costs.checkpoint_bytes(shape))} until a generator is trained",
        "data": f"{count(amounts.train)} training examples of {count(amounts.users)} users, {amounts.labels:,} labels; "
        f"{amounts.origin}",
    }


def _notes(config: RunConfig, rows: Sequence[Row], ready: bool) -> tuple[str, ...]:
    asked = config.plan
    told = [
        "Nothing is taken as made already; label vectors kept from an earlier run cost nothing.",
        f"Samples are as long as gold lists, {LONGER:g} × as long from a generator that has read mistakes.",
    ]
    if not ready:
        told.append("The data are not prepared: prompts are taken to fill their budget.")
    if asked.device == HERE:
        return (*told, "Measured on a few steps and prompts, beside whatever else this machine was doing.")
    device = devices.named(asked.device)
    told += [
        f"{asked.device}: {device.peak(asked.precision) / 1e12:g} TFLOP/s in {asked.precision}, "
        f"{device.bandwidth / 1e9:,.0f} GB/s, of which training reaches {asked.training_share:.0%}, reading "
        f"{asked.reading_share:.0%} and writing {asked.bandwidth_share:.0%} of the bandwidth (assumed).",
        "The propensity model is planned as if it ran on a device; it runs on the CPU.",
    ]
    if config.engine.device == "cpu":
        told.append("Generators are planned to speak on the devices: that takes engine.device=cuda.")
    return (*told, *(_too_large(row, device, config) for row in rows if row.memory > device.memory))


def _too_large(row: Row, device: Device, config: RunConfig) -> str:
    remedy = "a lower decode_batch"
    if row.stage in ("stage-1", "stage-2"):
        remedy = "a lower batch_size and more accumulate" if config.devices.sharded else "devices.sharded=true (FSDP)"
    return f"{row.stage} does not fit: {size(row.memory)} of {size(device.memory)} on each device. Try {remedy}."


def _check_backbone(config: RunConfig, folder: Path, found: Mapping[str, Artifact]) -> None:
    trained = found.get("stage-1")
    had = trained.manifest.config["backbone"] if trained else None
    if had and had != config.backbone.model_dump(mode="json"):
        raise ConfigError(
            f"{folder} was made with another backbone ({had['name']}) or another shape of it than the configuration "
            f"names ({config.backbone.name}). Compare with a run of the same backbone."
        )


def _free() -> float:
    """Bytes of memory that a probe may use."""
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES"))
