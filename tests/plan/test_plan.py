"""A plan: every figure says where it is from, and what cannot work is refused before it is tried."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file
from typer.testing import CliRunner

from merit import cli
from merit.core import artifacts, config, timings
from merit.core.errors import ConfigError, DataError, MeritError, MissingArtifact
from merit.core.pipeline import STAGES, stages_of
from merit.core.settings import RunConfig
from merit.generator.train import train_generator
from merit.plan import count
from merit.plan import plan as planning
from merit.plan.config import ExpectedSizes
from merit.plan.plan import Plan, PlanRow
from tests.generator.phi import phi_folder
from tests.plan.settings import PAPER, of_made, settings
from tests.small_run import SMALL

EXPECTED = ExpectedSizes(train=100, validation=10, test=20, users=130, events=4000, items=300, labels=200)
GENERATIVE = ["stage-1", "mined-1", "stage-2", "predictions-1", "predictions-2", "mined-2", "states"]


@pytest.fixture(scope="module", autouse=True)
def short() -> Iterator[None]:
    """A probe of one row: that it is timed is what matters here, not how long."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planning, "OPERATIONS", 1.0)
        yield


@pytest.fixture(scope="module")
def probed(made_text: Path, tmp_path_factory: pytest.TempPathFactory) -> Plan:
    """The plan of a run whose times were not noted."""
    place = tmp_path_factory.mktemp("untimed")
    for name in STAGES:
        (place / name).symlink_to(made_text / name)
    return planning.plan(settings(made_text, f"out={place}"))


def rows_of(plan: Plan) -> dict[str, PlanRow]:
    return {row.stage: row for row in plan.rows}


def test_the_quick_preset_has_nothing_to_plan(made: Path) -> None:
    with pytest.raises(ConfigError, match="quick preset"):
        planning.plan(settings(made, "preset=quick"))


def test_every_stage_has_a_row_and_every_time_an_origin(probed: Plan) -> None:
    assert [row.stage for row in probed.rows] == list(STAGES)
    assert all((row.seconds is None) == (not row.timed_by) for row in probed.rows)
    assert "counted in" in probed.facts["data"]


def test_a_probe_times_the_stages_with_a_language_model(probed: Plan) -> None:
    timed = [row for row in probed.rows if row.seconds]
    assert [row.stage for row in timed] == GENERATIVE
    assert {row.timed_by for row in timed} == {"probe"}
    assert probed.total.seconds == pytest.approx(sum(row.seconds or 0 for row in timed))
    assert any("no time of examples, labels" in note for note in probed.notes)


def test_an_earlier_run_times_all_stages(made_text: Path) -> None:
    rows = rows_of(planning.plan(settings(made_text)))
    record = timings.read(made_text)
    assert {row.timed_by for row in rows.values()} == {"earlier run"}
    assert rows["propensity"].seconds == pytest.approx(record["propensity"].seconds)
    assert rows["propensity"].memory == record["propensity"].peak


def test_times_of_an_earlier_run_are_scaled_by_the_work(made_text: Path) -> None:
    base, longer = (rows_of(planning.plan(settings(made_text, f"stage_1.steps={steps}"))) for steps in (6, 60))
    assert longer["stage-1"].timed_by == "earlier run"
    assert longer["stage-1"].seconds == pytest.approx(10 * (base["stage-1"].seconds or 0))
    assert longer["stage-2"].seconds == base["stage-2"].seconds


def test_an_earlier_run_of_another_backbone_or_with_other_samples_times_nothing(made_text: Path) -> None:
    rows = rows_of(planning.plan(settings(made_text, "backbone.width=32")))
    assert [rows[stage].timed_by for stage in GENERATIVE] == ["probe"] * len(GENERATIVE)
    rows = rows_of(planning.plan(settings(made_text, "mining.samples=9")))
    assert rows["mined-1"].timed_by == "probe"
    assert rows["stage-1"].timed_by == "earlier run"


def test_a_record_of_another_artifact_is_not_used(made_text: Path, tmp_path: Path) -> None:
    took = planning.recorded(made_text)
    assert list(took) == list(STAGES)
    for name in took:
        (tmp_path / name).symlink_to(made_text / name)
    shutil.copy(made_text / timings.FILE, tmp_path)
    added = timings.Timing(stage="states", hash="of an older one", seconds=1, peak=1).model_dump_json()
    with (tmp_path / timings.FILE).open("a") as file:
        file.write(added)
    assert took.keys() - planning.recorded(tmp_path).keys() == {"states"}


def test_tables_that_are_only_counted_are_tried_with_random_tokens(made_text: Path, tmp_path: Path) -> None:
    plan = planning.plan(settings(made_text, f"out={tmp_path}"))
    assert all(rows_of(plan)[stage].seconds for stage in GENERATIVE)
    assert any("not prepared" in note for note in plan.notes)
    assert not any(tmp_path.iterdir())


def test_a_pretrained_backbone_with_patches_and_lora_is_tried_too(made_text: Path, tmp_path: Path) -> None:
    phi = phi_folder(tmp_path)
    more = [f"backbone.name={phi}", "backbone.lora_rank=2", "text.prompt.budget=64", "text.patching.full_budget=300"]
    plan = planning.plan(settings(made_text, *more, "stage_1.max_target=200", "stage_2.max_target=200"))
    assert "300 tokens read" in plan.facts["token budgets"]
    assert all(rows_of(plan)[stage].seconds for stage in GENERATIVE)


def test_expected_sizes_need_no_tables(tmp_path: Path) -> None:
    source = {
        "source": {"kind": "tables", "interactions": "/nowhere", "items": "/nowhere"},
        "out": str(tmp_path),
        "reads": "text",
    }
    plan = planning.plan(
        config.build(RunConfig, source | {"plan": {"device": "L4", "expected": EXPECTED.model_dump()}})
    )
    rows = rows_of(plan)
    assert rows["stage-1"].tokens == 240 * 64 * (96 + 3 * 4 - 1)
    assert any("not prepared" in note for note in plan.notes)


def test_no_time_is_promised_of_a_device_that_is_not_here() -> None:
    plan = planning.plan(config.load(RunConfig, PAPER))
    assert "3,821,079,552 parameters" in plan.facts["backbone"]
    assert all(row.seconds is None for row in (*plan.rows, plan.total))
    assert any("No time is promised of A100" in note for note in plan.notes)


@pytest.mark.parametrize(
    ("overrides", "error", "words"),
    [
        (["backbone.name=/nowhere/phi"], MissingArtifact, "/nowhere/phi is not a backbone"),
        (
            ["text.prompt.budget=2000"],
            ConfigError,
            r"more than the 1,024 that tiny reads. Lower text.prompt.budget to 9",
        ),
        (["plan.training_share=0.4"], ConfigError, "training_share"),
        (["source.interactions=/nowhere.parquet", "out=/nowhere"], DataError, "/nowhere.parquet"),
        (
            ["backbone.name=phi", "plan.shape=phi-3.5-mini", "out=/nowhere"],
            ConfigError,
            "are free here. Count without timing: --device A100",
        ),
    ],
)
def test_what_cannot_work_is_refused(
    made_text: Path, overrides: list[str], error: type[MeritError], words: str
) -> None:
    with pytest.raises(error, match=words):
        planning.plan(settings(made_text, *overrides))


def test_training_refuses_a_history_longer_than_its_backbone_reads(made_text: Path, tmp_path: Path) -> None:
    run = settings(made_text, "text.prompt.budget=2000")
    shop = (artifacts.load(made_text / name) for name in ("corpus", "labels"))
    with pytest.raises(ConfigError, match="more than the 1,024 that tiny reads"):
        train_generator(*shop, tmp_path / "long", run.generator(run.stage_1), seed=7)
    assert not any(tmp_path.iterdir())


def test_a_run_whose_generator_reads_items_is_counted_and_timed_by_an_earlier_one(made: Path) -> None:
    run = config.build(RunConfig, SMALL | of_made(made))
    rows = rows_of(planning.plan(run))
    network = load_file(made / "stage-2/network.safetensors")
    assert count.item_parameters(run, count.data_sizes(run)) == sum(value.size for value in network.values())
    record = timings.read(made)
    assert list(rows) == list(stages_of(run)) and "mined-2" not in rows
    assert rows["stage-2"].seconds == pytest.approx(record["stage-2"].seconds)
    fresh = planning.plan(run.model_copy(update={"out": made / "none"}))
    assert all(row.seconds is None for row in fresh.rows) and "only a first run can tell" in fresh.notes[-1]


def test_times_add_up_and_memory_is_the_largest() -> None:
    rows = (PlanRow(stage="a", seconds=10, memory=1e9), PlanRow(stage="b", memory=2e9), PlanRow(stage="c", seconds=1))
    total = Plan(rows=rows, facts={}, notes=()).total
    assert (total.tokens, total.seconds, total.memory) == (None, 11, 2e9)


def test_the_command_prints_tables_or_json(tmp_path: Path) -> None:
    file = tmp_path / "plan.toml"
    file.write_text(f'reads = "text"\nout = "{tmp_path}"\n[source]\nkind = "tables"\ninteractions = "a"\nitems = "b"\n')
    sizes = [f"--set=plan.expected.{name}={value}" for name, value in EXPECTED]
    words = ["plan", str(file), "--device", "A100", *sizes]
    shown = CliRunner().invoke(cli.app, words)
    assert shown.exit_code == 0, shown.output
    assert "A100" in shown.output and "stage-2" in shown.output
    printed: dict[str, Any] = json.loads(CliRunner().invoke(cli.app, [*words, "--json"]).stdout)
    assert [row["stage"] for row in printed["rows"]] == list(STAGES)
    assert printed["total"]["tokens"] == pytest.approx(sum(row["tokens"] or 0 for row in printed["rows"]))
