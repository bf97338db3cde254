"""The evaluator and the baselines that need no model never load one."""

from __future__ import annotations

import subprocess
import sys

MODULES = "merit.evaluation.tables, merit.evaluation.ranking, merit.evaluation.trivial, merit.evaluation.report"


def test_no_torch_and_no_model() -> None:
    heavy = ("torch", "transformers", "sentence_transformers", "merit.generator", "merit.labels.encoders")
    code = f"import sys, {MODULES}; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
