"""Experiments in the browser: the design and lift of the Python API, and decisions that are blocked in plain sight."""

from __future__ import annotations

import json
from datetime import date
from hashlib import blake2b
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from merit.campaigns.experiments import power, steps
from merit.campaigns.experiments.analysis import Analysis, analyse
from merit.campaigns.experiments.assign import with_arms
from merit.campaigns.experiments.checks import AnalysisContext
from merit.campaigns.experiments.design import ExperimentDesign
from merit.campaigns.experiments.outcomes import tabulate
from merit.core import config
from merit.report.page import share, signed
from merit.service import keys
from tests.studio.conftest import Studio

pytestmark = pytest.mark.slow

AGREED: dict[str, Any] = {
    "name": "Garden, spring",
    "arms": {"holdout": 0.1, "expert": 0.45, "merit": 0.45},
    "control": "expert",
    "treatment": "merit",
    "salt": "garden-spring-1",
    "start": "2027-03-01",
    "days": 14,
    "minimum_effect": 0.1,
    "outcome": {"column": "bought"},
    "covariates": ["orders_before"],
    "segment": "vertical",
    "outlook": {"mean": 0.2, "users_per_day": 500},
}
END = date(2027, 3, 14)
DESIGN = config.build(ExperimentDesign, AGREED)


def outcomes(place: Path, lift: float, users: int = 6000) -> Path:
    """A table of users as the salt assigns them; who buys follows from a hash, more often where merit chose."""
    ids = pl.DataFrame({"user_id": [f"u{number}" for number in range(users)]}).lazy()
    table = with_arms(ids, "user_id", DESIGN.arms, str(DESIGN.salt)).collect()
    lot = [int.from_bytes(blake2b(user.encode(), digest_size=6).digest()) / 2**48 for user in table["user_id"]]
    rate = [0.2 * (1 + lift) if arm == "merit" else 0.2 for arm in table["arm"]]
    table = table.with_columns(
        bought=pl.Series([int(drawn < chance) for drawn, chance in zip(lot, rate, strict=True)]),
        orders_before=pl.Series([number * 7919 % 11 for number in range(users)]),
        vertical=pl.Series(["garden" if number % 3 else "kitchen" for number in range(users)]),
    )
    file = place / "outcomes.csv"
    table.write_csv(file)
    return file


def analysed(file: Path, until: date = END) -> Analysis:
    return analyse(DESIGN, tabulate(DESIGN, file), AnalysisContext(until=until))


def upload(page: Any, studio: Studio, place: Path, table: Path, until: date = END) -> None:
    design = place / "design.json"
    design.write_text(json.dumps(AGREED), encoding="utf-8")
    studio.open(page, "#/experiments/analyse")
    page.get_by_label("Design file").set_input_files(design)
    page.wait_for_function("() => document.querySelector('[name=design]').value.includes('Garden')")
    assert page.get_by_label("Counted until").input_value() == str(END)
    page.get_by_label("Counted until").fill(str(until))
    page.get_by_label("Outcomes", exact=True).set_input_files(table)
    page.get_by_role("button", name="Analyse", exact=True).click()
    page.locator(".verdict").wait_for()


def rows(page: Any, caption: str) -> list[list[str]]:
    table = page.get_by_role("region", name=caption, exact=True)
    table.wait_for()
    found: list[list[str]] = table.evaluate(
        "node => [...node.querySelectorAll('tbody tr')].map(row => [...row.cells].map(cell => cell.innerText))"
    )
    return found


def tile(page: Any, name: str) -> list[str]:
    found = page.locator(".tile", has=page.get_by_text(name, exact=True)).locator("strong, small")
    texts: list[str] = found.all_inner_texts()
    return texts


# --- the design ------------------------------------------------------------------------------------------------------


def freeze(page: Any, **values: str) -> None:
    page.get_by_text("Rule, covariates, prior, salt").click()
    for name, value in values.items():
        page.locator(f"[name={name}]").fill(value)
    page.get_by_role("button", name="Freeze the design").click()
    page.locator("#fingerprint").wait_for()


def test_a_frozen_design_is_the_file_of_the_command_line(page: Any, studio: Studio, tmp_path: Path) -> None:
    studio.open(page, "#/experiments")
    page.get_by_text("Nothing agreed yet").wait_for()
    freeze(
        page,
        name="Garden, spring",
        salt="garden-spring-1",
        start="2027-03-01",
        days="14",
        minimum_effect="10",
        mean="20",
        users_per_day="500",
        covariates="orders_before",
        segment="vertical",
    )
    frozen = steps.freeze(DESIGN, tmp_path / "design")
    written = frozen.file("design.json").read_bytes()
    with page.expect_download() as kept:
        page.get_by_role("button", name="Download design.json").click()
    assert kept.value.path().read_bytes() == written
    needed = power.users_needed(0.1, DESIGN.outlook, DESIGN.rule)
    page.get_by_text(f"{needed:,} users are needed over all arms").wait_for()
    lifts = power.by_lift(0.1, DESIGN.outlook, DESIGN.rule)
    told = rows(page, "Users and days by lift")
    assert told == [[signed(lift), f"{users:,}", f"{days:,}"] for lift, users, days in lifts.iter_rows()]
    weeks = power.by_week(DESIGN.outlook, DESIGN.rule)
    told = rows(page, "What is found after so many weeks")
    assert told == [[str(week), f"{users:,}", signed(lift)] for week, users, lift in weeks.iter_rows()]
    assert tile(page, "Ships by luck")[0] == share(power.chance_to_ship(0, DESIGN.outlook, DESIGN.rule, 7000))
    page.locator(".chart svg").wait_for()
    fingerprint = page.locator("#fingerprint").inner_text()
    page.reload()  # the address says it all
    page.wait_for_function("told => document.querySelector('#fingerprint')?.innerText === told", arg=fingerprint)
    page.get_by_role("button", name="Analyse with this design").click()
    page.get_by_label("Design", exact=True).wait_for()
    assert page.get_by_label("Design", exact=True).input_value().encode() == written


def test_amounts_ask_for_their_spread(page: Any, studio: Studio) -> None:
    studio.open(page, "#/experiments/design")
    assert not page.get_by_label("Standard deviation over users").is_visible()
    page.get_by_label("It is").select_option("amount")
    page.get_by_label("Standard deviation over users").fill("30")
    freeze(page, mean="12.5", cap="200")
    file = json.loads(page.locator("#file").text_content())
    assert file["outcome"] == {"column": "bought", "kind": "amount", "cap": 200.0}
    assert file["outlook"]["sd"] == 30 and file["outlook"]["mean"] == 12.5


def test_a_design_that_cannot_be_is_refused_with_the_reason(page: Any, studio: Studio) -> None:
    studio.expect(422)
    studio.open(page, "#/experiments/design")
    page.locator("[name=holdout_share]").fill("50")
    page.get_by_role("button", name="Freeze the design").click()
    page.get_by_role("alert").get_by_text("add up to 1.4").first.wait_for()
    page.locator("[name=holdout_share]").fill("10")
    page.locator("[name=minimum_effect]").fill("1e-200")
    page.get_by_role("button", name="Freeze the design").click()
    page.get_by_role("alert").get_by_text("wrong units").wait_for()
    assert page.locator("#fingerprint").count() == 0


# --- the analysis ----------------------------------------------------------------------------------------------------


def test_a_table_gives_the_lift_of_the_python_api(page: Any, studio: Studio, tmp_path: Path) -> None:
    file = outcomes(tmp_path, lift=0.5)
    expected = analysed(file)
    assert expected.verdict == "ship"
    upload(page, studio, tmp_path, file)
    page.get_by_role("heading", name="Ship", exact=True).wait_for()
    page.get_by_text(expected.sentence, exact=True).wait_for()
    found = expected.posterior
    assert tile(page, "Lift") == [signed(found.lift), f"95 %: {signed(found.low)} to {signed(found.high)}"]
    assert tile(page, "P(lift > 0)")[0] == share(found.above_zero)
    assert tile(page, "P(lift > +10.00 %)")[0] == share(found.above_minimum)
    arms = {row[0]: row for row in rows(page, "Arms")}
    for arm in expected.arms:
        assert arms[arm.name][1] == f"{arm.users:,}" and arms[arm.name][5] == f"{100 * arm.mean:.3f} %"
    ways = rows(page, "Step by step, and under other priors")
    assert ways[0][1:3] == [
        signed(expected.plain.lift),
        f"{signed(expected.plain.low)} to {signed(expected.plain.high)}",
    ]
    assert [row[3] for row in ways[2:]] == [share(view.above_zero) for view in expected.sensitivity.values()]
    assert {row[0] for row in rows(page, "Lift by segment")} == {"garden", "kitchen"}
    assert [row[0] for row in rows(page, "Before the campaign")] == ["orders_before"]
    says = page.locator(".chart[role=img]").get_attribute("aria-label")
    assert f"{share(found.above_zero)} of it lies above zero" in says
    page.locator(".chart svg").wait_for()
    told = page.locator(".findings li p").all_inner_texts()
    assert told == [finding.message for finding in expected.findings]
    with page.expect_download() as kept:
        page.get_by_role("button", name="Download the analysis").click()
    assert Analysis.model_validate_json(kept.value.path().read_text(encoding="utf-8")) == expected


def test_a_broken_sample_ratio_blocks_the_decision_in_plain_sight(page: Any, studio: Studio, tmp_path: Path) -> None:
    file = outcomes(tmp_path, lift=0.5)
    table = pl.read_csv(file)
    place = table.with_row_index()
    lossy = table.filter((place["arm"] != "merit") | (place["bought"] == 1) | (place["index"] % 5 > 0))
    lossy.write_csv(file)
    expected = analysed(file)
    assert expected.verdict == "blocked" and expected.findings[0].what == "sample ratio"
    upload(page, studio, tmp_path, file)
    alert = page.get_by_role("alert")
    alert.get_by_role("heading", name="No decision").wait_for()
    alert.get_by_text(expected.sentence, exact=True).wait_for()
    assert page.locator(".tile").count() == 0  # no headline figure: someone would quote it
    assert page.locator(".findings li").first.inner_text().startswith("Sample ratio blocks the decision")
    page.locator("#ratio").get_by_text("so nothing is decided").wait_for()
    assert not page.get_by_text(signed(expected.posterior.lift)).first.is_visible()
    page.get_by_text("Figures, to find the fault").click()
    page.get_by_text("no evidence for or against the campaign").wait_for()
    page.locator(".chart svg").wait_for()


def test_an_early_look_is_blocked_too(page: Any, studio: Studio, tmp_path: Path) -> None:
    file, early = outcomes(tmp_path, lift=0.5), date(2027, 3, 9)
    expected = analysed(file, early)
    assert expected.verdict == "blocked"
    upload(page, studio, tmp_path, file, early)
    told = page.get_by_role("alert").get_by_text(expected.sentence, exact=True)
    told.wait_for()
    assert told.is_visible() and not page.get_by_text(signed(expected.posterior.lift)).first.is_visible()


def test_statistics_give_the_same_lift_as_their_table(page: Any, studio: Studio, tmp_path: Path) -> None:
    file = outcomes(tmp_path, lift=0.0)
    expected = analysed(file)
    assert expected.verdict == "keep"
    frozen = steps.freeze(DESIGN, tmp_path / "frozen")
    lift = steps.analyse_campaign(frozen, tmp_path / "lift", table=file, until=END)
    studio.open(page, "#/experiments/analyse?source=statistics")
    page.get_by_label("Design", exact=True).fill(json.dumps(AGREED))
    page.get_by_role("button", name="Begin with a template").click()
    template = json.loads(page.get_by_label("Statistics", exact=True).input_value())
    assert template["columns"] == ["bought", "orders_before"] and len(template["cells"]) == 3
    page.get_by_label("Statistics", exact=True).fill(lift.file("statistics.json").read_text(encoding="utf-8"))
    page.get_by_role("button", name="Analyse", exact=True).click()
    page.get_by_role("heading", name="Do not ship", exact=True).wait_for()
    page.get_by_text(expected.sentence, exact=True).wait_for()
    page.get_by_text("Only statistics were given").wait_for()
    assert tile(page, "Lift")[0] == signed(expected.posterior.lift)


def test_a_table_of_the_service_can_be_chosen(page: Any, studio: Studio, tables: Path, tmp_path: Path) -> None:
    expected = analysed(outcomes(tables, lift=0.5))
    design = tmp_path / "design.json"
    design.write_text(json.dumps(AGREED), encoding="utf-8")
    try:
        studio.open(page, "#/experiments/analyse")
        page.get_by_label("Design file").set_input_files(design)
        page.get_by_text("A service table").click()
        page.get_by_label("Table", exact=True).select_option("outcomes.csv")
        page.get_by_role("button", name="Analyse", exact=True).click()
        page.get_by_role("heading", name="Ship", exact=True).wait_for()
        page.get_by_text(expected.sentence, exact=True).wait_for()
        assert tile(page, "Lift")[0] == signed(expected.posterior.lift)
        assert "source=named" in page.url and "table=outcomes.csv" in page.url
        page.reload()  # the address says which one
        page.get_by_label("Table", exact=True).wait_for()
        assert page.get_by_label("Table", exact=True).input_value() == "outcomes.csv"
    finally:
        (tables / "outcomes.csv").unlink()  # other tests look into the same folder


def test_without_the_scope_the_tables_of_the_service_are_not_shown(page: Any, studio: Studio) -> None:
    _, reader = keys.create(studio.state / keys.FILE, "reader", ["read"])
    studio.open(page, "#/experiments/analyse?source=named", reader)
    page.get_by_text("This key sees no tables").wait_for()
    assert page.get_by_role("button", name="Analyse", exact=True).is_disabled()


def test_what_cannot_be_read_is_told_with_its_place(page: Any, studio: Studio, tmp_path: Path) -> None:
    studio.expect(422)
    file = tmp_path / "outcomes.csv"
    file.write_text("user_id,arm,bought,orders_before,vertical\nu1,merit,7,1,garden\n", encoding="utf-8")
    studio.open(page, "#/experiments/analyse")
    page.get_by_text("No analysis yet").wait_for()
    page.get_by_label("Design", exact=True).fill('{"name": ')
    page.get_by_label("Outcomes", exact=True).set_input_files(file)
    page.get_by_role("button", name="Analyse", exact=True).click()
    page.get_by_role("alert").get_by_text("The design is no JSON").wait_for()
    page.get_by_label("Design", exact=True).fill(json.dumps(AGREED))
    page.get_by_role("button", name="Analyse", exact=True).click()
    page.get_by_role("alert").get_by_text("bought").wait_for()
    assert str(tmp_path) not in page.locator("main").inner_text()


# --- everyone --------------------------------------------------------------------------------------------------------


def test_all_of_it_by_keyboard(page: Any, studio: Studio) -> None:
    def tab_to(test: str, most: int = 60) -> None:
        for _ in range(most):
            page.keyboard.press("Tab")
            if page.evaluate(f"() => {{ const at = document.activeElement; return Boolean({test}); }}"):
                return
        pytest.fail(f"no Tab leads to {test}")

    studio.open(page, "#/experiments")
    tab_to("at.name === 'name'")
    page.keyboard.press("Control+a")
    page.keyboard.type("By keyboard")
    page.keyboard.press("Enter")
    page.locator("#fingerprint").wait_for()
    tab_to("at.textContent === 'Analyse with this design'")
    page.keyboard.press("Enter")
    page.get_by_label("Design", exact=True).wait_for()
    tab_to("at.name === 'source'")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    tab_to("at.textContent.startsWith('Begin with a template')")
    page.keyboard.press("Enter")
    cells = [{"arm": arm, "users": users, "mean": [0.04]} for arm, users in (("expert", 45_000), ("merit", 45_000))]
    given = {"columns": ["bought"], "cells": [{"arm": "holdout", "users": 10_000, "mean": [0.04]}, *cells]}
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(json.dumps(given))
    tab_to("at.type === 'submit'")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Do not ship", exact=True).wait_for()
    assert page.evaluate("() => document.activeElement.id") == "report"


@pytest.mark.parametrize(("scheme", "width"), [("light", 380), ("dark", 380), ("dark", 1280)])
def test_every_view_fits(page: Any, studio: Studio, tmp_path: Path, scheme: str, width: int) -> None:
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 800})
    studio.open(page, "#/experiments/design?name=Narrow")
    page.locator("#fingerprint").wait_for()
    assert page.evaluate("() => document.documentElement.scrollWidth") <= width
    upload(page, studio, tmp_path, outcomes(tmp_path, lift=0.5))
    page.locator(".chart svg").wait_for()
    assert page.evaluate("() => document.documentElement.scrollWidth") <= width
