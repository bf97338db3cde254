"""The OpenAPI document: FastAPI's, with scopes, problems and examples; and the same as an HTML page without scripts.

The examples are real answers of a service over a small planted run: `make examples` writes them anew.
"""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

import jinja2

from merit.service.problems import MEDIA
from merit.service.routes import ROUTES
from merit.service.schemas import Problem

EXAMPLES: dict[str, dict[str, Any]] = json.loads(files("merit.service").joinpath("examples.json").read_bytes())
MISSING = {"request": None, "response": None}  # of a new route, until its example is made
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
HEADERS = {"X-Request-Id": {"description": "the request in the log", "schema": {"type": "string"}}}
FILES = {
    "metrics": ["text/plain"],
    "export": ["application/vnd.apache.parquet", "text/csv", "application/jsonl"],
}


def complete(document: dict[str, Any]) -> dict[str, Any]:
    """The document with what FastAPI cannot know, and without its own schema of errors."""
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    problem = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas |= problem.pop("$defs", {}) | {"Problem": problem}
    components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer", "description": "`merit keys create`"}}
    for route in ROUTES:
        operation = document["paths"][route.path.replace(":path}", "}")][route.method.lower()]
        _complete(operation, route.scope, str(route.status))
    return document


def _complete(operation: dict[str, Any], scope: str, status: str) -> None:
    name = operation["operationId"]
    example = EXAMPLES.get(name, MISSING)
    operation["security"] = [] if scope == "public" else [{"key": []}]
    operation["x-scope"] = scope
    content = {
        "schema": {"$ref": "#/components/schemas/Problem"},
        "example": EXAMPLES.get("problem", MISSING)["response"],
    }
    for code, reason in REASONS.items():
        operation["responses"][code] = {"description": reason, "content": {MEDIA: content}, "headers": HEADERS}
    success = operation["responses"][status]
    success["headers"] = HEADERS
    if name in FILES:
        success["content"] = {
            kind: {"schema": {"type": "string"}, "example": example["response"]} for kind in FILES[name]
        }
    else:
        success["content"]["application/json"]["example"] = example["response"]
    for body in operation.get("requestBody", {}).get("content", {}).values():
        body["example"] = example["request"]


def page(document: dict[str, Any]) -> str:
    """All routes with their examples, as HTML."""
    source = files("merit.service").joinpath("docs.html.j2").read_text(encoding="utf-8")
    template = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(source)
    routes = [
        (f"{method.upper()} {path}", operation, EXAMPLES.get(operation["operationId"], MISSING))
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    return template.render(
        routes=routes,
        version=document["info"]["version"],
        reasons=REASONS,
        pretty=lambda value: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2),
    )
