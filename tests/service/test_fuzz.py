"""Whatever the schema allows, and what it does not: no error of ours, and every answer as the schema says."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from starlette.types import ASGIApp

from merit.service import app, keys
from merit.service.request_limits import Limits
from merit.service.service import opened

ROUNDS = int(os.environ.get("MERIT_FUZZ_ROUNDS", "2"))  # the same questions every time; set it to search further
EACH = 8  # questions to a route in a round
PATIENCE = 300  # seconds, as the service has: the first explanation starts a process
CHECKS = ("not_a_server_error", "status_code_conformance", "content_type_conformance", "response_schema_conformance")


Known = tuple[str, str]  # a user and an interest that exist


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["POSITIVE", "NEGATIVE"])
def test_no_question_breaks_the_service(mode: str, guarded: ASGIApp, secret: Any, model: Any, wanted: Any) -> None:
    """All routes; those that erase refuse this key."""
    search(guarded, secret("read", "audience", "export", "admin"), mode, model, wanted, set(keys.SCOPES) | {"public"})


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["POSITIVE", "NEGATIVE"])
def test_no_erasure_breaks_the_service(mode: str, made: Path, tmp_path: Path, model: Any, wanted: Any) -> None:
    """The routes that erase, on a copy of the run: its users go."""
    shutil.copytree(made, tmp_path / "run")
    _, secret = keys.create(tmp_path / "state" / keys.FILE, "eraser", ["erase"])
    limits = Limits(rate=10_000, burst=100_000, seconds=PATIENCE)
    with opened(tmp_path / "run", tmp_path / "state", limits=limits, verify=False) as service:
        search(app.make(service), secret, mode, model, wanted, {"erase"})


def search(api: ASGIApp, secret: str, mode: str, model: Any, wanted: dict[str, Any], scopes: set[str]) -> None:
    """Questions to every route of these scopes: as the schema allows, or as it does not."""
    import schemathesis

    told = schemathesis.openapi.from_asgi("/v1/openapi.json", api)
    checks = [getattr(schemathesis.checks, name) for name in CHECKS]
    headers = {"Authorization": f"Bearer {secret}"}
    known = st.tuples(st.sampled_from(model.users["user_id"].to_list()), st.sampled_from(model.labels.texts))
    pairs = st.none() | known if mode == "POSITIVE" else st.none()
    operations = [found.ok() for found in told.get_all_operations()]
    operations = [each for each in operations if each.definition.raw["x-scope"] in scopes]
    if mode == "NEGATIVE":  # a route that is told nothing cannot be told anything wrong
        operations = [each for each in operations if {"parameters", "requestBody"} & set(each.definition.raw)]
    asked = dict.fromkeys((operation.label for operation in operations), 0)

    def ask(operation: Any, number: int) -> None:
        @seed(number)
        @settings(max_examples=EACH, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        @given(case=operation.as_strategy(generation_mode=schemathesis.GenerationMode[mode]), pair=pairs)
        def holds(case: Any, pair: Known | None) -> None:
            if pair:
                _make_known(case, *pair, wanted)
            asked[operation.label] += 1
            case.call_and_validate(headers=headers, checks=checks, timeout=PATIENCE)

        holds()

    for number in range(ROUNDS):
        for operation in operations:
            ask(operation, number)
    assert asked and all(asked.values()), asked


def _make_known(case: Any, user: str, text: str, wanted: dict[str, Any]) -> None:
    """Users and interests that exist: otherwise nothing gets past the first look."""
    if "user_id" in case.path_parameters:
        case.path_parameters["user_id"] = user
    if isinstance(case.body, dict):
        if "pairs" in case.body:
            case.body["pairs"] = [{"user_id": user, "interest": text}]
        elif {"users", "interests"} <= set(case.body):
            case.body |= {"users": [user], "interests": [text]}
        elif "users" in case.body:
            case.body["users"] = [user]
        elif "size" in case.body:
            case.body |= {"lookalike": None, "rules": [], "combine": "any"} | wanted
