"""What the reference says is what the code has."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.docs.blocks import ROOT
from tests.docs.scripts import script


@pytest.fixture(scope="module")
def reference() -> Any:
    return script("reference")


@pytest.mark.parametrize("name", ["commands.md", "settings.md", "python.md", "rest.md"])
def test_the_reference_is_that_of_the_code(reference: Any, name: str) -> None:
    made = reference.PAGES[name]()
    assert (ROOT / "docs/reference" / name).read_text(encoding="utf-8") == made, "Run `make reference`."


def test_every_setting_of_a_run_has_its_line(reference: Any) -> None:
    page = reference.settings()
    for setting in ("| `seed` |", "## [propensity.factors]", '## [source, kind = "tables"]', "| `dropped` |"):
        assert setting in page


def test_every_command_has_its_place(reference: Any) -> None:
    page = reference.commands()
    for command in ("### merit audience build", "## merit run", "### merit labels add", "## merit serve"):
        assert command in page


def test_every_exit_code_is_told(reference: Any) -> None:
    from merit.core.errors import MeritError

    table = reference.commands().split("## Exit codes")[1]
    for kind in MeritError.__subclasses__():
        if kind.__module__ == "merit.core.errors":
            assert f"| {kind.exit_code} | " in table and f"`{kind.__name__}`" in table


def test_what_other_programs_build_on_has_a_docstring(reference: Any) -> None:
    untold = {
        call.partition("(")[0]
        for names in reference.PUBLIC.values()
        for name in names
        for call, found in reference.entries(name)
        if not reference.first_sentence(found)
    }
    assert not untold


def test_the_front_door_is_on_the_page(reference: Any) -> None:
    import merit

    named = {name.rpartition(".")[2] for names in reference.PUBLIC.values() for name in names}
    assert set(merit.__all__) <= named


def test_every_route_and_every_shape_has_its_place(reference: Any) -> None:
    from merit.service.routes import ROUTES

    page = reference.rest()
    for route in ROUTES:
        title = f"\n## {route.method} {route.path.replace(':path}', '}')}\n"
        told = page.split(title)[1].split("\n## ")[0]
        assert ("No key is needed." if route.scope == "public" else f"Scope: `{route.scope}`.") in told
        assert f"Answer {route.status}, " in told
    titles = {line.removeprefix("### ").lower() for line in page.splitlines() if line.startswith("### ")}
    assert set(re.findall(r"\]\(#([a-z-]+)\)", page)) <= titles


def test_a_type_is_told_in_words(reference: Any) -> None:
    told = reference._words
    assert (
        told({"anyOf": [{"type": "string", "maxLength": 5}, {"type": "null"}]})
        == "string, at most 5 characters or null"
    )
    assert told({"type": "array", "items": {"$ref": "#/components/schemas/Pair"}}) == "list of [Pair](#pair)"
    assert told({"type": "integer", "minimum": 1, "maximum": 9}) == "integer, ≥ 1, ≤ 9"
    assert told({"enum": ["any", "all"], "type": "string"}) == "`any`, `all`"
