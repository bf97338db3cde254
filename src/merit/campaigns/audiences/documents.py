"""A request as a file, in the format its author likes: TOML, JSON or YAML, each into plain values.

The three differ in what they let pass. Here none lets a key stand twice (the last would win in silence), and YAML may
not refer back to itself: a few lines of such references grow to gigabytes.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from merit.core.errors import ConfigError

LARGEST = 1 << 20  # bytes: lists of users belong into tables


def read(path: Path) -> dict[str, Any]:
    """The values of a document; its suffix tells the format."""
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise ConfigError(f"{path}: its suffix does not tell the format. Use one of {', '.join(READERS)}.")
    try:
        if path.stat().st_size > LARGEST:
            raise ConfigError(f"{path} is larger than a mebibyte. Put lists of users into a table and name that.")
        values = reader(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path} does not exist. docs/audiences.md shows a request to start from.") from None
    except (ValueError, yaml.YAMLError, RecursionError) as error:  # UnicodeDecodeError and TOML's and JSON's are Value
        told = " ".join(str(error).split())[:200]
        raise ConfigError(f"{path} is not valid {path.suffix[1:].upper()}: {told}.") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{path} holds {type(values).__name__}, but settings with names are needed.")
    return values


class _Strict(yaml.SafeLoader):  # type: ignore[misc]
    """YAML's plain values, without references and without keys that come twice."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise ValueError("references (&name, *name) are not allowed here; write the value out")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        pairs = [(self.construct_object(key, deep=True), value) for key, value in node.value]
        return _once([(key, self.construct_object(value, deep=True)) for key, value in pairs])


_Strict.add_constructor("tag:yaml.org,2002:map", lambda loader, node: loader.construct_mapping(node))


def _once(pairs: list[tuple[Any, Any]]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, value in pairs:
        if str(key) in values:
            raise ValueError(f"'{key}' is set twice; keep one of the two")
        values[str(key)] = value
    return values


READERS: dict[str, Callable[[str], Any]] = {
    ".toml": tomllib.loads,
    ".json": lambda text: json.loads(text, object_pairs_hook=_once),
    ".yaml": lambda text: yaml.load(text, _Strict),
    ".yml": lambda text: yaml.load(text, _Strict),
}
