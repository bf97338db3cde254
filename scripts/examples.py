"""Writes src/merit/service/examples.json: a request and a real response of every route. `make examples`.

The service is asked over the small planted run of the tests. Long lists and texts are cut; a test compares the shapes.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl
from starlette.testclient import TestClient

from merit.service import app, keys
from merit.service.openapi import FILES
from merit.service.request_limits import Limits
from merit.service.service import Service, opened

ROOT = Path(__file__).parents[1]
FILE = ROOT / "src/merit/service/examples.json"
LONGEST, MOST = 500, 2  # characters of a text, items of a list
DESIGN: dict[str, Any] = {
    "name": "Trail running, spring",
    "arms": {"expert": 0.5, "merit": 0.5},
    "control": "expert",
    "treatment": "merit",
    "salt": "trail-running-2027-03",
    "start": "2027-03-01",
    "days": 7,
    "minimum_effect": 0.02,
    "outcome": {"column": "bought"},
    "outlook": {"mean": 0.04, "users_per_day": 100000},
}
STATISTICS: dict[str, Any] = {
    "columns": ["bought"],
    "cells": [
        {"arm": "expert", "users": 450000, "mean": [0.0400]},
        {"arm": "merit", "users": 450000, "mean": [0.0411]},
    ],
}
UNTIL = "2027-03-07"


def collect(run: Path, place: Path) -> dict[str, dict[str, Any]]:
    """Operation → request (None without a body) and response. `place` is empty, and a user of the run is erased."""
    (place / "tables").mkdir()
    rows = [f"u{at},{arm},{int(at % 25 < 1 + at % 2)}" for at, arm in enumerate(["expert", "merit"] * 500)]
    outcomes = "\n".join(["user_id,arm,bought", *rows])
    (place / "tables/outcomes.csv").write_text(outcomes, encoding="utf-8")
    _, secret = keys.create(place / "state" / keys.FILE, "campaign tool", keys.SCOPES)
    with opened(run, place / "state", tables=place / "tables", limits=Limits(seconds=300)) as service:
        client = TestClient(app.make(service), headers={"Authorization": f"Bearer {secret}"})
        return _ask(client, service, outcomes)


def _ask(client: TestClient, service: Service, outcomes: str) -> dict[str, dict[str, Any]]:
    model = service.store.current.model
    user, texts = model.users["user_id"][0], model.labels.texts
    examples: dict[str, dict[str, Any]] = {}

    def get(name: str, path: str) -> Any:
        return keep(name, None, client.get(path))

    def post(name: str, path: str, body: Any = None) -> Any:
        return keep(name, body, client.post(path, json=body) if body else client.post(path))

    def keep(name: str, request: Any, response: Any) -> Any:
        assert response.status_code in (200, 202) or name == "problem", response.text
        answer = response.text if name in FILES else response.json()
        examples[name] = {"request": request, "response": shortened(answer)}
        return answer

    get("health", "/health")
    get("ready", "/ready")
    for name in ("key", "model", "labels", "tables"):
        get(name, f"/v1/{name}")
    for name in ("card", "results", "calibration"):
        get(name, f"/v1/model/{name}")
    get("label", "/v1/labels/0")
    get("label_map", "/v1/label-map")
    for name in ("interests", "verticals", "regions", "history"):
        get(name, f"/v1/users/{user}/{name}")
    post("interest", "/v1/interest", {"text": f"{texts[0]} sets"})
    post("score", "/v1/score", {"users": [user], "interests": texts[:2]})
    post("score_pairs", "/v1/score-pairs", {"pairs": [{"user_id": user, "interest": texts[0]}]})
    histories = _histories(service)
    post("history_interests", "/v1/histories/interests", {"histories": histories, "k": 3})
    post("history_scores", "/v1/histories/score", {"histories": histories, "interests": texts[:2]})
    post("explain", "/v1/explain", {"user_id": user, "interest": texts[0], "k": 5})
    audience = {"name": "Spring", "interests": [{"text": texts[0]}], "size": {"by": "count", "users": 110}}
    post("preview", "/v1/audience/preview", audience)
    post("sample", "/v1/audience/sample", audience)
    jobs = [post("build", "/v1/audience/jobs", audience)["id"] for _ in range(3)]
    post("cancel", f"/v1/audience/jobs/{jobs[2]}/cancel")
    while get("job", f"/v1/audience/jobs/{jobs[0]}")["state"] != "DONE":
        time.sleep(0.05)
    get("jobs", "/v1/audience/jobs")
    get("export", f"/v1/audience/jobs/{jobs[0]}/export?form=jsonl")
    post("design", "/v1/experiments/design", DESIGN)
    post("analyze", "/v1/experiments/analyze", {"design": DESIGN, "statistics": STATISTICS, "until": UNTIL})
    agreed = DESIGN | {"salt": None}
    form = {"design": json.dumps(agreed), "until": UNTIL}
    sent = client.post("/v1/experiments/analyze-table", data=form, files={"table": ("outcomes.csv", outcomes)})
    keep("analyze_table", form | {"table": "outcomes.csv"}, sent)
    named = {"design": agreed, "table": "outcomes.csv", "until": UNTIL}
    post("analyze_named", "/v1/experiments/analyze-named", named)
    text = client.get("/metrics").text
    lines = [line for line in text.splitlines() if line.startswith("merit_jobs")]
    examples["metrics"] = {"request": None, "response": "\n".join(lines) + "\n"}
    keep("problem", None, client.get("/v1/users/nobody/interests"))
    number = post("erase", "/v1/erasures", {"users": [user], "reason": "request of 2027-03-01"})["id"]
    while get("erasure", f"/v1/erasures/{number}")["state"] != "DONE":
        time.sleep(0.05)
    post("reload", "/v1/admin/reload")
    return examples


def _histories(service: Service) -> list[dict[str, Any]]:
    """A visitor with an item that the model knows and one that it does not, and one without any."""
    model = service.store.current.model
    item = pl.read_parquet(model.artifact.file("items.parquet"), columns=["item_id"])["item_id"][0]
    known = {"item_id": item, "at": "2026-03-01T10:00:00Z"}
    unknown = {"item_id": "new", "title": f"{model.labels.texts[0]} set"}
    return [{"user_id": "visitor-1", "events": [known, unknown]}, {"user_id": "visitor-2", "events": []}]


def shortened(value: Any) -> Any:
    """The same with the first items of each list and the beginning of each text."""
    if isinstance(value, dict):
        return {name: shortened(each) for name, each in value.items()}
    if isinstance(value, list):
        return [shortened(each) for each in value[:MOST]]
    return f"{value[:LONGEST]} …" if isinstance(value, str) and len(value) > LONGEST else value


def main() -> None:
    sys.path.insert(0, str(ROOT))
    from tests import small_run

    with TemporaryDirectory() as name:
        place = Path(name)
        run = small_run.make(place, users=400)  # enough test users for figures
        (place / "service").mkdir()
        examples = collect(run, place / "service")
    FILE.write_text(json.dumps(examples, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
