"""One small grid for all tests of this folder."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from merit.bench.chain import PreparedDataset
from merit.bench.config import BenchConfig
from merit.bench.grid import BenchOutcome, bench
from merit.core import artifacts
from tests.bench.small import settings

VARIANTS = ("MERIT without the generator", "states only")
STATES = ["propensity.model.states=true", "propensity.model.likely=false", "propensity.model.factors=0"]
VARIED = (
    f"variants.{VARIANTS[0]}=['propensity.model.likely=false']",
    f"variants.{VARIANTS[1]}={[*STATES, 'propensity.model.history=false']}",
)


class Small(NamedTuple):
    config: BenchConfig
    outcome: BenchOutcome

    @property
    def folder(self) -> Path:
        return self.config.out / "planted"

    def ground(self) -> PreparedDataset:
        corpus, labels = artifacts.load(self.folder / "corpus"), artifacts.load(self.folder / "labels")
        return PreparedDataset(
            corpus, labels, self.config.backbone, self.config.datasets["planted"].text, self.config.seconds
        )


@pytest.fixture(scope="session")
def grid(tmp_path_factory: pytest.TempPathFactory) -> Small:
    """What needs no training, and our whole chain, on a planted shop; read it, never write to it."""
    place = tmp_path_factory.mktemp("bench")
    methods = ["trivial", "linear", "teacher-forcing", "self-correction (β = 0)", "MERIT", *VARIANTS]
    methods += ["item generator"]
    config = settings(place, [{"methods": methods, "seeds": [1]}], *VARIED)
    return Small(config, bench(config, ["planted"]))
