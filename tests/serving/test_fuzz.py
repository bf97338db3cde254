"""Whatever the schema allows, and what it does not: no error of ours, and every answer as the schema says."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

ROUNDS = int(os.environ.get("MERIT_FUZZ_ROUNDS", "2"))  # the same questions every time; set it to search further
EACH = 8  # questions to a route in a round
CHECKS = ("not_a_server_error", "status_code_conformance", "content_type_conformance", "response_schema_conformance")


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["POSITIVE", "NEGATIVE"])
def test_no_question_breaks_the_service(mode: str, guarded: Any, secret: Any, model: Any, wanted: Any) -> None:
    import schemathesis

    told = schemathesis.openapi.from_asgi("/v1/openapi.json", guarded)
    checks = [getattr(schemathesis.checks, name) for name in CHECKS]
    headers = {"Authorization": f"Bearer {secret('read', 'audience', 'export', 'admin')}"}
    known = st.tuples(st.sampled_from(model.users["user_id"].to_list()), st.sampled_from(model.labels.texts))
    pairs = st.none() | known if mode == "POSITIVE" else st.none()
    operations = [found.ok() for found in told.get_all_operations()]
    if mode == "NEGATIVE":  # a route that is told nothing cannot be told anything wrong
        operations = [each for each in operations if {"parameters", "requestBody"} & set(each.definition.raw)]
    asked = dict.fromkeys((operation.label for operation in operations), 0)

    def ask(operation: Any, number: int) -> None:
        @seed(number)
        @settings(max_examples=EACH, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        @given(case=operation.as_strategy(generation_mode=schemathesis.GenerationMode[mode]), pair=pairs)
        def holds(case: Any, pair: tuple[str, str] | None) -> None:
            if pair:
                _make_known(case, *pair, wanted)
            asked[operation.label] += 1
            case.call_and_validate(headers=headers, checks=checks)

        holds()

    for number in range(ROUNDS):
        for operation in operations:
            ask(operation, number)
    assert all(asked.values()), asked


def _make_known(case: Any, user: str, text: str, wanted: dict[str, Any]) -> None:
    """Users and interests that exist: otherwise nothing gets past the first look."""
    if "user_id" in case.path_parameters:
        case.path_parameters["user_id"] = user
    if isinstance(case.body, dict):
        if "pairs" in case.body:
            case.body["pairs"] = [{"user_id": user, "interest": text}]
        elif "users" in case.body:
            case.body |= {"users": [user], "interests": [text]}
        elif "size" in case.body:
            case.body |= {"lookalike": None, "rules": [], "combine": "any"} | wanted
