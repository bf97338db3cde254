"""The paper's configuration: as it stands it can be planned, and shrunk it runs from two tables to a model."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import merit
from merit.core import config
from merit.core.pipeline import STAGES, run
from merit.core.settings import RunConfig
from tests.generator.phi import phi_folder
from tests.small_run import shop

PAPER = Path(__file__).parents[2] / "configs/paper.toml"
SMALLER = [
    *("devices.processes=1", "devices.sharded=false", "decode_batch=64", "engine={}"),
    *("prepare.split.validation=0.15", "prepare.split.test=0.2"),
    *("labels.encoder=hashed", "labels.clusters=6"),
    *("text.prompt.budget=96", "text.prompt.profile_labels=2", "text.patching.full_budget=400"),
    *(f"stage_{each}.{setting}" for each in (1, 2) for setting in ("steps=4", "batch_size=4", "accumulate=2")),
    *("stage_2.mined_per_example=3", "mining.samples=2", "mining.max_labels=2"),
    *("predict.budget=3", "predict.sampling.max_labels=2", "predict.sampling.samples=2", "states.labels=2"),
    *("propensity.model.labels=2", "propensity.model.width=16", "propensity.model.heads=2"),
    *("propensity.model.factors=4", "propensity.model.hidden=24", "propensity.model.second=8"),
    *("propensity.fit.epochs=1", "evaluation.resamples=100", "ranking.resamples=100"),
]


def test_what_the_paper_says_is_set() -> None:
    paper = config.load(RunConfig, PAPER)
    for trained in (paper.stage_1, paper.stage_2):
        assert (trained.learning_rate, trained.batch_size * trained.accumulate) == (2e-5, 32)
    assert (paper.stage_1.name, paper.stage_2.name) == ("teacher-forcing", "self-correction (β = 1)")
    assert (paper.labels.clusters, paper.mining.samples, paper.mining.max_similarity) == (30_000, 4, 0.6)
    assert paper.text.patching is not None
    assert (paper.text.patching.window, paper.text.patching.schedule) == (10, "curriculum")
    assert (paper.states.labels, paper.propensity.model.labels, paper.propensity.model.layers) == (5, 5, 4)
    assert (paper.devices.processes, paper.backbone.lora_rank) == (8, 0)


@pytest.mark.slow
def test_a_small_model_of_the_papers_class_runs_all_stages(tmp_path: Path) -> None:
    tables = [f"source.{name}={value}" for name, value in shop(tmp_path, 120, 3).items()]
    places = [f"out={tmp_path}/run", f"cache={tmp_path}/cache", f"backbone.name={phi_folder(tmp_path / 'phi')}"]
    made = run(config.load(RunConfig, PAPER, [*SMALLER, *tables, *places]))
    assert list(made) == list(STAGES)
    told = made["stage-2"].manifest.summary
    assert (told["steps"], told["patched_examples"] > 0.5) == (4, True)
    assert told["patched_tokens"] > told["patched_positions"]
    figures = pl.read_parquet(made["results"].file("figures.parquet"))
    assert {"teacher-forcing", "self-correction (β = 1)", "MERIT"} <= {*figures["method"]}
    model = merit.load(made["model"].path)
    assert len(model.interests(pl.read_parquet(made["model"].file("users.parquet"))["user_id"].to_list()[:1], k=3)) == 3
