"""Writes docs/reference from the code: commands, settings, Python, REST. `make reference`; a test compares them."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from pkgutil import resolve_name
from types import SimpleNamespace
from typing import Any, cast, get_args, get_origin

import click
import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from merit.cli import app
from merit.core import errors
from merit.core.settings import RunConfig
from merit.service import openapi
from merit.service.app import routed
from merit.service.service import Service

FOLDER = Path(__file__).parents[1] / "docs" / "reference"
NOTE = "<!-- Made by `make reference`. Edit the code instead. -->"


def commands() -> str:
    """Every command with its arguments and options."""
    root = typer.main.get_command(app)
    context = click.Context(root, info_name="merit")
    parts = [f"# Commands\n\n{NOTE}\n\nWhat `merit --help` tells, in one page."]
    return "\n\n".join([*parts, *_command(root, context), _exit_codes()]) + "\n"


def _exit_codes() -> str:
    """What a command ends with; each error of ours has one."""
    kinds = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, errors.MeritError)]
    rows = [
        f"| {each.exit_code} | {_cell(inspect.getdoc(each) or '')} `{each.__name__}` |"
        for each in sorted(kinds, key=lambda kind: kind.exit_code)
        if each is not errors.MeritError
    ]
    told = "0 is success. 1 is any other refusal, or a check that found something."
    return "\n\n".join(["## Exit codes", told, "| | |\n|---|---|\n" + "\n".join(rows)])


def _command(command: Any, context: click.Context) -> Iterator[str]:
    if hasattr(command, "commands"):
        if context.parent is not None:
            yield f"## {context.command_path}\n\n{command.help or ''}".strip()
        for name, each in sorted(command.commands.items()):
            yield from _command(each, click.Context(each, info_name=name, parent=context))
        return
    level = "###" if context.parent and context.parent.parent else "##"
    told = [f"{level} {context.command_path}", (command.help or "").strip()]
    rows = [_parameter(each) for each in command.params if each.name != "help"]
    if rows:
        told.append("| | |\n|---|---|\n" + "\n".join(rows))
    yield "\n\n".join(told)


def _parameter(each: Any) -> str:
    if each.param_type_name == "argument":
        name = f"`{each.name.upper()}{'…' if each.nargs != 1 else ''}`"
    else:
        name = ", ".join(f"`{word}`" for word in (*each.opts, *each.secondary_opts))
    default = each.default
    shown = default is not None and default not in (False, ()) and not each.required and not callable(default)
    told = (getattr(each, "help", None) or "").strip()
    words = [told, f"(default: `{_plain(default)}`)" if shown else "", "(required)" if each.required else ""]
    return f"| {name} | {_cell(' '.join(word for word in words if word))} |"


def settings() -> str:
    """Every setting of a run: its type, its default, and what it means."""
    intro = (
        "A run is one TOML file; `merit config show FILE` prints it with every default filled in, and "
        "`--set prepare.target=order` overrides a setting. An unknown key is an error."
    )
    return "\n\n".join([f"# Settings\n\n{NOTE}\n\n{intro}", *_tables(RunConfig, "")]) + "\n"


def _tables(model: type[BaseModel], path: str) -> Iterator[str]:
    plain = {name: each for name, each in model.model_fields.items() if not _models(each.annotation)}
    nested = {name: each for name, each in model.model_fields.items() if name not in plain}
    title = f"## [{path}]" if path else "## The file's first lines"
    if plain:
        rows = [
            f"| `{name}` | {_type(each)} | {_default(each)} | {_cell(each.description or '')} |"
            for name, each in plain.items()
        ]
        yield "\n\n".join([title, "| setting | type | default | |\n|---|---|---|---|\n" + "\n".join(rows)])
    for name, each in nested.items():
        place = f"{path}.{name}" if path else name
        found = _models(each.annotation)
        for kind in found:
            yield from _tables(kind, place if len(found) == 1 else f"{place}, kind = {_kind(kind)}")


def _models(annotation: Any) -> list[type[BaseModel]]:
    """The settings models in a type; none in a plain one, nor in lists and tables of them."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    if get_origin(annotation) in (list, tuple, dict):
        return []
    return [found for part in get_args(annotation) for found in _models(part)]


def _kind(model: type[BaseModel]) -> str:
    return f'"{model.model_fields["kind"].default}"'


def _type(field: FieldInfo) -> str:
    text = getattr(field.annotation, "__name__", None) if not get_args(field.annotation) else None
    text = text or str(field.annotation).replace("typing.", "").replace("pathlib.", "").replace("NoneType", "None")
    bounds = [
        f"{sign} {getattr(each, key)}" for each in field.metadata for key, sign in SIGNS.items() if hasattr(each, key)
    ]
    return _cell(f"`{text}`{' ' + ', '.join(bounds) if bounds else ''}")


SIGNS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}


def _default(field: FieldInfo) -> str:
    if field.default is PydanticUndefined:
        return "(required)" if field.default_factory is None else ""
    return _cell(f"`{_plain(field.default)}`")


def _plain(value: Any) -> str:
    if isinstance(value, Enum):
        value = value.value
    return value.as_posix() if isinstance(value, Path) else str(value)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


# --- Python ----------------------------------------------------------------------------------------------------------

PUBLIC: dict[str, tuple[str, ...]] = {
    "Asking a model": (
        "merit.core.fitting.fit",
        "merit.retrieval.opening.load",
        "merit.retrieval.model.Model",
        "merit.retrieval.query.Interest",
    ),
    "A run from Python": (
        "merit.core.config.build",
        "merit.core.pipeline.run",
        "merit.core.artifacts.load",
        "merit.core.artifacts.Artifact",
    ),
    "Audiences": (
        "merit.campaigns.audiences.request.read",
        "merit.campaigns.audiences.build.preview",
        "merit.campaigns.audiences.build.build",
        "merit.campaigns.audiences.export.export",
        "merit.retrieval.bulk.write_audiences",
    ),
    "Experiments": (
        "merit.campaigns.experiments.steps.freeze",
        "merit.campaigns.experiments.steps.assign_users",
        "merit.campaigns.experiments.steps.analyse_campaign",
        "merit.campaigns.experiments.steps.pool_campaigns",
        "merit.campaigns.experiments.lift.compare",
        "merit.campaigns.experiments.lift.Lift",
    ),
    "Judging lists": (
        "merit.evaluation.predictions.Predictions",
        "merit.evaluation.predictions.Truth",
        "merit.evaluation.matching.match",
        "merit.evaluation.classification.measure",
        "merit.evaluation.tables.compare",
    ),
    "Adding to it": ("merit.core.types.LabelEncoder", "merit.baselines.world.World", "merit.baselines.world.Answer"),
    "The objective": (
        "merit.objective.targets.target_sequence",
        "merit.objective.losses.set_loss",
        "merit.objective.losses.linear_set_loss",
        "merit.objective.collate.collate",
    ),
    "Over HTTP": ("merit.service.client.Client", "merit.service.client.ServiceError"),
}
"""What other programs may build on. All else is ours to move."""


def python() -> str:
    """What other programs may build on: a line for each name here, and on the site its whole docstring."""
    intro = (
        "What other programs may build on; modules that are not named here may move. `merit.fit`, `merit.load` and "
        "`merit.Model` are those of `merit.core.fitting` and `merit.retrieval.model`. "
        "[Asking a model](../model.md) has examples, [settings](settings.md) the fields of a run. "
        "The tables have the first sentence of each docstring; the site shows them whole."
    )
    return "\n\n".join([f"# Python\n\n{NOTE}\n\n{intro}", *(_group(*each) for each in PUBLIC.items())]) + "\n"


def _group(title: str, names: tuple[str, ...]) -> str:
    rows = [f"| `{call}` | {_cell(first_sentence(each))} |" for name in names for call, each in entries(name)]
    whole = [f"::: {name}\n    options:\n      heading_level: 3" for name in names]
    return "\n\n".join([f"## {title}", "| | |\n|---|---|\n" + "\n".join(rows), *whole])


def entries(name: str) -> Iterator[tuple[str, Any]]:
    """A name and, of a class, its public methods and properties: how each is called, and the object."""
    found = resolve_name(name)
    if not inspect.isclass(found):
        yield f"{name}{_call(found)}", found
        return
    yield name, found
    for key, each in vars(found).items():
        method = each.__func__ if isinstance(each, classmethod | staticmethod) else each
        if not key.startswith("_") and (inspect.isfunction(method) or isinstance(method, property)):
            yield f"{found.__name__}.{key}{'' if isinstance(method, property) else _call(method)}", method


def _call(function: Callable[..., Any]) -> str:
    """Its parameters with their defaults, without types; a whole settings model as a default is left out."""
    given = [each for each in inspect.signature(function).parameters.values() if each.name not in ("self", "cls")]
    return f"({', '.join(_parameter_shown(each) for each in given)})"


def _parameter_shown(each: inspect.Parameter) -> str:
    if isinstance(each.default, BaseModel):
        return f"{each.name}=…"
    return str(each.replace(annotation=each.empty))


def first_sentence(found: Any) -> str:
    """Of a docstring of its own; a dataclass without one has its signature there, which says nothing."""
    told = (found.__doc__ or "").strip()
    if inspect.isclass(found) and told.startswith(f"{found.__name__}("):
        return ""
    return re.split(r"(?<=\.)\s", " ".join(told.split("\n\n")[0].split()), maxsplit=1)[0]


# --- REST ------------------------------------------------------------------------------------------------------------

EXAMPLE = "<!-- not code: an example of the schema, which tests/service/test_openapi.py checks -->"
BOUNDS = {"minimum": "≥ {}", "maximum": "≤ {}", "exclusiveMinimum": "> {}", "exclusiveMaximum": "< {}"}
SIZES = {"maxLength": "at most {} characters", "maxItems": "at most {}", "minItems": "at least {}"}


def rest() -> str:
    """Every route with its parameters and an example, then every shape with its fields."""
    document = api_document()
    intro = (
        "What `/v1/docs` of a running service shows and `/v1/openapi.json` says, in one page. "
        "[The service](../service.md) tells how to start one, and what keys, jobs and limits are. Send "
        "`Authorization: Bearer KEY`; the scope is what the key must have."
    )
    routes = [
        _route(method.upper(), path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    shapes = [_shape(name, each) for name, each in sorted(document["components"]["schemas"].items())]
    return "\n\n".join([f"# REST\n\n{NOTE}\n\n{intro}", *routes, _problems(), "## Shapes", *shapes]) + "\n"


def api_document() -> dict[str, Any]:
    """The document that a service gives. The routes are read, and nothing is asked of them: no model is needed."""
    return openapi.complete(routed(cast(Service, SimpleNamespace(vega=None))).openapi())


def _route(method: str, path: str, operation: dict[str, Any]) -> str:
    needs = "No key is needed." if operation["x-scope"] == "public" else f"Scope: `{operation['x-scope']}`."
    parts = [f"## {method} {path}", f"{operation['description'].strip()} {needs}"]
    if rows := [_given(each) for each in operation.get("parameters", [])]:
        parts.append("| parameter | in | type | default | |\n|---|---|---|---|---|\n" + "\n".join(rows))
    for kind, body in operation.get("requestBody", {}).get("content", {}).items():
        parts += [f"Question, `{kind}`, {_words(body['schema'])}:", _example(body["example"])]
    code, good = next((code, each) for code, each in operation["responses"].items() if code.startswith("2"))
    kinds = " or ".join(f"`{kind}`" for kind in good["content"])
    content = next(iter(good["content"].values()))
    return "\n\n".join([*parts, f"Answer {code}, {kinds}, {_words(content['schema'])}:", _example(content["example"])])


def _given(each: dict[str, Any]) -> str:
    default = f"`{json.dumps(each['schema']['default'])}`" if each["schema"].get("default") is not None else ""
    default = "(required)" if each.get("required") else default
    told = _cell(each.get("description", ""))
    return f"| `{each['name']}` | {each['in']} | {_words(each['schema'])} | {default} | {told} |"


def _example(value: Any) -> str:
    if isinstance(value, str):
        return f"```text\n{value.strip()}\n```"
    fields = ",\n".join(f"  {json.dumps(key)}: {json.dumps(each, ensure_ascii=False)}" for key, each in value.items())
    return f"{EXAMPLE}\n```json\n{{\n{fields}\n}}\n```"


def _problems() -> str:
    rows = [f"| {code} | {reason} |" for code, reason in openapi.REASONS.items()]
    told = "Every error is `application/problem+json`, a [Problem](#problem): title, detail, remedy and request_id."
    return "\n\n".join(["## When it cannot be answered", told, "| | |\n|---|---|\n" + "\n".join(rows)])


def _shape(name: str, shape: dict[str, Any]) -> str:
    needed = shape.get("required", [])
    rows = [
        f"| `{key}` | {_words(each)} | {'yes' if key in needed else ''} | {_cell(each.get('description', ''))} |"
        for key, each in shape.get("properties", {}).items()
    ]
    parts = [f"### {_short(name)}", shape.get("description", "").strip()]
    if rows:
        parts.append("| field | type | required | |\n|---|---|---|---|\n" + "\n".join(rows))
    return "\n\n".join(part for part in parts if part)


def _words(shape: dict[str, Any]) -> str:
    """A type in words, with links to shapes and with its bounds."""
    if "$ref" in shape:
        name = _short(shape["$ref"].rpartition("/")[2])
        return f"[{name}](#{name.lower()})"
    if several := shape.get("anyOf") or shape.get("oneOf"):
        return " or ".join(dict.fromkeys(_words(each) for each in several))
    if "const" in shape or "enum" in shape:
        return ", ".join(f"`{each}`" for each in shape.get("enum", [shape.get("const")]))
    kind = shape.get("format") or shape.get("type", "any")
    if kind == "array":
        kind = f"list of {_words(shape.get('items', {}))}"
    elif kind == "object" and isinstance(shape.get("additionalProperties"), dict):
        kind = f"table of {_words(shape['additionalProperties'])}"
    bounds = [text.format(shape[key]) for key, text in (BOUNDS | SIZES).items() if key in shape]
    return ", ".join([kind, *bounds])


def _short(name: str) -> str:
    """Two shapes of one name are told apart by their packages: merit__erasure__certificate__Finding."""
    return "-".join(part for part in name.split("__") if part != "merit")


PAGES = {"commands.md": commands, "settings.md": settings, "python.md": python, "rest.md": rest}

if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, page in PAGES.items():
        (FOLDER / name).write_text(page(), encoding="utf-8")
