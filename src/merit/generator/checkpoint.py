"""A checkpoint is one file: weights, optimiser and progress. It is complete under its name, or it is not there.

Nothing is pickled: tensors and a JSON header (safetensors), written to a temporary file, flushed, then renamed.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from merit import console
from merit.errors import DamagedArtifact
from merit.storage import storage_errors

MOMENTS = ("exp_avg", "exp_avg_sq", "step")


def save(file: Path, model: Any, optimizer: torch.optim.Optimizer | None, progress: dict[str, Any]) -> None:
    tensors = {f"model.{name}": value for name, value in trainable(model).items()}
    for number, parameter in enumerate(_parameters(optimizer)):
        state = optimizer.state[parameter] if optimizer else {}
        tensors |= {f"optimizer.{number}.{name}": state[name] for name in MOMENTS if name in state}
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
    try:
        with safe_open(file, framework="pt") as opened:
            header: dict[str, Any] = json.loads((opened.metadata() or {})["merit"])
            return header
    except (SafetensorError, KeyError, json.JSONDecodeError, OSError) as error:
        raise DamagedArtifact(f"{file} is not a checkpoint of merit ({error}). Remove it and run again.") from None


def restore(file: Path, model: Any, optimizer: torch.optim.Optimizer | None) -> dict[str, Any]:
    """Put weights, and the optimiser if given, back as they were; returns the progress."""
    progress = read_header(file)
    with safe_open(file, framework="pt") as opened, torch.no_grad():
        names = set(opened.keys())
        for name, value in trainable(model).items():
            value.copy_(opened.get_tensor(f"model.{name}"))
        for number, parameter in enumerate(_parameters(optimizer)):
            here = [name for name in MOMENTS if f"optimizer.{number}.{name}" in names]
            state = {name: opened.get_tensor(f"optimizer.{number}.{name}") for name in here}
            if optimizer:
                optimizer.state[parameter] = state
    return progress


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


def _parameters(optimizer: torch.optim.Optimizer | None) -> list[Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]] if optimizer else []
