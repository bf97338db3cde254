from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from merit.core import config
from merit.core.errors import ConfigError
from merit.core.pipeline import run
from merit.core.settings import RunConfig


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({}, "self-correction (β = 0)"),
        ({"steps": 5}, "self-correction (β = 0)"),  # one setting of the section does not bring back another default
        ({"beta": 1.0}, "self-correction (β = 1)"),
        ({"objective": "permutation-invariance"}, "permutation-invariance"),
    ],
)
def test_stage_2_is_tempered_uniformly_unless_told_otherwise(given: dict[str, Any], name: str) -> None:
    made = config.build(RunConfig, {"source": {"kind": "complete-journey"}, "stage_2": given}, [])
    assert made.stage_2.name == name


def test_a_gpu_that_is_not_there_is_refused_before_the_first_stage(tmp_path: Path) -> None:
    given = {"source": {"kind": "complete-journey"}, "out": tmp_path / "run", "engine": {"device": "cuda"}}
    with pytest.raises(ConfigError, match=r"torch finds no GPU here.*engine\.device=cpu"):
        run(config.build(RunConfig, given, []))
    assert not list(tmp_path.iterdir())


def test_stage_1_is_teacher_forcing_whatever_else_is_set() -> None:
    made = config.build(RunConfig, {"source": {"kind": "complete-journey"}, "stage_1": {"steps": 5}}, [])
    assert made.stage_1.name == "teacher-forcing"
