"""The model in the browser: every figure is the run's, and every label has the status that the service gives it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

import merit
from merit.campaigns.experiments.design import ExperimentDesign
from merit.cli import app
from merit.core import config
from merit.evaluation import calibration
from merit.service.client import Client
from merit.service.openapi import EXAMPLES
from tests import small_run
from tests.studio.conftest import Studio, running

pytestmark = pytest.mark.slow

RETIRED, BLOCKED = "raised beds", "midi keyboards"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with more than 50 test users, so that there are figures to tell."""
    place = tmp_path_factory.mktemp("shop")
    small_run.make(place, users=400)
    return place


@pytest.fixture(scope="module")
def labels(shop: Path) -> Path:
    """A later version of its label space: one label retired, one blocked."""
    for action, text, source, out in (
        ("retire", RETIRED, "run/model/labels", "labels-2"),
        ("block", BLOCKED, "labels-2", "labels-3"),
    ):
        asked = ["labels", action, str(shop / source), text, "--out", str(shop / out), "--reason", "a test"]
        done = CliRunner().invoke(app, [*asked, "--cache", str(shop / "cache")])
        assert done.exit_code == 0, done.output
    return shop / "labels-3"


@pytest.fixture(scope="module")
def known(shop: Path, labels: Path) -> Any:
    return merit.load(shop / "run", labels, verify=False)


@pytest.fixture(scope="module")
def studio(shop: Path, labels: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Studio]:
    with running(shop / "run", tmp_path_factory.mktemp("state"), labels=labels) as service:
        yield service


def rows(page: Any, caption: str) -> list[list[str]]:
    """The texts of a table's cells."""
    table = page.get_by_role("region", name=caption, exact=True)
    table.wait_for()
    found: list[list[str]] = table.evaluate(
        "node => [...node.querySelectorAll('tbody tr')].map(row => [...row.cells].map(cell => cell.innerText))"
    )
    return found


def tile(page: Any, name: str) -> str:
    found = page.locator(".tile", has=page.get_by_text(name, exact=True)).locator("strong")
    text: str = found.inner_text()
    return text


def point(value: float) -> str:
    return f"{100 * value:.1f}"


# --- results ---------------------------------------------------------------------------------------------------------


def test_results_are_those_of_the_run_both_ways(page: Any, studio: Studio, shop: Path) -> None:
    figures = pl.read_parquet(shop / "run/results/figures.parquet")
    recall = figures.filter(
        pl.col("metric") == "recall",
        pl.col("budget") == 10,
        pl.col("vertical") == "",
        pl.col("rule") == "one_to_one",
        pl.col("average") == "pooled",
    )
    studio.open(page, "#/model")
    for match, part, caption in (
        ("exact", "all", "Exact match, all interests"),
        ("soft", "all", "Close in meaning, all interests"),
    ):
        page.locator(f"label:has([name=match][value='{match}'])").click()
        page.locator(f"label:has([name=part][value='{part}'])").click()
        expected = recall.filter(pl.col("match") == {"soft": "0.8"}.get(match, match), pl.col("part") == part)
        told = {row[0]: row[2].split("\n") for row in rows(page, caption)}
        assert told == {
            row["method"]: [point(row["value"]), f"{point(row['low'])} to {point(row['high'])}"]
            for row in expected.to_dicts()
        }
    page.locator(".chart svg").nth(1).wait_for()
    assert recall.filter(pl.col("part") == "novel")["users"].max() < 50  # who bought something new: too few to tell
    page.locator("label:has([name=part][value='novel'])").click()
    page.get_by_text("No such figure").wait_for()
    assert "match=soft" in page.url and "part=novel" in page.url
    hits = pl.read_parquet(shop / "run/ranking/audiences.parquet").filter(pl.col("match") == "10%")
    for option, vertical in (("Mean over verticals", "all"), ("Every pair of user and label", "")):
        page.get_by_label("Interests of").select_option(label=option)
        told_hits = {row[0]: row[4].split("\n")[0] for row in rows(page, option)}
        own = hits.filter(pl.col("vertical") == vertical)
        assert told_hits == {row["method"]: point(row["value"]) for row in own.to_dicts()}


def test_a_view_is_in_its_address(page: Any, studio: Studio) -> None:
    studio.open(page, "#/model/results?match=soft&vertical=pairs")
    assert rows(page, "Close in meaning, all interests")
    assert rows(page, "Every pair of user and label")


@pytest.mark.parametrize(
    ("status", "answer", "says"),
    [
        (200, {"figures": [], "audiences": [], "calibration": None}, "Too few test users"),
        (404, {"title": "Not found", "detail": "Not beside it.", "remedy": "Serve the run."}, "No results here"),
    ],
)
def test_without_figures_the_page_says_why(page: Any, studio: Studio, status: int, answer: Any, says: str) -> None:
    studio.expect(404)
    page.route("**/v1/model/results", lambda route: route.fulfill(status=status, json=answer))
    studio.open(page, "#/model")
    page.get_by_text(says).wait_for()


# --- calibration and card --------------------------------------------------------------------------------------------


def test_calibration_is_the_models_overall_and_by_vertical(page: Any, studio: Studio, shop: Path) -> None:
    table = pl.read_parquet(shop / "run/model/propensity/reliability.parquet")
    studio.open(page, "#/model/calibration")
    overall = calibration.summary(table)
    assert tile(page, "Expected calibration error") == f"{overall.ece:.5f}"
    assert tile(page, "Brier score") == f"{overall.brier:.5f}" and tile(page, "Pairs") == f"{overall.pairs:,}"
    page.locator(".chart svg").wait_for()
    told = {row[0]: row[1:5] for row in rows(page, "Verticals of at least 50 pairs")}
    expected = calibration.by_vertical(table).to_dicts()
    assert told == {
        row["vertical"]: [f"{row['pairs']:,}", *(f"{row[name]:.4f}" for name in ("ece", "ece_likely", "brier"))]
        for row in expected
    }
    page.get_by_label("Labels of").select_option(expected[0]["vertical"])
    assert tile(page, "Expected calibration error") == f"{expected[0]['ece']:.5f}"
    assert f"vertical={expected[0]['vertical']}" in page.url


def test_the_card_is_read_as_text_and_can_be_kept(page: Any, studio: Studio, known: Any) -> None:
    studio.open(page, "#/model/card")
    for heading in ("Model card", "Data", "Interests for a user", "Probabilities", "Not for"):
        page.get_by_role("heading", name=heading, exact=True).wait_for()
    written = [line for line in known.card().splitlines() if line.startswith("| ")]
    assert page.locator(".prose tbody tr").count() == len(written) - 2
    assert "**" not in page.locator(".prose").inner_text()
    with page.expect_download() as kept:
        page.get_by_role("button", name="Download the card").click()
    assert kept.value.path().read_text(encoding="utf-8") == known.card()


def test_markup_in_a_card_stays_text(page: Any, studio: Studio) -> None:
    evil = (
        "# <img src=x onerror=alert(1)>\n\n- <script>alert(2)</script>\n\n| a\\|b |\n| --- |\n| [x](javascript:y) |\n"
    )
    page.route("**/v1/model/card", lambda route: route.fulfill(json={"markdown": evil}))
    studio.open(page, "#/model/card")
    page.get_by_text("<img src=x onerror=alert(1)>").wait_for()
    page.get_by_text("a|b").wait_for()
    assert page.locator("main :is(img, script, a[href^=javascript])").count() == 0


# --- labels ----------------------------------------------------------------------------------------------------------


def test_clusters_are_on_the_map_and_show_their_labels(page: Any, studio: Studio, known: Any) -> None:
    live = known.labels.table.filter(pl.col("status") == "live")
    studio.open(page, "#/model/labels")
    circles = page.locator(".map .mark-symbol.role-mark path")
    circles.first.wait_for()
    assert circles.count() == live["cluster"].n_unique()
    chips = page.locator(".chip")
    assert chips.count() == live["cluster"].n_unique()
    chips.nth(1).click()
    cluster = int(chips.nth(1).get_attribute("data-cluster"))
    own = live.filter(pl.col("cluster") == cluster).sort("count", "id", descending=[True, False])
    page.wait_for_function("wanted => document.querySelectorAll('.labels li').length === wanted", arg=len(own))
    assert page.locator(".labels a").all_inner_texts() == own["text"].to_list()
    assert chips.nth(1).get_attribute("aria-pressed") == "true" and f"cluster={cluster}" in page.url
    assert page.evaluate("() => document.activeElement.id") == "cluster"
    circles.nth(0).click(force=True)
    page.wait_for_function("old => !location.hash.includes(`cluster=${old}`)", arg=cluster)
    page.wait_for_function("() => document.querySelectorAll('.chip[aria-pressed=true]').length === 1")


def test_labels_are_found_with_their_status(page: Any, studio: Studio, known: Any) -> None:
    studio.open(page, "#/model/labels")
    assert [tile(page, name) for name in ("Live", "Retired", "Blocked", "Version")] == ["70", "1", "1", "3"]
    text = known.labels.texts[0]
    page.get_by_label("Label or phrase").fill(text[:6])
    page.wait_for_function("() => document.querySelector('#found caption')?.innerText.includes('live')")
    page.locator("#found").get_by_role("link", name=text, exact=True).wait_for()
    assert f"q={text[:6].replace(' ', '+')}" in page.url
    page.get_by_label("Label or phrase").fill("")
    page.get_by_text("Retired", exact=True).last.click()
    found = page.locator("#found tbody tr")
    found.get_by_text(RETIRED).wait_for()
    assert found.count() == 1 and found.locator(".status").inner_text() == "retired"
    page.get_by_text("Blocked", exact=True).last.click()
    page.get_by_text("One label is blocked").wait_for()
    assert BLOCKED not in page.locator("main").inner_text()


def test_the_status_of_any_phrase_is_told(page: Any, studio: Studio, known: Any) -> None:
    studio.expect(403, 422)
    studio.open(page, "#/model/labels")
    text = known.labels.texts[0]
    for phrase, says in (
        (text, f"“{text}” is live."),
        (RETIRED, f"'{RETIRED}' is retired"),
        (BLOCKED, "Blocked by the policy"),
        (f"{text} sets", f"“{text} sets” is no label, but can be scored."),
    ):
        page.get_by_label("Label or phrase").fill(phrase)
        page.keyboard.press("Enter")
        page.locator("#verdict").get_by_text(says).wait_for()


def test_the_client_is_told_what_the_page_shows(studio: Studio, known: Any) -> None:
    client = Client(studio.url, studio.secret)
    told = client.label_map()
    assert told.labels == int(known.labels.live_mask().sum()) and len(told.items) == told.clusters
    first = told.items[0]
    assert len(list(client.labels(cluster=first.cluster, limit=3))) == first.labels
    assert client.calibration() == client.results().calibration
    design = EXAMPLES["design"]["request"]
    assert client.design(design).users_needed == client.design(config.build(ExperimentDesign, design)).users_needed


# --- everyone --------------------------------------------------------------------------------------------------------


def test_all_of_it_by_keyboard(page: Any, studio: Studio) -> None:
    def press_until(test: str, key: str = "Tab", most: int = 80) -> None:
        for _ in range(most):
            page.keyboard.press(key)
            if page.evaluate(f"() => {{ const at = document.activeElement; return Boolean({test}); }}"):
                return
        pytest.fail(f"no {key} leads to {test}")

    studio.open(page, "#/model")
    rows(page, "Exact match, all interests")
    press_until("at.name === 'match'")
    page.keyboard.press("ArrowRight")
    rows(page, "Close in meaning, all interests")
    press_until("at.textContent === 'Labels'", "Shift+Tab")
    page.keyboard.press("Enter")
    page.locator(".chip").first.wait_for()
    press_until("at.classList.contains('chip')")
    page.keyboard.press("Enter")
    page.locator(".labels li").first.wait_for()
    press_until("at.type === 'search'", most=250)
    page.keyboard.type("gar")
    page.wait_for_function("() => document.querySelector('#found caption')?.innerText.match(/^\\d+ live/)")
    press_until("at.textContent === 'on the map'")
    page.keyboard.press("Space")
    page.wait_for_function("() => document.activeElement.id === 'cluster'")
    assert "cluster=" in page.url and page.locator("#cluster").is_visible()


@pytest.mark.parametrize(("scheme", "width"), [("light", 380), ("dark", 380), ("dark", 1280)])
def test_every_view_fits(page: Any, studio: Studio, scheme: str, width: int) -> None:
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 800})
    for view in ("results", "calibration", "labels?cluster=1", "card"):
        studio.open(page, f"#/model/{view}")
        page.locator(".card").first.wait_for()
        page.wait_for_timeout(300)
        assert page.evaluate("() => document.documentElement.scrollWidth") <= width, view


def test_when_one_part_fails_the_page_says_what_and_how_to_go_on(page: Any, studio: Studio) -> None:
    studio.expect(500)
    broken = {
        "title": "Something went wrong",
        "detail": "An error.",
        "remedy": "Tell the operator.",
        "request_id": "abc",
    }
    page.route("**/v1/label-map", lambda route: route.fulfill(status=500, body=json.dumps(broken)))
    studio.open(page, "#/model/labels")
    page.get_by_text("Tell the operator.").wait_for()
    page.unroute("**/v1/label-map")
    page.get_by_role("button", name="Try again").click()
    page.locator(".chip").first.wait_for()
