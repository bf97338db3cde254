"""The direction of imports, and what stays light, are part of the design."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import merit

ROOT = Path(merit.__file__).parent
# In data-flow order: a module may import from its own layer and from those before it.
LAYERS = [
    {"errors"},
    {"types", "storage", "seeds", "denormals", "provenance", "files"},
    {"config"},
    {"artifacts", "audit", "console", "gguf", "weights"},
    {"doctor"},
    {"data"},
    {"labels"},
    {"objective"},
    {"generator"},
    {"mining"},
    {"propensity"},
    {"retrieval"},
    {"campaign"},
    {"erasure"},
    {"evaluation"},
    {"baselines"},
    {"methods"},
    {"engine"},
    {"report"},
    {"plan"},
    {"stages"},
    {"bench"},
    {"evidence", "people"},
    {"meaning"},
    {"model"},
    {"batch"},
    {"serving"},
    {"cli"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
LIGHT = [
    "data.examples",
    "data.prompt",
    "labels.trie",
    "labels.space",
    "retrieval.scorer",
    "campaign.lift",
    "stages.audience",
    "report.page",
    "stages.evaluate",
    "methods",
    "model",
    "cli",
]
HEAVY = ["torch", "transformers", "sentence_transformers", "sklearn"]


def layer(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    """The layers of merit that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "merit":
            found |= {alias.name for alias in node.names if alias.name in LEVEL}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("merit."):
            found.add(str(node.module).split(".")[1])
        elif isinstance(node, ast.Import):
            found |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("merit.")}
    return found


FILES = [path for path in sorted(ROOT.rglob("*.py")) if path != ROOT / "__init__.py"]


@pytest.mark.parametrize("path", FILES, ids=[str(path.relative_to(ROOT)) for path in FILES])
def test_imports_point_upward_only(path: Path) -> None:
    assert layer(path) in LEVEL, f"{path.name} has no place in the data flow: add it to LAYERS"
    below = {name for name in imported(path) if LEVEL[name] > LEVEL[layer(path)]}
    assert not below


@pytest.mark.parametrize("module", LIGHT)
def test_the_core_imports_without_torch(module: str) -> None:
    code = f"import sys, merit.{module}; print([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_nothing_is_pickled() -> None:
    words = ("import pickle", "from pickle", "import joblib", "from joblib", "torch.load(", "allow_pickle=True")
    assert not [path for path in FILES if any(word in path.read_text() for word in words)]
