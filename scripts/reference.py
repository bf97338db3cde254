"""Writes docs/reference/commands.md and settings.md from the code. `make reference`; a test compares them."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any, get_args, get_origin

import click
import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from merit.cli import app
from merit.stages.run import RunConfig

FOLDER = Path(__file__).parents[1] / "docs" / "reference"
NOTE = "<!-- Made by `make reference`. Edit the code instead. -->"


def commands() -> str:
    """Every command with its arguments and options."""
    root = typer.main.get_command(app)
    context = click.Context(root, info_name="merit")
    parts = [f"# Commands\n\n{NOTE}\n\nWhat `merit --help` tells, in one page."]
    return "\n\n".join([*parts, *_command(root, context)]) + "\n"


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


PAGES = {"commands.md": commands, "settings.md": settings}

if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, page in PAGES.items():
        (FOLDER / name).write_text(page(), encoding="utf-8")
