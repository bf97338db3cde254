"""The quick preset reads the same files as the standard one, and what it does not need it leaves alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from merit.core import presets
from merit.core.errors import ConfigError
from merit.core.pipeline import stages_of
from merit.core.quick import QUICK_STAGES
from merit.core.settings import RunConfig
from merit.core.shared import SharedRun

SOURCE: dict[str, Any] = {"source": {"kind": "complete-journey"}}


def test_the_sections_that_quick_does_not_read_are_those_of_the_generator() -> None:
    assert set(presets.OF_THE_GENERATOR) == set(RunConfig.model_fields) - set(SharedRun.model_fields)


def test_one_word_in_a_file_is_the_preset(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text('seed = 3\n[source]\nkind = "complete-journey"\n[stage_1]\nsteps = 5\n', encoding="utf-8")
    standard, quick = presets.load(file), presets.load(file, ["preset=quick", "ranking.budget=7"])
    assert isinstance(standard, RunConfig) and standard.stage_1.steps == 5
    assert type(quick) is SharedRun and (quick.seed, quick.ranking.budget) == (3, 7)


def test_a_mistake_in_a_quick_file_is_told() -> None:
    with pytest.raises(ConfigError, match="did you mean 'ranking'"):
        presets.build(SOURCE | {"preset": "quick", "rankin": {}})
    with pytest.raises(ConfigError, match="no stage 'stage-1'"):
        presets.run(presets.build(SOURCE | {"preset": "quick"}), until="stage-1")
    with pytest.raises(ConfigError, match="preset"):
        presets.build(SOURCE | {"preset": "slow"})


def test_the_pipeline_gives_quick_the_shorter_list() -> None:
    quick = RunConfig.model_validate(SOURCE | {"preset": "quick"})
    assert stages_of(quick) is QUICK_STAGES
    assert not {"generator", "states", "mined"} & {stage.kind for stage in QUICK_STAGES.values()}


def test_quick_takes_the_default_encoder_without_torch() -> None:
    encoder = {name: presets.build(SOURCE | {"preset": "quick", "labels": {"encoder": name}}).quick_labels.encoder
               for name in ("minilm", "hashed")}  # fmt: skip
    assert encoder == {"minilm": "minilm-numpy", "hashed": "hashed"}
