"""Counts without weights are those of the real models, and amounts those of the run that follows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from merit.core import artifacts, config
from merit.core.errors import ConfigError, MissingArtifact
from merit.core.settings import RunConfig
from merit.data import tokenizer
from merit.generator import backbone
from merit.generator.backbone import BackboneConfig
from merit.plan import count
from merit.plan.config import PlanConfig
from merit.plan.count import shape_of, stand_in
from merit.propensity.states_model import Propensity
from tests.generator.phi import phi_folder
from tests.plan.settings import PAPER, settings


def size(model: Any, trained: bool = False) -> int:
    return sum(value.numel() for value in model.parameters() if value.requires_grad or not trained)


def test_phi_35_mini_is_counted_without_its_weights() -> None:
    paper = config.load(RunConfig, PAPER)
    shape = shape_of(paper.backbone, paper.plan)
    assert shape.parameters == shape.trained == 3_821_079_552  # the published count
    assert (shape.layers, shape.width, shape.vocabulary) == (32, 3072, 32064)
    assert shape.context == 131072


def test_the_papers_propensity_model_has_its_230_million_parameters() -> None:
    paper = config.load(RunConfig, PAPER)
    sizes = count.data_sizes(paper)
    assert count.scorer_parameters(paper, sizes, shape_of(paper.backbone, paper.plan)) == 229_790_581


def test_a_tiny_backbone_counts_as_the_real_one() -> None:
    tiny = BackboneConfig(width=32, layers=2, vocabulary=700)
    shape = shape_of(tiny, PlanConfig())
    real = backbone.make(tiny, stand_in(700), seed=0)
    assert shape.parameters == size(real)
    assert shape_of(tiny, PlanConfig(), vocabulary=650).parameters == size(real) - 50 * 32
    assert shape_of(tiny, PlanConfig(), clusters=50).parameters == size(real) + 50 * 32


def test_a_pretrained_backbone_counts_as_the_real_one_with_lora_too(tmp_path: Path) -> None:
    phi = BackboneConfig(name=str(phi_folder(tmp_path)), lora_rank=2)
    words = tokenizer.pretrained(tmp_path)
    shape = shape_of(phi, PlanConfig(), len(words))
    real = backbone.make(phi, words, seed=0)
    assert shape.parameters == size(real)
    assert shape.trained == size(backbone.adapt(real, phi, words, seed=0), trained=True)
    words = tokenizer.of(words.tokenizer, clusters=40)
    counted, real = shape_of(phi, PlanConfig(), len(words), clusters=40), backbone.make(phi, words, seed=0)
    assert counted.parameters == size(real)
    assert counted.trained == size(backbone.adapt(real, phi, words, seed=0), trained=True)


def test_a_propensity_model_counts_as_the_real_one(made_text: Path) -> None:
    run = settings(made_text)
    sizes, shape = count.data_sizes(run), shape_of(run.backbone, run.plan)
    mask = torch.zeros(sizes.labels, dtype=torch.bool)
    real = Propensity(run.propensity.model, shape.width, sizes.vector_width, mask, sizes.words)
    assert count.scorer_parameters(run, sizes, shape) == size(real)
    assert artifacts.load(made_text / "propensity").manifest.summary["parameters"] == size(real)


def test_a_backbone_that_is_not_there_needs_sizes_to_plan_with() -> None:
    nowhere = BackboneConfig(name="/nowhere/phi")
    with pytest.raises(MissingArtifact, match=r"/nowhere/phi is not a backbone.*plan.shape=phi-3.5-mini"):
        shape_of(nowhere, PlanConfig())
    with pytest.raises(ConfigError, match=r"no sizes are known of 'phi-9'; known: phi-3.5-mini"):
        shape_of(nowhere, PlanConfig(shape="phi-9"))


def test_data_that_are_not_prepared_are_counted_in_the_tables(made_text: Path, tmp_path: Path) -> None:
    real = artifacts.load(made_text / "examples", "examples").manifest.summary
    sizes = count.data_sizes(settings(made_text, f"out={tmp_path}"))
    assert not sizes.exact
    assert (sizes.users, sizes.events, sizes.items) == (real["users"], real["events"], real["items"])
    assert sizes.train == pytest.approx(real["train"], rel=0.5)
    assert sizes.labels == pytest.approx(artifacts.load(made_text / "labels").manifest.summary["labels"], rel=0.1)


def test_artifacts_of_other_settings_are_not_counted(made_text: Path) -> None:
    assert count.data_sizes(settings(made_text)).exact
    assert not count.data_sizes(settings(made_text, "prepare.per_train_user=1")).exact


def test_tokens_are_those_that_training_then_reads(made_text: Path) -> None:
    run = settings(made_text)
    tokens = count.stage_tokens(run, count.data_sizes(run))
    for stage in ("stage-1", "stage-2"):
        real = artifacts.load(made_text / stage, "generator").manifest.summary["tokens"]
        assert tokens[stage].trained == pytest.approx(real, rel=0.2)


def test_looks_at_validation_users_and_further_samples_are_counted(made_text: Path) -> None:
    sizes = count.data_sizes(settings(made_text))

    def tokens(stage: str, *overrides: str) -> count.StageTokens:
        return count.stage_tokens(settings(made_text, *overrides), sizes)[stage]

    assert tokens("stage-1", "stage_1.evaluate_every=0")[1:] == (0, 0)
    assert tokens("stage-1", "stage_1.evaluate_every=1").written > 0
    once, twice = (tokens("mined-1", f"mining.samples={samples}") for samples in (1, 2))
    assert (twice.read, twice.written) == (once.read, 2 * once.written)  # samples share one reading of the prompt
