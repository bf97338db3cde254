"""What the process does not bring along: torch, and whatever needs it."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl

import merit.service

CODE = """
import sys
from pathlib import Path
from starlette.testclient import TestClient
from merit.service import app, keys
from merit.service.request_limits import Limits
from merit.service.service import opened

run, state = map(Path, sys.argv[1:])
_, secret = keys.create(state / keys.FILE, "test", keys.SCOPES)
with opened(run, state, limits=Limits(seconds=300)) as service:
    ask = TestClient(app.make(service), headers={"Authorization": f"Bearer {secret}"})
    model = service.store.current.model
    user, text = model.users["user_id"][0], model.labels.texts[0]
    size = {"by": "count", "users": 110}
    told = ask.post("/v1/explain", json={"user_id": user, "interest": text, "k": 3})
    assert told.status_code == 200, told.text
    print(told.text)
    for answer in (
        ask.get(f"/v1/users/{user}/interests"),
        ask.get("/v1/model/results"),
        ask.post("/v1/score", json={"users": [user], "interests": [text, "a phrase"]}),
        ask.post("/v1/audience/preview", json={"name": "a", "interests": [text], "size": size}),
        ask.post("/v1/histories/interests", json={"histories": [{"user_id": "a", "events": [{"title": text}]}]}),
        ask.post("/v1/admin/reload"),
    ):
        assert answer.status_code == 200, answer.text
heavy = ("torch", "merit.generator.model", "merit.generator.items.model", "merit.retrieval.explain")
print([name for name in sys.modules if name.startswith(heavy)])
"""


def test_no_file_of_it_imports_the_generator() -> None:
    for path in Path(merit.service.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
            module = str(getattr(node, "module", ""))
            assert not any(word in name for name in [*names, module] for word in ("generator", "evidence", "torch"))


def test_a_process_that_has_answered_everything_has_no_generator(made: Path, model: Any, tmp_path: Path) -> None:
    """It explains by a child process, and says what the model says."""
    done = subprocess.run([sys.executable, "-c", CODE, str(made), str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    explained, loaded = done.stdout.strip().splitlines()[-2:]
    assert loaded == "[]"
    evidence = pl.DataFrame(json.loads(explained)["items"])
    assert evidence.equals(model.explain(model.users["user_id"][0], model.labels.texts[0], k=3))


def test_the_client_needs_no_server() -> None:
    heavy = ["fastapi", "starlette", "uvicorn", "torch"]
    code = f"import sys, merit.service.client; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
