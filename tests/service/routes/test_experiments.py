"""A design over HTTP is the design of the command line, and what it can see is what the power functions say."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from merit.campaigns.experiments import power, steps
from merit.campaigns.experiments.design import ExperimentDesign
from merit.core import config
from merit.service.openapi import EXAMPLES

DESIGN = EXAMPLES["design"]["request"]
PATH = "/v1/experiments/design"


def told(ask: Any, **changes: Any) -> Any:
    answer = ask("read").post(PATH, json=DESIGN | changes)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize("changes", [{}, {"prior": {"mean": 0.0, "sd": 0.02}, "covariates": ["orders_before"]}])
def test_the_file_is_the_one_that_the_command_writes(ask: Any, tmp_path: Path, changes: dict[str, Any]) -> None:
    found = told(ask, **changes)
    frozen = steps.freeze(config.build(ExperimentDesign, DESIGN | changes), tmp_path / "design")
    assert found["file"] == frozen.file("design.json").read_text(encoding="utf-8")
    assert found["sha256"] == sha256(found["file"].encode()).hexdigest()
    assert found["users_needed"] == frozen.manifest.summary["users needed"]


def test_users_days_and_lifts_are_those_of_the_power_functions(ask: Any) -> None:
    design = config.build(ExperimentDesign, DESIGN)
    found = told(ask)
    assert found["by_lift"] == power.by_lift(design.minimum_effect, design.outlook, design.rule).to_dicts()
    assert found["by_week"] == power.by_week(design.outlook, design.rule).to_dicts()
    assert found["end"] == "2027-03-07"
    users = 700_000
    assert found["expected"] == {
        "users": users,
        "lift": power.smallest_lift(design.outlook, design.rule, users),
        "chance": power.chance_to_ship(0.02, design.outlook, design.rule, users),
        "luck": power.chance_to_ship(0.0, design.outlook, design.rule, users),
    }
    assert found["expected"]["luck"] == pytest.approx(0.1)


def test_what_is_not_known_is_not_made_up(ask: Any) -> None:
    found = told(ask, outlook={"mean": 0.04})
    assert found["expected"] is None and found["by_week"] == [] and found["by_lift"][0]["days"] is None
    assert told(ask, outlook={"mean": 0.04, "users": 5000})["expected"]["users"] == 5000


def test_a_file_goes_straight_into_an_analysis(ask: Any) -> None:
    file = told(ask, salt=None)["file"]
    rows = [f"u{place},{arm},{int(place % 10 < 4)}" for place, arm in enumerate(["expert", "merit"] * 500)]
    answer = ask("read").post(
        "/v1/experiments/analyze-table",
        data={"design": file, "until": "2027-03-07"},
        files={"table": ("outcomes.csv", ("user_id,arm,bought\n" + "\n".join(rows)).encode())},
    )
    assert answer.status_code == 200 and answer.json()["design"] == json.loads(file)


@pytest.mark.parametrize(
    "changes",
    [
        {"minimum_effect": 1e-300},
        {"outlook": {"mean": 1e-300}},
        {"outlook": {"mean": 0.04, "users_per_day": 2**62}},
        {"outlook": {"mean": 0.04, "users": 2**62}},
        {"days": 10**9},
        {"prior": {"mean": 0.0, "sd": 1e-300}},
        {"outcome": {"column": "spent", "kind": "amount"}, "outlook": {"mean": 1e-200, "sd": 1e200}},
    ],
)
def test_figures_beyond_all_numbers_are_refused_with_a_remedy(ask: Any, changes: dict[str, Any]) -> None:
    answer = ask("read").post(PATH, json=DESIGN | changes)
    assert answer.status_code == 422 and "wrong units" in answer.json()["remedy"]


def test_a_design_that_contradicts_itself_is_refused(ask: Any) -> None:
    answer = ask("read").post(PATH, json=DESIGN | {"arms": {"expert": 0.5, "merit": 0.4}})
    assert answer.status_code == 422 and "add up to 0.9" in answer.text
