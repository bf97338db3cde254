"""The OpenAPI document: what FastAPI reads from the routes, with scopes, problems and an example for every one; and the
same as a page for people, made here so that a browser asks nobody else."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

import jinja2

from merit.service.examples import EXAMPLES, PROBLEM
from merit.service.problems import MEDIA
from merit.service.routes.table import ROUTES
from merit.service.schemas import Problem

REASONS = {
    "401": "no valid key",
    "403": "the key lacks the scope, or the policy forbids it",
    "404": "not there",
    "405": "another method",
    "408": "the request came too slowly",
    "409": "the server's files are not as they must be",
    "413": "larger than 10 MB",
    "422": "it does not fit, or cannot be answered",
    "429": "too many requests",
    "500": "an error of the service",
    "503": "no answer in time",
}
HEADERS = {
    "X-Request-Id": {"description": "the request in the log", "schema": {"type": "string"}},
}
FILES = {
    "metrics": ["text/plain"],
    "export": ["application/vnd.apache.parquet", "text/csv", "application/jsonl"],
}


def complete(told: dict[str, Any]) -> dict[str, Any]:
    """Add what FastAPI cannot know, and take out what it assumes about errors."""
    parts = told.setdefault("components", {})
    shapes = parts.setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        shapes.pop(name, None)
    problem = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
    shapes |= problem.pop("$defs", {}) | {"Problem": problem}
    parts["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer", "description": "`merit keys create`"}}
    for route in ROUTES:
        path = route.path.replace(":path}", "}")
        _complete(told["paths"][path][route.method.lower()], route.answer.__name__, route.scope, str(route.status))
    return told


def _complete(operation: dict[str, Any], name: str, scope: str, status: str) -> None:
    asked, answer = EXAMPLES[name]
    operation["security"] = [] if scope == "public" else [{"key": []}]
    operation["x-scope"] = scope
    content = {"schema": {"$ref": "#/components/schemas/Problem"}, "example": PROBLEM}
    for code, reason in REASONS.items():
        operation["responses"][code] = {"description": reason, "content": {MEDIA: content}, "headers": HEADERS}
    good = operation["responses"][status]
    good["headers"] = HEADERS
    if name in FILES:
        good["content"] = {kind: {"schema": {"type": "string"}, "example": answer} for kind in FILES[name]}
    else:
        good["content"]["application/json"]["example"] = answer
    for body in operation.get("requestBody", {}).get("content", {}).values():
        body["example"] = asked


def page(told: dict[str, Any]) -> str:
    """All routes with their examples, as HTML without a script."""
    source = files("merit.service").joinpath("docs.html.j2").read_text(encoding="utf-8")
    made = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(source)
    rows = [
        {
            "method": method.upper(),
            "path": path,
            "scope": operation["x-scope"],
            "says": operation.get("description") or operation.get("summary", ""),
            "parameters": operation.get("parameters", []),
            "asked": _pretty(EXAMPLES[operation["operationId"]][0]),
            "answer": _pretty(EXAMPLES[operation["operationId"]][1]),
        }
        for path, methods in told["paths"].items()
        for method, operation in methods.items()
    ]
    return made.render(rows=rows, version=told["info"]["version"], reasons=REASONS)


def _pretty(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
