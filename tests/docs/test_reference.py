"""What the reference says is what the code has."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def _script() -> Any:
    spec = spec_from_file_location("reference", ROOT / "scripts" / "reference.py")
    assert spec and spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["commands.md", "settings.md"])
def test_the_reference_is_that_of_the_code(name: str) -> None:
    made = _script().PAGES[name]()
    assert (ROOT / "docs/reference" / name).read_text(encoding="utf-8") == made, "Run `make reference`."


def test_every_setting_of_a_run_has_its_line() -> None:
    page = _script().settings()
    for setting in ("| `seed` |", "## [propensity.factors]", '## [source, kind = "tables"]', "| `dropped` |"):
        assert setting in page


def test_every_command_has_its_place() -> None:
    page = _script().commands()
    for command in ("### merit audience build", "## merit run", "### merit labels add", "## merit serve"):
        assert command in page
