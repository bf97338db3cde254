"""From a phrase to a file in the browser: every count that is shown is the model's, but for the noise of a preview."""

from __future__ import annotations

import io
import json
import math
import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote

import polars as pl
import pytest

from merit.campaigns.audiences import build as stage
from merit.campaigns.audiences.request import AudienceRequest
from merit.core import config
from merit.service import keys
from tests.studio.conftest import EXPLAINED, Studio

pytestmark = pytest.mark.slow


SENT = 120  # users of an audience: enough to be sent, and not all
NOISE = 40  # users by which a preview may be off, once in e^11 times more


def members(page: Any) -> int:
    """The count that is shown, once it is that of what was asked last."""
    page.wait_for_function("() => document.querySelector('.tiles') && !document.querySelector('.found.stale')")
    return int(tile(page, "Users in the audience").replace(",", ""))


def tile(page: Any, name: str) -> str:
    text: str = page.locator(".tile", has_text=name).locator("strong").inner_text()
    return text


def changed(page: Any, before: int) -> int:
    page.wait_for_function(
        "before => !document.querySelector('.found.stale')"
        " && document.querySelector('.tile strong')?.innerText !== before",
        arg=f"{before:,}",
    )
    return members(page)


def asked(page: Any) -> dict[str, list[str]]:
    """What the address says."""
    return parse_qs(page.url.partition("?")[2])


def scores(model: Any, text: str) -> pl.Series:
    found: pl.Series = model.audience(text, len(model.users))["probability"]
    return found


def drag(page: Any, handle: str, probability: float) -> None:
    track, knob = page.locator(".track").bounding_box(), page.get_by_role("slider", name=handle).bounding_box()
    page.mouse.move(knob["x"] + knob["width"] / 2, knob["y"] + knob["height"] / 2)
    page.mouse.down()
    goal = track["x"] + track["width"] * (math.log10(probability) + 4) / 4
    page.mouse.move(goal, knob["y"] + 5, steps=8)
    page.mouse.up()


def find(page: Any, text: str) -> None:
    """Type some of it, and take the suggestion."""
    page.get_by_role("combobox", name="An interest").press_sequentially(text[:-2])
    page.get_by_role("option", name=text).first.click()


def test_from_an_interest_to_a_file(page: Any, studio: Studio, model: Any) -> None:
    text = model.labels.texts[0]
    studio.open(page, "#/audience")
    find(page, text)
    first = members(page)
    likely = scores(model, text)
    assert first == math.floor(len(likely) * float(asked(page)["percent"][0]) / 100)
    size = {"by": "percentile", "percent": float(asked(page)["percent"][0])}
    told = stage.preview(model, config.build(AudienceRequest, {"name": "a", "interests": [text], "size": size}))
    assert told.forecast and float(tile(page, "Expected conversions")) == pytest.approx(
        told.forecast.conversions, abs=0.5
    )

    page.locator(".histogram svg").wait_for()
    drag(page, "At least this likely", 0.05)
    cut = changed(page, first)
    at_least = float(asked(page)["at_least"][0])
    assert at_least == pytest.approx(0.05, rel=0.05) and cut == pytest.approx((likely >= at_least).sum(), abs=NOISE)

    page.get_by_role("button", name="Add a rule").click()
    page.get_by_label("Kind of rule").select_option(label="Consent: the column says yes")
    page.get_by_label("Column", exact=True).select_option("newsletter")
    page.get_by_role("button", name="Add this rule").click()
    page.get_by_role("region", name="From all users to the audience").get_by_text("consent: newsletter").wait_for()
    allowed = members(page)
    said = model.users["user_id"][10:]
    chosen = model.audience(text, len(said), among=said).filter(pl.col("probability") >= at_least)
    assert allowed == pytest.approx(len(chosen), abs=NOISE)

    page.get_by_label("Name").fill("Spring, in the browser")
    page.get_by_role("button", name="Save this audience").click()
    page.locator(".note", has_text=f"“Spring, in the browser” is saved: {allowed:,} users.").wait_for()
    for form, read in {"csv": pl.read_csv, "parquet": pl.read_parquet, "jsonl": pl.read_ndjson}.items():
        with page.expect_download() as waiting:
            page.get_by_role("button", name=f"Download Spring, in the browser as {form}").click()
        assert waiting.value.suggested_filename == f"spring-in-the-browser.{form}"
        content = io.BytesIO(Path(waiting.value.path()).read_bytes())
        assert read(content)["user_id"].to_list() == chosen["user_id"].to_list()


def test_an_address_shows_the_same_audience_to_somebody_else(page: Any, studio: Studio, model: Any) -> None:
    one, two = model.labels.texts[:2]
    rare = model.labels.texts[model.users["history"].explode().value_counts().sort("count")["history"][0]]
    rule = json.dumps({"rule": "bought", "interests": [rare]})
    view = f"#/audience?i={quote(one)}&i={quote(two)}&w=1&w=3&combine=weighted&by=count&users=101&rule={quote(rule)}"
    studio.open(page, view)
    assert members(page) == 101
    assert page.get_by_label(f"Weight of {two}").input_value() == "3"
    page.get_by_text(f"not bought yet: {rare}").first.wait_for()
    page.get_by_label("all of them").check()
    page.wait_for_function("() => location.hash.includes('combine=all')")
    assert members(page) == 101


def test_days_make_it_an_audience_within_a_window(page: Any, studio: Studio, model: Any) -> None:
    text = model.labels.texts[0]
    studio.open(page, f"#/audience?i={quote(text)}&by=count&users=120")
    assert members(page) == 120 and not page.locator(".tile", has_text="Bought before").count()
    page.get_by_label("Days", exact=True).fill("28")
    page.get_by_label("First day").fill(str(model.windows.end))
    page.locator(".tile", has_text="Bought before").wait_for()
    assert asked(page)["days"] == ["28"] and asked(page)["from"] == [str(model.windows.end)]
    values = {"name": "a", "interests": [text], "size": {"by": "count", "users": 120}}
    told = stage.preview(model, config.build(AudienceRequest, values | {"within": {"days": 28}}))
    assert told.forecast and members(page) == 120
    assert float(tile(page, "Expected conversions").replace(",", "")) == pytest.approx(
        told.forecast.conversions, abs=0.5
    )


def test_a_phrase_is_taken_as_it_is_and_a_far_one_is_warned_of(page: Any, studio: Studio, model: Any) -> None:
    text = model.labels.texts[0]
    studio.open(page, "#/audience")
    box = page.get_by_role("combobox", name="An interest")
    box.press_sequentially(f"{text} sets")
    page.get_by_role("option", name="take these words as they are").click()
    told = model.interest(f"{text} sets").products
    titles = f"in the titles of {told:,} product" if told else "which no title has"
    page.get_by_text(re.compile(rf"Your own words, {titles}s?\. Nearest interest: {re.escape(text)}")).wait_for()
    assert members(page) >= 100
    box.press_sequentially("qqq zzz www")
    page.get_by_role("option", name="take these words as they are").click()
    page.get_by_text("far from every interest the model knows").first.wait_for()
    assert members(page) >= 100


def test_what_was_found_for_fewer_letters_cannot_be_taken(page: Any, studio: Studio) -> None:
    studio.open(page, "#/audience")
    box = page.get_by_role("combobox", name="An interest")
    box.press_sequentially("qqq")
    page.get_by_role("option", name="“qqq”").wait_for()
    box.press("z")
    assert not page.get_by_role("option", name="“qqq”").count()
    page.get_by_role("option", name="“qqqz”").wait_for()


@pytest.mark.parametrize("phrase", ["handguns", "a gun for beginners"])
def test_a_blocked_interest_is_refused_with_its_reason(page: Any, studio: Studio, phrase: str) -> None:
    studio.expect(403)
    studio.open(page, "#/audience")
    page.get_by_role("combobox", name="An interest").press_sequentially(phrase)
    page.get_by_role("option", name="take these words as they are").click()
    page.get_by_text("This is not used to choose people").wait_for()
    assert page.locator(".wanted li").count() == 0 and "i=" not in page.url
    studio.open(page, f"#/audience?i={quote(phrase)}")  # not by the address either
    page.get_by_text("This is not used to choose people").wait_for()
    assert page.get_by_role("button", name="Save this audience").is_disabled()


def test_too_few_are_refused_and_can_be_eased(page: Any, studio: Studio, model: Any) -> None:
    studio.expect(403)
    studio.open(page, f"#/audience?i={quote(model.labels.texts[0])}&by=probability&at_least=0.9")
    page.get_by_text("Too few to be an audience").wait_for()
    page.locator(".histogram svg").wait_for()
    drag(page, "At least this likely", 0.001)
    assert members(page) == pytest.approx(len(model.users), abs=NOISE)


def test_the_most_likely_can_be_left_out(page: Any, studio: Studio, model: Any) -> None:
    text = model.labels.texts[0]
    studio.open(page, f"#/audience?i={quote(text)}&by=probability")
    everybody = members(page)
    assert everybody == pytest.approx(len(model.users), abs=NOISE)
    likely = scores(model, text)
    drag(page, "At most this likely", likely[everybody - SENT])
    fewer = changed(page, everybody)
    for _ in range(100):  # the handle passes other places on its way, and each is answered
        if fewer == pytest.approx((likely <= float(asked(page)["at_most"][0])).sum(), abs=NOISE):
            break
        page.wait_for_timeout(100)
        fewer = members(page)
    assert fewer == pytest.approx((likely <= float(asked(page)["at_most"][0])).sum(), abs=NOISE) and fewer < everybody


def test_a_cut_by_value_tells_what_it_brings_and_what_else_they_like(page: Any, studio: Studio, model: Any) -> None:
    text = model.labels.texts[0]
    cost = float(f"{scores(model, text)[SENT]:.4g}")
    studio.open(page, f"#/audience?i={quote(text)}")
    page.get_by_label("Value", exact=True).check()
    page.get_by_text("Fill in the value of a conversion").wait_for()  # nothing was asked that would be refused
    page.get_by_label("Value of a conversion").fill("1")
    before = members(page)
    page.get_by_label("Cost of a contact").fill(str(cost))
    told = changed(page, before)
    economics = {"cost_per_contact": cost, "value_per_conversion": 1}
    asked = {"name": text, "interests": [text], "size": {"by": "value"}, "economics": economics}
    expected = stage.choose(model, config.build(AudienceRequest, asked))
    assert told == expected.published.members and 100 <= told <= len(model.users)
    forecast = expected.published.forecast
    assert forecast and float(tile(page, "Value less cost")) == pytest.approx(forecast.value, abs=0.01)
    assert "by=value" in page.url and f"cost={cost}" in page.url
    table = page.get_by_role("region", name="What these users had more often than everybody")
    liked = expected.noise.members.shares(model.over_indexed(expected.members["user_id"], at_least=50))
    liked = liked["interest"].head(10).to_list()
    assert liked and table.locator("tbody tr td:first-child").all_inner_texts() == liked


def test_whom_a_holdout_takes_is_in_no_file(page: Any, studio: Studio, model: Any) -> None:
    text = model.labels.texts[0]
    studio.open(page, f"#/audience?i={quote(text)}&by=percentile&percent=100")
    everybody = members(page)
    page.get_by_label("Holdout (%)").fill("20")
    page.wait_for_function("() => location.hash.includes('holdout=20') && !document.querySelector('.found.stale')")
    page.get_by_label("Name").fill("Held back")
    assert members(page) == everybody
    page.get_by_role("button", name="Save this audience").click()
    page.locator(".note", has_text="“Held back” is saved").wait_for()
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Download Held back as csv").click()
    sent = pl.read_csv(Path(waiting.value.path()))
    size, holdout = {"by": "percentile", "percent": 100}, {"share": 0.2, "salt": "studio-holdout"}
    asked = {"name": "Held back", "interests": [text], "size": size, "holdout": holdout}
    drawn = stage.choose(model, config.build(AudienceRequest, asked)).members
    assert 0 < len(sent) < everybody and set(drawn["arm"]) == {"treatment", "holdout"}
    assert sent["user_id"].to_list() == drawn.filter(pl.col("arm") == "treatment")["user_id"].to_list()


def test_by_keyboard_alone(page: Any, studio: Studio, model: Any) -> None:
    text = model.labels.texts[0]
    studio.open(page, "#/audience")
    page.evaluate("() => document.getElementById('main').focus()")
    page.keyboard.press("Tab")
    assert page.evaluate("() => document.activeElement.getAttribute('role')") == "combobox"
    page.keyboard.type(text[:-2])
    page.get_by_role("option", name=text).first.wait_for()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    before = members(page)
    reach(page, "At least this likely")
    assert page.evaluate("() => getComputedStyle(document.activeElement).outlineStyle") != "none"
    page.keyboard.press("Home")
    everybody = changed(page, before)
    assert everybody == pytest.approx(len(model.users), abs=NOISE)
    slider = page.get_by_role("slider", name="At least this likely")
    assert slider.get_attribute("aria-valuetext") == "everybody"
    likely = scores(model, text)
    pages, steps = divmod(math.floor((math.log10(likely[SENT]) + 4) / 0.05), 5)
    for key in ("PageUp",) * pages + ("ArrowUp",) * steps:
        page.keyboard.press(key)
    fewer = changed(page, everybody)
    assert fewer == pytest.approx((likely >= float(asked(page)["at_least"][0])).sum(), abs=NOISE) and fewer < everybody
    reach(page, "Save this audience")
    page.keyboard.press("Enter")
    page.locator(".note", has_text="is saved:").wait_for()


def reach(page: Any, name: str) -> None:
    """Tab until the element of this name has the focus."""
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate(
            "name => (document.activeElement.getAttribute('aria-label') ?? document.activeElement.innerText) === name",
            name,
        ):
            return
    raise AssertionError(f"no way by Tab to {name}")


def test_samples_need_the_scope_that_may_see_users(page: Any, studio: Studio, model: Any) -> None:
    view = f"#/audience?i={quote(model.labels.texts[0])}"
    studio.open(page, view)
    page.get_by_role("button", name="Show some of them").click()
    page.get_by_role("link", name=model.audience(model.labels.texts[0])["user_id"][0], exact=True).wait_for()
    page.get_by_role("button", name="Why user").first.click()
    told = page.get_by_text("Why “").or_(page.get_by_text("No single item speaks for it"))
    told.first.wait_for(timeout=EXPLAINED)
    _, planner = keys.create(studio.state / keys.FILE, "planner", ["read", "audience"])
    studio.open(page, view, planner)
    page.get_by_text("This key may not see users").wait_for()
    assert page.get_by_role("button", name="Show some of them").count() == 0
