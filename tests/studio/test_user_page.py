"""One user in the browser: what is shown is what the model says."""

from __future__ import annotations

from typing import Any

import pytest

from tests.studio.conftest import EXPLAINED, PATIENCE, Studio

pytestmark = pytest.mark.slow


def rows(page: Any, caption: str, timeout: int = PATIENCE) -> list[list[str]]:
    """The texts of a table's cells."""
    table = page.get_by_role("region", name=caption)
    table.wait_for(timeout=timeout)
    found: list[list[str]] = table.evaluate(
        "node => [...node.querySelectorAll('tbody tr')].map(row => [...row.cells].map(cell => cell.innerText))"
    )
    return found


def test_interests_history_and_regions_are_the_models(page: Any, studio: Studio, model: Any) -> None:
    user = model.users["user_id"][3]
    studio.open(page, "#/user")
    page.get_by_label("User id").fill(user)
    page.keyboard.press("Enter")
    page.get_by_role("heading", name=f"User {user}").wait_for()
    told = rows(page, "The chance that the next purchase carries it")
    expected = model.interests(user, 15)
    assert [row[1].split("\n")[0] for row in told] == expected["interest"].to_list()
    for row, probability in zip(told, expected["probability"], strict=True):
        assert float(row[2].removesuffix(" %")) == pytest.approx(100 * probability, rel=0.01)
    items = len(model.users["items"][3])
    page.get_by_role("heading", name=f"History, {items} events").wait_for()
    assert page.locator(".timeline li").count() == min(items, 15)
    assert page.locator(".timeline h3").count() >= 1  # days: the run's examples are beside the model
    page.get_by_text("regions and spread as if over").wait_for()
    page.locator(".chart svg").nth(1).wait_for()  # charts are drawn after the words
    assert page.locator(".chart svg").count() == 2


def test_a_diverse_list_is_a_view_of_its_own(page: Any, studio: Studio, model: Any) -> None:
    user = model.users["user_id"][3]
    studio.open(page, f"#/user/{user}")
    page.get_by_label("Of different regions").check()
    page.wait_for_url("**view=diverse")
    page.wait_for_function("() => document.querySelector('[name=view][value=diverse]')?.checked")
    told = rows(page, "The chance that the next purchase carries it")
    assert [row[1].split("\n")[0] for row in told] == model.interests(user, 15, True)["interest"].to_list()


def test_evidence_is_told_beside_and_kept_in_the_address(page: Any, studio: Studio, model: Any) -> None:
    user = model.users["user_id"][3]
    text = model.interests(user, 1)["interest"][0]
    studio.open(page, f"#/user/{user}")
    page.get_by_role("button", name=f"Why {text}?").click()
    evidence = model.explain(user, text, k=8)
    strong = evidence.filter(evidence["effect"] > 0)
    if len(strong):
        told = rows(page, f"Why “{text}”", EXPLAINED)
        assert [row[0] for row in told] == [
            title or item for title, item in zip(strong["title"], strong["item_id"], strict=True)
        ]
    else:
        page.get_by_text("No single item speaks for it").wait_for(timeout=EXPLAINED)
    assert "why=" in page.url


def test_an_unknown_user_is_told_with_care(page: Any, studio: Studio) -> None:
    studio.expect(404)
    studio.open(page, "#/user/nobody%20at%20all")
    page.get_by_text("The model does not know this user").wait_for()
    assert page.get_by_label("User id").input_value() == "nobody at all"


def test_names_that_look_like_markup_stay_text(page: Any, studio: Studio) -> None:
    studio.expect(404)
    studio.open(page, "#/user/%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E")
    page.get_by_role("heading", name="User <img src=x onerror=alert(1)>").wait_for()
    assert page.locator("main img").count() == 0
