"""The examples in docstrings say what the code does."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

import merit

ROOT = Path(merit.__file__).parent
TOLD = [path for path in sorted(ROOT.rglob("*.py")) if ">>> " in path.read_text(encoding="utf-8")]


@pytest.mark.parametrize("path", TOLD, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_the_examples_of_docstrings_are_true(path: Path) -> None:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    found = doctest.testmod(importlib.import_module(".".join(part for part in parts if part != "__init__")))
    assert found.attempted and not found.failed


def test_there_are_examples_where_a_reader_begins() -> None:
    names = {path.relative_to(ROOT).as_posix() for path in TOLD}
    assert {"objective/targets.py", "core/seeds.py", "campaigns/experiments/lift.py", "evaluation/matching.py"} <= names
