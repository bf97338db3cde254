"""The OpenAPI document: version 3.1, with a real example of every request and every response."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from merit.service.openapi import EXAMPLES, REASONS
from merit.service.routes import ROUTES
from tests.docs.scripts import script


@pytest.fixture(scope="module")
def document(ask: Any) -> dict[str, Any]:
    document: dict[str, Any] = ask("read").get("/v1/openapi.json").json()
    return document


def operations(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [operation for methods in document["paths"].values() for operation in methods.values()]


def fits(document: dict[str, Any], schema: dict[str, Any], value: Any) -> None:
    jsonschema.Draft202012Validator({**schema, "components": document["components"]}).validate(value)


def shape(value: Any) -> Any:
    """The keys of a value, and the types of its values; of a list, those of the first item."""
    if isinstance(value, dict):
        return {name: shape(each) for name, each in value.items()}
    if isinstance(value, list):
        return [shape(each) for each in value[:1]]
    return None if value is None else "number" if isinstance(value, float | int) else type(value).__name__


def alike(one: Any, other: Any) -> bool:
    """Whether two shapes agree; null and an empty list agree with anything."""
    if not one or not other:
        return True
    if isinstance(one, dict) and isinstance(other, dict):
        return set(one) == set(other) and all(alike(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return alike(one[0], other[0])
    return bool(one == other)


def test_it_is_3_1_and_every_route_has_an_example(document: dict[str, Any]) -> None:
    assert document["openapi"].startswith("3.1")
    assert {operation["operationId"] for operation in operations(document)} == set(EXAMPLES) - {"problem"}
    assert len(ROUTES) == len(EXAMPLES) - 1


def test_examples_fit_their_schemas(document: dict[str, Any]) -> None:
    for operation in operations(document):
        success = next(answer for code, answer in operation["responses"].items() if code.startswith("2"))
        for content in success["content"].values():
            fits(document, content["schema"], content["example"])
        for kind, content in operation.get("requestBody", {}).get("content", {}).items():
            assert content["example"] is not None
            if kind == "application/json":
                fits(document, content["schema"], content["example"])


@pytest.mark.parametrize("preset", ["made", "quick"])
def test_examples_are_what_a_service_answers(preset: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """`make examples` asks a service over a larger run: values differ, keys and types do not. So does a quick one."""
    shutil.copytree(request.getfixturevalue(preset), tmp_path / "run")
    (tmp_path / "service").mkdir()
    answers = script("examples").collect(tmp_path / "run", tmp_path / "service")
    assert set(answers) == set(EXAMPLES)
    changed = [name for name, answer in answers.items() if not alike(shape(answer), shape(EXAMPLES[name]))]
    assert not changed, "Run `make examples`."


def test_every_error_is_a_problem(document: dict[str, Any]) -> None:
    for operation in operations(document):
        for code in REASONS:
            assert list(operation["responses"][code]["content"]) == ["application/problem+json"]
        fits(
            document,
            {"$ref": "#/components/schemas/Problem"},
            operation["responses"]["404"]["content"]["application/problem+json"]["example"],
        )
    assert "HTTPValidationError" not in document["components"]["schemas"]


def test_the_page_has_every_route_and_escapes_it(document: dict[str, Any], stranger: Any) -> None:
    page = stranger.get("/v1/docs").text
    assert all(f"{path}</h2>" in page for path in document["paths"])
    assert f"&#34;{EXAMPLES['score']['request']['interests'][0]}&#34;" in page
