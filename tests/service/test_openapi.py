"""The OpenAPI document: version 3.1, an example for every question and every answer, and examples that fit."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from merit.service.examples import EXAMPLES
from merit.service.openapi import FILES, REASONS
from merit.service.routes.table import ROUTES
from merit.service.schemas import ErasureAsked


@pytest.fixture(scope="module")
def told(ask: Any) -> dict[str, Any]:
    document: dict[str, Any] = ask("read").get("/v1/openapi.json").json()
    return document


def operations(told: dict[str, Any]) -> list[dict[str, Any]]:
    return [operation for methods in told["paths"].values() for operation in methods.values()]


def fits(told: dict[str, Any], schema: dict[str, Any], value: Any) -> None:
    jsonschema.Draft202012Validator({**schema, "components": told["components"]}).validate(value)


def test_it_is_3_1_and_every_route_has_an_example(told: dict[str, Any]) -> None:
    assert told["openapi"].startswith("3.1")
    assert {operation["operationId"] for operation in operations(told)} == set(EXAMPLES)
    assert len(ROUTES) == len(EXAMPLES)


def test_examples_fit_their_schemas(told: dict[str, Any]) -> None:
    for operation in operations(told):
        good = next(answer for code, answer in operation["responses"].items() if code.startswith("2"))
        for content in good["content"].values():
            fits(told, content["schema"], content["example"])
        for kind, content in operation.get("requestBody", {}).get("content", {}).items():
            assert content["example"] is not None
            if kind == "application/json":
                fits(told, content["schema"], content["example"])


def test_every_error_is_a_problem(told: dict[str, Any]) -> None:
    for operation in operations(told):
        for code in REASONS:
            assert list(operation["responses"][code]["content"]) == ["application/problem+json"]
        fits(
            told,
            {"$ref": "#/components/schemas/Problem"},
            operation["responses"]["404"]["content"]["application/problem+json"]["example"],
        )
    assert "HTTPValidationError" not in told["components"]["schemas"]


def test_the_page_has_every_route_and_escapes_it(told: dict[str, Any], stranger: Any) -> None:
    page = stranger.get("/v1/docs").text
    assert all(f"{path}</h2>" in page for path in told["paths"])
    assert "&#34;trail running&#34;" in page


def test_examples_of_questions_are_understood(ask: Any, model: Any) -> None:
    """They name users and interests of another shop: refused for that, never for their shape."""
    for route in ROUTES:
        asked = EXAMPLES[route.answer.__name__][0]
        if asked and route.answer.__name__ not in ("analyze_table", *FILES):
            if route.scope == "erase":
                ErasureAsked.model_validate(asked)  # to ask would be to erase
                continue
            answer = ask().post(route.path, json=asked)
            assert answer.status_code in (200, 202, 404, 422)
            assert "errors" not in answer.json(), answer.text
