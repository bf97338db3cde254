"""Counts on the meta device are those of the real models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks

from merit.core import config
from merit.core.errors import ConfigError, MissingArtifact
from merit.core.settings import RunConfig
from merit.data import tokenizer
from merit.generator import backbone
from merit.generator.backbone import BackboneConfig
from merit.plan.config import PlanConfig
from merit.plan.shapes import propensity_parameters, saved_bytes, shape_of, stand_in
from merit.propensity.states_model import Propensity, PropensityConfig
from tests.generator.phi import phi_folder

PAPER = Path(__file__).parents[2] / "configs/paper.toml"


def size(model: Any, trained: bool = False) -> int:
    return sum(value.numel() for value in model.parameters() if value.requires_grad or not trained)


def test_phi_35_mini_is_counted_without_its_weights() -> None:
    paper = config.load(RunConfig, PAPER)
    shape = shape_of(paper.backbone, paper.plan)
    assert shape.parameters == shape.trained == 3_821_079_552  # the published count
    assert (shape.layers, shape.width, shape.vocabulary) == (32, 3072, 32064)
    assert shape.matrices == shape.parameters - 2 * 32064 * 3072


def test_the_papers_propensity_model_has_its_230_million_parameters() -> None:
    paper = config.load(RunConfig, PAPER)
    assert propensity_parameters(paper.propensity.model, 3072, 384, 291_000, words=0) == pytest.approx(230e6, rel=0.005)


def test_a_tiny_backbone_counts_as_the_real_one() -> None:
    asked = BackboneConfig(width=32, layers=2, vocabulary=700)
    shape = shape_of(asked, PlanConfig())
    real = backbone.make(asked, stand_in(700), seed=0)
    assert shape.parameters == size(real)
    assert shape.cached == 2 * 2 * 32
    assert shape_of(asked, PlanConfig(), vocabulary=650).parameters == size(real) - 50 * 32


def test_a_pretrained_backbone_counts_as_the_real_one_with_lora_too(tmp_path: Path) -> None:
    asked = BackboneConfig(name=str(phi_folder(tmp_path)), lora_rank=2)
    words = tokenizer.pretrained(tmp_path)
    shape = shape_of(asked, PlanConfig(), len(words))
    real = backbone.make(asked, words, seed=0)
    assert shape.parameters == size(real)
    assert shape.trained == size(backbone.adapt(real, asked, words, seed=0), trained=True)


def test_a_propensity_model_counts_as_the_real_one() -> None:
    asked = PropensityConfig(width=16, layers=1, heads=2, hidden=24, second=8)
    real = Propensity(asked, 32, 20, torch.zeros(50, dtype=torch.bool), words=30)
    assert propensity_parameters(asked, 32, 20, 50, words=30) == size(real)


def kept_by_a_real_pass(model: Any, tokens: int) -> int:
    """The slow way: memory that a real training step holds on to, weights left out."""
    kept: dict[int, torch.Tensor] = {}

    def keep(value: torch.Tensor) -> torch.Tensor:
        kept[value.untyped_storage().data_ptr()] = value
        return value

    own = {value.untyped_storage().data_ptr() for value in model.parameters()}
    with saved_tensors_hooks(keep, lambda value: value):
        model.get_decoder()(input_ids=torch.zeros(1, tokens, dtype=torch.long), use_cache=False)
    return sum(value.untyped_storage().nbytes() for place, value in kept.items() if place not in own)


def test_activations_are_those_of_a_real_pass(tmp_path: Path) -> None:
    model = backbone.make(BackboneConfig(name=str(phi_folder(tmp_path))), stand_in(300), seed=0)
    slow = (kept_by_a_real_pass(model, 256) - kept_by_a_real_pass(model, 128)) / 128
    assert saved_bytes(model.config, "fp32") == pytest.approx(slow, rel=0.02)
    assert saved_bytes(model.config, "fp16") < 0.8 * slow


def test_a_backbone_that_is_not_there_needs_sizes_to_plan_with() -> None:
    nowhere = BackboneConfig(name="/nowhere/phi")
    with pytest.raises(MissingArtifact, match=r"/nowhere/phi is not a backbone.*plan.shape=phi-3.5-mini"):
        shape_of(nowhere, PlanConfig())
    with pytest.raises(ConfigError, match=r"no sizes are known of 'phi-9'; known: phi-3.5-mini"):
        shape_of(nowhere, PlanConfig(shape="phi-9"))
