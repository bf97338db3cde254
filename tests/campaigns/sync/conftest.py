"""An audience with a holdout and a control, made once, and copies of it with the model it needs."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import merit
from merit.campaigns.audiences import build
from merit.campaigns.audiences.request import AudienceRequest
from merit.core import artifacts, config
from merit.core.artifacts import Artifact

ARMS = {"holdout": {"share": 0.1, "salt": "nobody-2027"}, "control": {"share": 0.1, "salt": "spring-2027"}}


def request(model: Any, users: int = 150, **more: Any) -> AudienceRequest:
    values = {"name": "Spring", "interests": model.labels.texts[:2], "size": {"by": "count", "users": users}}
    return config.build(AudienceRequest, values | ARMS | more)


@pytest.fixture
def audience(model: Any, made: Path, tmp_path: Path) -> Artifact:
    return build.build(model, request(model), tmp_path / "spring")


@pytest.fixture
def world(made: Path, tmp_path: Path) -> Callable[[], tuple[Any, Artifact]]:
    """A model of its own, which may be erased from, and an audience."""

    def make() -> tuple[Any, Artifact]:
        shutil.copytree(made, tmp_path / "world" / "run", symlinks=True)
        model = merit.load(tmp_path / "world" / "run")
        build.build(model, request(model), tmp_path / "world" / "spring")
        return model, artifacts.load(tmp_path / "world" / "spring", "audience")

    return make
