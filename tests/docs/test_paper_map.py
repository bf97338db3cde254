"""What the paper map names is there: files, what is in them, settings, commands and links."""

from __future__ import annotations

import ast
import re
import shlex
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/paper-map.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`([^`]+)`", PAGE)))
FILES = [name for name in NAMED if re.fullmatch(r"[\w/]+\.(?:py|toml)(?::\w+)?", name)]
COMMANDS = [name for name in NAMED if name.startswith(("merit ", "python -m "))]
SETTINGS = [name for name in NAMED if re.fullmatch(r"[a-z_0-9]+(?:\.[a-z_0-9]+)+", name) and name not in FILES]
OTHER = {"src/merit", "tiny", "threshold"}  # a folder, a value, and a key of a design


def test_everything_named_is_of_a_known_kind() -> None:
    assert set(NAMED) - {*FILES, *COMMANDS, *SETTINGS} <= OTHER
    assert len(FILES) > 50 and len(SETTINGS) > 35


@pytest.mark.parametrize("name", FILES)
def test_files_and_what_is_in_them_exist(name: str) -> None:
    file, _, inside = name.partition(":")
    place = ROOT / file if (ROOT / file).exists() else ROOT / "src/merit" / file
    assert place.exists(), f"there is no {file}"
    assert not inside or inside in defined(place), f"{file} has no {inside}"


@cache
def defined(file: Path) -> set[str]:
    """Functions, classes and tables at the top of a module."""
    found = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        found |= {each.id for each in targets if isinstance(each, ast.Name)}
    return found


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_exist(name: str) -> None:
    from merit.core.settings import RunConfig

    models: list[Any] = [RunConfig]
    for key in name.split("."):
        fields = [model.model_fields[key] for model in models if key in model.model_fields]
        assert fields, f"there is no setting {name}"
        models = [model for field in fields for model in _models(field.annotation)]


def _models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [found for part in get_args(annotation) for found in _models(part)]


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_exist(command: str) -> None:
    from tests.docs import checking

    if command != "merit show":  # named without its folder
        checking.command(shlex.split(command))


def test_every_section_and_table_of_the_paper_has_its_line() -> None:
    sections = ["§1", "Fig. 1", "§3", "§3.1", "eq. 1", "Alg. 1", "App. A", "§3.2", "§3.3", "§4", "§4.1", "§4.2", "§4.3"]
    tables = [
        "Table 1, upper",
        "Table 1, lower",
        "Tables 1 and 2",
        "threshold sensitivity",
        "k_g",
        "compression",
        "A/B",
    ]
    appendices = ["App. patching", "App. threshold", "App. k_g", "App. A/B tests", "App. full results", "Limitations"]
    assert [each for each in (*sections, *tables, *appendices) if each not in PAGE] == []
