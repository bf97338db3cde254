"""What several processes do in the tests: here, because they have to import it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch

from merit.core import processes
from merit.generator import checkpoint
from merit.generator.training import train
from merit.objective.collate import OBJECTIVES
from tests.generator.test_patching import PATCHING
from tests.generator.test_patching import world as patched_world
from tests.generator.test_training import CONFIG, Log, improving, world

UNEVEN = {"batch_size": 7, "accumulate": 3}  # an epoch ends with a batch of one example
CASES: dict[str, dict[str, Any]] = {
    **{objective: {"objective": objective} for objective in OBJECTIVES},
    "uneven": {"objective": "self-correction", "changed": UNEVEN},
    "patched": {"objective": "self-correction", "patched": True},
    "evaluated": {"objective": "self-correction", "changed": {"evaluate_every": 2}},
    "resumed": {"objective": "permutation-invariance"},
}


def trained(folder: Path, objective: str, changed: dict[str, Any] | None = None, patched: bool = False) -> None:
    """A training; beside its checkpoints, the model that its caller then has, and its log."""
    model, corpus = patched_world() if patched else world()
    config = CONFIG.model_copy(update=changed or {})
    evaluate, log = improving(None) if config.evaluate_every else None, Log()
    train(model, corpus, OBJECTIVES[objective], config, 7, folder, evaluate, log, PATCHING if patched else None)
    if not processes.number():
        checkpoint.save(folder / "model.safetensors", model, None, {})
        (folder / "told.json").write_text(json.dumps(log.told))


def everything(folder: Path) -> None:
    """All cases, and the first step of each without clipping."""
    for case, how in CASES.items():
        trained(folder / case, **how)
        first = how | {"changed": how.get("changed", {}) | {"steps": 1, "clip": 1e9}}
        trained(folder / f"{case}-gradients", **first)


def begun_by(other: Path, folder: Path) -> None:
    """One case is not begun anew, but from what others had after six steps."""
    (folder / "resumed").mkdir()
    for step in (3, 6):
        shutil.copy(other / f"resumed/step-{step:07}.safetensors", folder / "resumed")


def told(folder: Path) -> dict[str, list[float]]:
    """What the log of a training was told."""
    kept: dict[str, list[float]] = json.loads((folder / "told.json").read_text())
    return kept


def everything_and_not_a_number(folder: Path) -> None:
    """All cases; then a training that ends with an error."""
    everything(folder)
    model, corpus = world()
    with torch.no_grad():
        model.get_input_embeddings().weight.fill_(float("nan"))
    train(model, corpus, OBJECTIVES["self-correction"], CONFIG, 7, folder / "not-a-number")
