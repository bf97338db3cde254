"""A plan: the amounts are those of the run that follows, and what cannot work is said before it is tried."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from merit import cli
from merit.core import artifacts, config, timings
from merit.core.errors import ConfigError, DataError, MeritError, MissingArtifact
from merit.core.pipeline import STAGES
from merit.core.settings import RunConfig
from merit.generator.model import train_generator
from merit.plan import plan as stage
from merit.plan import workload
from merit.plan.config import Expected
from merit.plan.table import Plan
from merit.plan.work import Relating
from merit.propensity.states import read_purchases
from tests.generator.phi import phi_folder
from tests.small_run import SMALL

PAPER = Path(__file__).parents[2] / "configs/paper.toml"
EXPECTED = Expected(train=100, validation=10, test=20, users=130, events=4000, items=300, labels=200)


def settings(made: Path, *overrides: str) -> RunConfig:
    """Those that the small run was made with."""
    tables = {name: str(made.parent / f"shop/{name}.parquet") for name in ("interactions", "items")}
    values = SMALL | {"source": {"kind": "tables", **tables}, "out": str(made), "cache": str(made.parent / "cache")}
    return config.build(RunConfig, values, overrides)


@pytest.fixture(scope="module")
def planned(made: Path) -> Plan:
    return stage.plan(settings(made))


def test_every_stage_has_a_row(planned: Plan) -> None:
    assert [row.stage for row in planned.rows] == list(STAGES)
    assert all(row.seconds > 0 and row.memory > 0 and row.disk > 0 for row in planned.rows)
    assert planned.total.seconds == pytest.approx(sum(row.seconds for row in planned.rows))
    assert "counted in" in planned.facts["data"]


def test_tokens_are_those_that_training_then_reads(made: Path, planned: Plan) -> None:
    rows = {row.stage: row for row in planned.rows}
    for name in ("stage-1", "stage-2"):
        real = artifacts.load(made / name, "generator").manifest.summary["tokens"]
        assert rows[name].tokens == pytest.approx(real, rel=0.2)


def related(made: Path, *overrides: str) -> int:
    """Examples of the product in an epoch, as planned."""
    asked = settings(made, "propensity.factors.epochs=1", *overrides)
    found = stage.work_of(asked, stage.sizes.counted(asked))["propensity"]
    return sum(work.examples for work in found if isinstance(work, Relating))


def test_examples_of_the_product_are_those_it_then_learns_from(made: Path) -> None:
    gold, _ = read_purchases(artifacts.load(made / "states"))
    assert 1 <= related(made) / len(gold) < 2  # every purchase is counted, and some have too little before or after


def test_the_product_of_a_small_shop_is_planned_with_more_of_each_user(made: Path) -> None:
    train, bought = (getattr(stage.sizes.counted(settings(made)), name) for name in ("train", "bought"))
    assert related(made, "states.purchases=0") == train
    assert related(made, "states.enough=0") == 2 * train
    assert related(made, "states.purchases=1", f"states.enough={train + 1}") == 2 * (train + 1)
    assert related(made, f"states.enough={5 * bought}") == pytest.approx(2 * 0.7 * bought, rel=0.01)
    assert related(made, "propensity.model.own=0") == 0


def test_disk_is_what_artifacts_then_take(made: Path, planned: Plan) -> None:
    took = stage.measured(settings(made), made)
    for row in planned.rows:
        if row.stage in ("labels", "stage-1", "stage-2", "propensity", "model"):
            assert 1 / 1.5 < row.disk / took[row.stage].disk < 1.5, row.stage


def test_a_record_of_another_artifact_is_not_compared(made: Path, tmp_path: Path) -> None:
    took = stage.measured(settings(made), made)
    assert list(took) == list(STAGES)
    for name in took:
        (tmp_path / name).symlink_to(made / name)
    other = timings.Timing(hash="of an older one", seconds=1, peak=1)
    added = timings.StageTiming(stage="states", timing=other).model_dump_json()
    (tmp_path / timings.FILE).write_text((made / timings.FILE).read_text() + added)
    assert took.keys() - stage.measured(settings(made), tmp_path).keys() == {"states"}


def test_data_that_are_not_prepared_are_counted_in_the_tables(made: Path, tmp_path: Path) -> None:
    real = artifacts.load(made / "examples", "examples").manifest.summary
    guessed = stage.sizes.counted(settings(made, f"out={tmp_path}"))
    assert (guessed.users, guessed.events, guessed.items) == (real["users"], real["events"], real["items"])
    assert guessed.train == pytest.approx(real["train"], rel=0.5)
    assert guessed.labels == pytest.approx(artifacts.load(made / "labels").manifest.summary["labels"], rel=0.1)


def test_tables_that_are_only_counted_are_tried_with_made_up_examples(made: Path, tmp_path: Path) -> None:
    told = stage.plan(settings(made, f"out={tmp_path}"))
    assert all(row.seconds > 0 for row in told.rows)
    assert any("not prepared" in note for note in told.notes)
    assert not any(tmp_path.iterdir())


def test_a_pretrained_backbone_with_patches_is_tried_too(made: Path, tmp_path: Path) -> None:
    phi = phi_folder(tmp_path)
    more = [f"backbone.name={phi}", "backbone.lora_rank=2", "text.prompt.budget=64", "text.patching.full_budget=300"]
    told = stage.plan(settings(made, *more, "stage_1.max_target=200", "stage_2.max_target=200"))
    assert "300 tokens read" in told.facts["token budgets"]
    rows = {row.stage: row for row in told.rows}
    assert all(row.seconds > 0 for row in told.rows)
    assert rows["stage-1"].tokens < 3 * 64 * (64 + 200)


def test_expected_sizes_are_planned_with_before_there_is_anything(tmp_path: Path) -> None:
    given = {"source": {"kind": "tables", "interactions": "/nowhere", "items": "/nowhere"}, "out": str(tmp_path)}
    told = stage.plan(config.build(RunConfig, given | {"plan": {"device": "L4", "expected": EXPECTED.model_dump()}}))
    rows = {row.stage: row for row in told.rows}
    assert rows["stage-1"].tokens == 240 * 64 * (96 + 3 * 4 - 1)
    assert rows["states"].disk == (100 + 10 + 20 + 130) * (2 * 5 * 128 + workload.PERSON) + 4000 * workload.HAD
    assert any("not prepared" in note for note in told.notes)


def test_the_paper_is_planned_without_weights_and_fits_its_devices() -> None:
    told = stage.plan(config.load(RunConfig, PAPER))
    rows = {row.stage: row for row in told.rows}
    assert "3,821,079,552 parameters" in told.facts["backbone"]
    assert told.total.memory < 80e9
    assert 0.5 < (rows["stage-1"].seconds + rows["stage-2"].seconds) / (48 * 3600) < 2  # "~48h"
    alone = stage.plan(config.load(RunConfig, PAPER, ["devices.processes=1", "devices.sharded=false"]))
    assert any("does not fit" in note and "devices.sharded=true" in note for note in alone.notes)


@pytest.mark.parametrize(
    ("overrides", "error", "words"),
    [
        (["backbone.name=/nowhere/phi"], MissingArtifact, "/nowhere/phi is not a backbone"),
        (
            ["text.prompt.budget=2000"],
            ConfigError,
            r"more than the 1,024 that tiny reads. Lower text.prompt.budget to 9",
        ),
        (["plan.device=B42"], ConfigError, "no figures for a device 'B42'"),
        (["source.interactions=/nowhere.parquet", "out=/nowhere"], DataError, "/nowhere.parquet"),
        (
            ["backbone.name=phi", "plan.shape=phi-3.5-mini", "out=/nowhere"],
            ConfigError,
            "GiB are free here. Plan for a device instead: --device A100-80GB",
        ),
    ],
)
def test_what_cannot_work_is_said(made: Path, overrides: list[str], error: type[MeritError], words: str) -> None:
    with pytest.raises(error, match=words):
        stage.plan(settings(made, *overrides))


def test_training_refuses_a_history_longer_than_its_backbone_reads(made: Path, tmp_path: Path) -> None:
    config = settings(made, "text.prompt.budget=2000")
    shop = (artifacts.load(made / name) for name in ("examples", "labels"))
    with pytest.raises(ConfigError, match="more than the 1,024 that tiny reads"):
        train_generator(*shop, tmp_path / "long", config.generator(config.stage_1), seed=7)
    assert not any(tmp_path.iterdir())


def test_looks_at_validation_users_are_planned_for(made: Path) -> None:
    with_looks, without = (
        stage.work_of(settings(made, f"stage_1.evaluate_every={every}"), stage.sizes.counted(settings(made)))["stage-1"]
        for every in (1, 0)
    )
    assert len(with_looks) == len(without) + 4


def test_a_run_of_another_backbone_is_not_compared_with(made: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="another backbone"):
        stage.measured(settings(made, "backbone.width=32"), made)
    with pytest.raises(MissingArtifact, match="no record of a run"):
        stage.measured(settings(made), tmp_path)


def test_the_command_prints_tables_or_json(made: Path, tmp_path: Path) -> None:
    file = tmp_path / "plan.toml"
    file.write_text(f'out = "{tmp_path}"\n[source]\nkind = "tables"\ninteractions = "a"\nitems = "b"\n')
    sizes = [f"--set=plan.expected.{name}={value}" for name, value in EXPECTED]
    words = ["plan", str(file), "--device", "A100-80GB", "--devices", "2", *sizes]
    shown = CliRunner().invoke(cli.app, words)
    assert shown.exit_code == 0, shown.output
    assert "2 × A100-80GB" in shown.output and "stage-2" in shown.output and "assumed" in shown.output
    told: dict[str, Any] = json.loads(CliRunner().invoke(cli.app, [*words, "--json"]).stdout)
    assert [row["stage"] for row in told["rows"]] == list(STAGES)
    assert told["total"]["seconds"] == pytest.approx(sum(row["seconds"] for row in told["rows"]))
