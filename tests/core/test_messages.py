"""Settings that a message names exist, so that its remedy can be followed."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel

import merit
from merit.bench.config import BenchConfig
from merit.campaigns.audiences.request import AudienceRequest
from merit.campaigns.experiments.design import ExperimentDesign
from merit.campaigns.sync.destination import DestinationFile
from merit.campaigns.sync.sync import InterestLists
from merit.core.config import RENAMED, build
from merit.core.errors import ConfigError
from merit.core.settings import RunConfig
from merit.core.update import UpdateConfig
from merit.refresh.refresh import RefreshRun

ROOT = Path(merit.__file__).parent
SETTINGS: tuple[type[BaseModel], ...] = (
    RunConfig,
    BenchConfig,
    AudienceRequest,
    ExperimentDesign,
    RefreshRun,
    DestinationFile,
    InterestLists,
    UpdateConfig,
)


def models(annotation: Any) -> list[type[BaseModel]]:
    """The settings models in a type, those in lists, tables and unions included."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in models(part)]


def names(model: type[BaseModel]) -> Iterator[str]:
    """The names of all settings and sections, at any depth."""
    for name, field in model.model_fields.items():
        yield name
        yield from (inner for each in models(field.annotation) for inner in names(each))


NAMES = {name for top in SETTINGS for name in names(top) if len(name) > 2}
SECTIONS = {name for top in SETTINGS for name in top.model_fields if models(top.model_fields[name].annotation)}
DOTTED = re.compile(r"(?<![\w./{-])[a-z]\w*(?:\.[a-z_0-9]+)+(?![\w(/*…])")
OTHERS = ("merit", "http")  # modules, and what a server is sent
FILES = (
    "tmp",
    "parquet",
    "json",
    "jsonl",
    "toml",
    "npy",
    "safetensors",
    "md",
    "html",
    "py",
    "csv",
    "txt",
    "gz",
    "zip",
    "svg",
)


def literals(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The lines and texts of string literals, but for docstrings; what is put into an f-string is an ellipsis."""
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    texts = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield (
                node.lineno,
                "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values),
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts | texts:
            yield node.lineno, node.value


def named() -> Iterator[tuple[str, str]]:
    for file in sorted(ROOT.rglob("*.py")):
        for line, text in literals(ast.parse(file.read_text(encoding="utf-8"))):
            for setting in DOTTED.findall("" if text in RENAMED else text):
                first, *_, last = setting.split(".")
                if (first in SECTIONS and last not in FILES) or (last in NAMES and first not in OTHERS):
                    yield f"{file.relative_to(ROOT)}:{line}", setting


def exists(model: type[BaseModel], path: list[str]) -> bool:
    if not path:
        return True
    field = model.model_fields.get(path[0])
    if field is None:
        return False
    inner = models(field.annotation)
    return not path[1:] or any(exists(each, path[1:]) for each in inner) or "dict" in str(field.annotation)


def test_every_setting_in_a_message_exists() -> None:
    found = list(named())
    wrong = [f"{place}: {text}" for place, text in found if not any(exists(top, text.split(".")) for top in SETTINGS)]
    assert not wrong, "\n".join(wrong)
    assert len(found) > 20  # the pattern still finds them


@pytest.mark.parametrize(("old", "new"), RENAMED.items())
def test_a_renamed_setting_is_told_its_new_name(old: str, new: str) -> None:
    override = old if "=" in old else f"{old}=1"
    with pytest.raises(ConfigError) as error:
        build(RunConfig, {"source": {"kind": "complete-journey"}}, [override])
    expected = f"There is no setting {old}. It is called {new} now."
    assert [line.strip() for line in str(error.value).splitlines()[1:]] == [expected]
    assert exists(RunConfig, new.partition("=")[0].split("."))


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("propensity.fit.learning_rate", True),
        ("propensity.learning_rate", False),
        ("stage_2.learning_rate", True),
        ("prepare.split.validation", True),
        ("prepare.validation", False),
        ("fit.learning_rate", False),
    ],
)
def test_a_name_is_looked_up_through_its_sections(text: str, right: bool) -> None:
    assert DOTTED.findall(f"Halve {text}.") == [text]
    assert any(exists(top, text.split(".")) for top in SETTINGS) == right
