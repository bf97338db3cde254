from __future__ import annotations

import subprocess
import sys


def test_retrieval_imports_without_torch() -> None:
    modules = ["scorer", "shortlist", "diversity", "verticals"]
    names = ", ".join(f"merit.retrieval.{name}" for name in modules)
    code = f"import sys, {names}; print([name for name in ('torch', 'transformers', 'sklearn') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
