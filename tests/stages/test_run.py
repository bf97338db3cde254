from __future__ import annotations

from typing import Any

import pytest

from merit import config
from merit.stages.run import RunConfig


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
    run = config.build(RunConfig, {"source": {"kind": "complete-journey"}, "stage_2": given}, [])
    assert run.stage_2.name == name


def test_stage_1_is_teacher_forcing_whatever_else_is_set() -> None:
    run = config.build(RunConfig, {"source": {"kind": "complete-journey"}, "stage_1": {"steps": 5}}, [])
    assert run.stage_1.name == "teacher-forcing"
