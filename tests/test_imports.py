"""The direction of imports, and what stays light, are part of the design."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import merit

ROOT = Path(merit.__file__).parent
# In data-flow order: a module may import from its own layer and from those before it. A module named in full belongs to
# its own layer instead of its folder's.
LAYERS = [
    {"core.errors"},
    {"core.types", "core.ragged", "core.seeds", "core.provenance", "core.files"},
    {"core.config"},
    {"core"},
    {"report"},
    {"privacy.audit", "privacy.floor", "privacy.hidden"},
    {"engine"},
    {"data", "privacy.pseudonyms", "privacy.contacts"},
    {"labels"},
    {"data.texts", "data.title_words", "data.trends"},
    {"data.corpus", "data.report"},
    {"objective"},
    {"evaluation"},
    {"propensity.score", "propensity.features", "propensity.negatives", "propensity.calibration", "propensity.lengths"},
    {"propensity.ridge", "propensity.held_out"},  # without torch, and so are the next
    {"propensity.factor_scorer", "propensity.closed_form", "propensity.quick"},
    {"propensity.factor_model", "propensity.epochs", "propensity.linear"},
    {"generator"},
    {"propensity"},
    {"baselines"},
    {"retrieval"},
    {"plan.config"},
    {"core.shared"},
    {"core.settings"},
    {"core.quick"},  # the tables that put all stages together
    {"core.pipeline"},
    {"core.presets"},
    {"core.fitting", "core.tagging"},
    {"campaigns"},
    {"privacy"},
    {"refresh"},
    {"core.update"},
    {"bench"},
    {"plan"},
    {"service"},
    {"cli"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
LIGHT = [
    "data.examples",
    "data.prompt",
    "labels.encoders",
    "labels.token_paths",
    "labels.space",
    "retrieval.scorer",
    "retrieval.shortlist",
    "retrieval.diversity",
    "retrieval.verticals",
    "campaigns.experiments.lift",
    "campaigns.audiences.build",
    "report.page",
    "evaluation.evaluate",
    "baselines.methods",
    "retrieval.model",
    "retrieval.encode",
    "generator.items.reader",
    "core.fitting",
    "cli",
]
HEAVY = ["torch", "transformers", "sentence_transformers", "sklearn"]


def layer(module: str) -> str:
    """The layer of a module, by its name without `merit.`: the longest part of the name that has a place."""
    parts = module.split(".")
    names = [".".join(parts[:size]) for size in range(len(parts), 0, -1)]
    return next((name for name in names if name in LEVEL), module)


def imported(path: Path) -> set[str]:
    """The layers of merit that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "merit":
            base = (node.module or "").removeprefix("merit").removeprefix(".")
            names = [f"{base}.{alias.name}".removeprefix(".") for alias in node.names]
            found |= {layer(name) for name in names if name not in ("__version__", "fit", "load", "Model")}
        elif isinstance(node, ast.Import):
            found |= {layer(alias.name[6:]) for alias in node.names if alias.name.startswith("merit.")}
    return found


FILES = [path for path in sorted(ROOT.rglob("*.py")) if path != ROOT / "__init__.py"]


@pytest.mark.parametrize("path", FILES, ids=[str(path.relative_to(ROOT)) for path in FILES])
def test_imports_point_upward_only(path: Path) -> None:
    own = layer(".".join(path.relative_to(ROOT).with_suffix("").parts))
    assert own in LEVEL, f"{path.name} has no place in the data flow: add it to LAYERS"
    assert not {name for name in imported(path) if LEVEL[name] > LEVEL[own]}


def test_the_core_imports_without_torch() -> None:
    """One after the other in a fresh interpreter: the first line that is not empty names the module to blame."""
    code = f"""
import importlib, sys
for name in {LIGHT}:
    importlib.import_module("merit." + name)
    print(name, *(heavy for heavy in {HEAVY} if heavy in sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:-1] == LIGHT


def test_nothing_is_pickled() -> None:
    words = ("import pickle", "from pickle", "import joblib", "from joblib", "torch.load(", "allow_pickle=True")
    assert not [path for path in FILES if any(word in path.read_text() for word in words)]


def test_public_classes_have_names_of_their_own() -> None:
    """A name that two classes share has to be looked up every time it is read."""
    places: dict[str, list[str]] = {}
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    assert not {name: files for name, files in places.items() if len(files) > 1}
