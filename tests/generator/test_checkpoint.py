"""A checkpoint goes back only into the model it was made of."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from merit.core.errors import ConfigError
from merit.data import tokenizer
from merit.generator import backbone, checkpoint
from merit.generator.backbone import BackboneConfig
from merit.generator.training import train
from merit.objective.collate import OBJECTIVES
from merit.plan.count import stand_in
from tests.generator.small import backbone_folder
from tests.generator.test_training import CONFIG, world


@pytest.mark.parametrize("other", [{"width": 64}, {"layers": 2}, {"vocabulary": 400}])
def test_a_checkpoint_of_another_backbone_is_refused_before_anything_is_changed(
    tmp_path: Path, other: dict[str, int]
) -> None:
    small = {"width": 32, "layers": 1, "vocabulary": 300}
    first, second = (
        backbone.make(BackboneConfig(**shape), stand_in(shape["vocabulary"]), seed=7)
        for shape in (small, small | other)
    )
    file = tmp_path / "step-0000001.safetensors"
    checkpoint.save(file, first, None, {"step": 1})
    before = {name: value.clone() for name, value in second.state_dict().items()}
    with pytest.raises(ConfigError, match=r"is a checkpoint of another backbone: .* remove"):
        checkpoint.restore(file, second, None)
    assert all(torch.equal(value, before[name]) for name, value in second.state_dict().items())
    assert checkpoint.restore(file, first, None) == {"step": 1}


def brought(folder: Path, rank: int) -> Any:
    """A pretrained backbone, ready to be trained."""
    config, words = BackboneConfig(name=str(folder), lora_rank=rank), tokenizer.pretrained(folder)
    return backbone.adapt(backbone.make(config, words, seed=7), config, words, seed=7)


@pytest.mark.parametrize("rank", [0, 2])
def test_other_weights_of_the_same_shape_are_another_backbone(tmp_path: Path, rank: int) -> None:
    one = backbone_folder(tmp_path / "one")
    shutil.copytree(one, two := tmp_path / "two")
    weights = load_file(two / "model.safetensors")
    weights["model.layers.1.mlp.up_proj.weight"][0, 0] += 0.001
    save_file(weights, two / "model.safetensors", metadata={"format": "pt"})

    def trained(place: Path) -> None:
        short = CONFIG.model_copy(update={"steps": 3})
        train(brought(place, rank), world()[1], OBJECTIVES["teacher-forcing"], short, 7, tmp_path / "checkpoints")

    trained(one)
    with pytest.raises(ConfigError, match=r"is a checkpoint of another backbone: .* backbone\.name.* remove"):
        trained(two)
    shutil.copytree(one, moved := tmp_path / "elsewhere")
    trained(moved)  # the same weights from another folder go on


def test_a_backbone_from_scratch_brings_nothing_along() -> None:
    assert checkpoint.fingerprint(world()[0]) == ""
