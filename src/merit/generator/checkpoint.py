"""A checkpoint is one file: weights, optimiser and progress. It is complete under its name, or it is not there.

Nothing is pickled: tensors and a JSON header (safetensors), written to a temporary file, flushed, then renamed.
"""

from __future__ import annotations

import json
import os
import zlib
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from merit.core import console
from merit.core.errors import ConfigError, DamagedArtifact
from merit.core.files import storage_errors

MOMENTS = ("exp_avg", "exp_avg_sq", "step")


def save(
    file: Path, model: Any, optimizer: torch.optim.Optimizer | None, progress: dict[str, Any], write: bool = True
) -> None:
    """Of several processes one writes, but all must ask: each may hold a part of what is written."""
    tensors = {f"model.{name}": whole(value) for name, value in trainable(model).items()}
    for number, parameter in enumerate(_parameters(optimizer)):
        state = optimizer.state[parameter] if optimizer else {}
        tensors |= {f"optimizer.{number}.{name}": whole(state[name]) for name in MOMENTS if name in state}
    if write:
        write_tensors(file, tensors, progress)


def write_tensors(file: Path, tensors: dict[str, Tensor], header: dict[str, Any]) -> None:
    """Tensors and a JSON header in one safetensors file, which appears complete."""
    draft = file.with_name(f".{file.name}.tmp-{os.getpid()}")
    with storage_errors(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            detached = {name: value.detach().contiguous() for name, value in tensors.items()}
            save_file(detached, draft, metadata={"merit": json.dumps(header, sort_keys=True)})
            with draft.open("rb") as written:
                os.fsync(written.fileno())
            draft.rename(file)
        finally:
            draft.unlink(missing_ok=True)


def read_header(file: Path) -> dict[str, Any]:
    """What was written beside the tensors, none of which is read; a file without it is refused as damaged."""
    try:
        with safe_open(file, framework="pt") as opened:
            header: dict[str, Any] = json.loads((opened.metadata() or {})["merit"])
            return header
    except (SafetensorError, KeyError, json.JSONDecodeError, OSError) as error:
        raise DamagedArtifact(f"{file} is not a checkpoint of merit ({error}). Remove it and run again.") from None


def restore(file: Path, model: Any, optimizer: torch.optim.Optimizer | None, brought: str = "") -> dict[str, Any]:
    """Put weights, and the optimiser if given, back as they were; returns the progress.

    `brought` is the fingerprint of the backbone: weights learnt beside those of another one mean nothing here, though
    every shape be the same.
    """
    progress = read_header(file)
    if progress.get("backbone", brought) != brought:
        raise ConfigError(
            f"{file} is a checkpoint of another backbone: the weights that it was begun with are not those of "
            f"backbone.name. Put the setting back to go on from it, or remove {file.parent} to begin anew."
        )
    with safe_open(file, framework="pt") as opened, torch.no_grad():
        names = set(opened.keys())
        _check_shapes(file, {name: opened.get_slice(name).get_shape() for name in names}, model)
        for name, value in trainable(model).items():
            value.copy_(_shared_out(opened.get_tensor(f"model.{name}"), value))
        for number, parameter in enumerate(_parameters(optimizer)):
            moments = [name for name in MOMENTS if f"optimizer.{number}.{name}" in names]
            state = {name: opened.get_tensor(f"optimizer.{number}.{name}") for name in moments}
            if optimizer:
                optimizer.state[parameter] = {name: _shared_out(moment, parameter) for name, moment in state.items()}
    return progress


def fingerprint(model: Any) -> str:
    """Of the weights that a backbone brought along: two of one shape are still two. Empty for one from scratch.

    Its words are left out: those that we added have rows drawn by lot.
    """
    tables = (model.get_input_embeddings(), model.get_output_embeddings())
    words = {id(value) for table in tables for value in table.parameters()}
    weights = [value for value in model.parameters() if id(value) not in words]
    frozen = [value for value in weights if not value.requires_grad]  # with LoRA, all that was brought
    brought = frozen or (weights if getattr(model.config, "_name_or_path", "") else [])
    checksum = 0
    for value in brought:
        checksum = zlib.crc32(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy(), checksum)
    return f"{checksum:08x}" if brought else ""


def _check_shapes(file: Path, had: dict[str, list[int]], model: Any) -> None:
    """Weights of another model are refused as such, before any of them is put in place."""
    for name, value in trainable(model).items():
        shape = had.get(f"model.{name}")
        if shape != list(value.shape):
            stored = f"{shape} there" if shape else "not there"
            raise ConfigError(
                f"{file} is a checkpoint of another backbone: {name} is {stored} and {list(value.shape)} here. Put the "
                f"backbone's settings back to go on from it, or remove {file.parent} to begin anew."
            )


def latest(folder: Path, digest: str) -> Path | None:
    """The furthest checkpoint in a folder that belongs to this very training."""
    for file in sorted(folder.glob("step-*.safetensors"), reverse=True):
        try:
            if read_header(file)["digest"] == digest:
                return file
        except DamagedArtifact as error:
            console.warn(f"{error} It is ignored.")
    return None


def trainable(model: Any) -> dict[str, Tensor]:
    """The weights that training changes, each once (tied weights share their memory)."""
    return {name: value for name, value in model.named_parameters() if value.requires_grad}


def whole(value: Tensor) -> Tensor:
    """All of a weight, from the processes that share it (every one of them has to ask)."""
    return value.full_tensor() if hasattr(value, "full_tensor") else value


def _shared_out(value: Tensor, like: Any) -> Tensor:
    """A whole tensor as a weight is: on its device, and shared out like it. Counters stay what they are."""
    if value.shape != like.shape:
        return value
    moved = value.to(like.device)
    if not hasattr(like, "device_mesh"):
        return moved
    from torch.distributed.tensor import distribute_tensor  # takes a while, and only shared weights need it

    return distribute_tensor(moved, like.device_mesh, like.placements, src_data_rank=None)


def _parameters(optimizer: torch.optim.Optimizer | None) -> list[Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]] if optimizer else []
