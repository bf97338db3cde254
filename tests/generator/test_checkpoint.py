"""A checkpoint goes back only into the model it was made of."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from merit.errors import ConfigError
from merit.generator import backbone, checkpoint
from merit.generator.backbone import BackboneConfig
from merit.plan.shapes import stand_in


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
