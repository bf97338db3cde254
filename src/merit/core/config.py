"""One file of settings, frozen models, and errors that know what you meant.

A stage declares its own `Frozen` model above the function that reads it; this file only loads, overrides and explains.
"""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from merit.core.errors import ConfigError


class Frozen(BaseModel):
    """A settings model: immutable, and an unknown key is an error rather than a silent nothing."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


Model = TypeVar("Model", bound=Frozen)

# Former names of settings, and of values as --set takes them. Only messages read it: no old name is accepted.
RENAMED = {
    "states.words": "corpus.title_words",
    "states.purchases": "corpus.purchases_per_user",
    "states.enough": "corpus.min_purchases",
    "rankings": "ranking",
    "propensity.model.own": "propensity.model.factors",
    "engine.runner=here": "engine.runner=inline",
}


def load(model: type[Model], path: Path, overrides: Sequence[str] = ()) -> Model:
    """Read `path` (TOML, JSON or YAML) into `model`, after applying overrides such as `prepare.target=order`."""
    return build(model, read(path), overrides, origin=str(path))


def read(path: Path, remedy: str = "Start from a file in configs/, or name another.") -> dict[str, Any]:
    """The settings in a file, as plain values; `remedy` is for a file that is not there.

    A key that stands twice is refused: the last would win in silence. So are references in YAML, which can make
    gigabytes of a few lines.
    """
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise ConfigError(f"{path}: its suffix does not tell the format. Use one of {', '.join(READERS)}.")
    try:
        values = reader(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path} does not exist. {remedy}") from None
    except (ValueError, yaml.YAMLError, RecursionError) as error:  # UnicodeDecodeError and TOML's and JSON's are Value
        reason = " ".join(str(error).split())[:200]
        raise ConfigError(f"{path} is not valid {path.suffix[1:].upper()}: {reason}.") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{path} holds {type(values).__name__}, but settings with names are needed.")
    return values


def build(model: type[Model], values: dict[str, Any], overrides: Sequence[str] = (), origin: str = "settings") -> Model:
    """Make the model from plain values; all mistakes are reported at once."""
    try:
        return model.model_validate(overridden(values, overrides))
    except ValidationError as error:
        mistakes = "\n".join(f"  {_renamed(item) or _explain(model, dict(item))}" for item in _causes(error.errors()))
        raise ConfigError(f"{origin} has settings that do not fit:\n{mistakes}") from None


def overridden(values: dict[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """A copy of plain values after overrides such as `prepare.target=order`."""
    merged: dict[str, Any] = json.loads(json.dumps(values, default=str))
    for override in overrides:
        _override(merged, override)
    return merged


def digest(config: BaseModel) -> str:
    """A short hash of the settings' values, the same for equal settings however they were written."""
    return sha256(config.model_dump_json().encode()).hexdigest()[:16]


def json_schema(model: type[BaseModel]) -> dict[str, Any]:
    """The JSON Schema of a configuration, for editors and other programs."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **model.model_json_schema()}


def _override(values: dict[str, Any], text: str) -> None:
    """Apply one `a.b=c` in place. The value is read as TOML where it is TOML, and as text otherwise."""
    name, equals, raw = text.partition("=")
    keys = name.strip().split(".")
    if not equals or not all(keys):
        raise ConfigError(f"'{text}' is not an override. Write it as --set section.key=value.")
    try:
        value = tomllib.loads(f"value = {raw}")["value"]
    except tomllib.TOMLDecodeError:
        value = raw
    place = values
    for key in keys[:-1]:
        place = place.setdefault(key, {})
        if not isinstance(place, dict):
            raise ConfigError(f"'{text}': '{key}' is a value, not a section.")
    place[keys[-1]] = json.loads(json.dumps(value, default=str))


def _causes(errors: Sequence[Any]) -> list[Any]:
    """Without complaints about a whole whose part is wrong: they only say that the part is missing now."""
    places = [error["loc"] for error in errors]
    return [
        error
        for error in errors
        if not any(len(place) > len(error["loc"]) and place[: len(error["loc"])] == error["loc"] for place in places)
    ]


def _renamed(error: Any) -> str | None:
    name = ".".join(str(part) for part in error["loc"])
    old = next((old for old in (name, f"{name}={error['input']}") if old in RENAMED), None)
    return f"There is no setting {old}. It is called {RENAMED[old]} now." if old else None


def _explain(model: type[BaseModel], error: dict[str, Any]) -> str:
    where = [str(part) for part in error["loc"]]
    if error["type"] == "extra_forbidden":
        keys = [name for option in _models_at(model, where[:-1]) for name in option.model_fields]
        near = difflib.get_close_matches(where[-1], keys, n=1, cutoff=0.5)
        hint = f"did you mean '{near[0]}'?" if near else f"known here: {', '.join(sorted(keys))}."
        return f"{'.'.join(where)}: unknown setting; {hint}"
    if error["type"] == "missing":
        return f"{'.'.join(where)}: this setting is needed and has no default.{_ways(model, where)}"
    if error["type"] == "union_tag_not_found":
        return f"{'.'.join(where)}: say which kind by {error['ctx']['discriminator']}.{_ways(model, where)}"
    if error["type"] == "union_tag_invalid":
        kind, tags = error["ctx"]["discriminator"], error["ctx"]["expected_tags"]
        return f"{'.'.join(where)}: there is no '{error['ctx']['tag']}'; {kind} is one of {tags}."
    if error["type"] == "value_error":  # our own words, which name what is wrong
        return f"{'.'.join(where)}: {error['ctx']['error']}."
    return f"{'.'.join(where)}: {error['msg']} (got {error['input']!r})."


def _ways(model: type[BaseModel], path: list[str]) -> str:
    """Of a setting with several kinds: what each of them needs, as it can be typed."""
    fields = [field for option in _models_at(model, path[:-1]) if (field := option.model_fields.get(path[-1]))]
    ways = [
        _way(".".join(path), str(field.discriminator), kind)
        for field in fields
        if field.discriminator
        for kind in _models_in(field.annotation)
    ]
    return " Say it in one of these ways:" + "".join(f"\n    {way}" for way in ways) if ways else ""


def _way(place: str, discriminator: str, kind: type[BaseModel]) -> str:
    tag = get_args(kind.model_fields[discriminator].annotation)[0]
    needed = [name for name, field in kind.model_fields.items() if field.is_required() and name != discriminator]
    return " ".join([f"--set {place}.{discriminator}={tag}", *(f"--set {place}.{name}=…" for name in needed)])


def _models_at(model: type[BaseModel], path: list[str]) -> list[type[BaseModel]]:
    """The models at a dotted path. Steps into a union (a tagged choice) are not fields: skip them."""
    models: list[type[BaseModel]] = [model]
    for step in path:
        inner = [field.annotation for option in models if (field := option.model_fields.get(step))]
        if inner:
            models = [option for annotation in inner for option in _models_in(annotation)]
    return models


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [option for part in getattr(annotation, "__args__", ()) for option in _models_in(part)]


class _Strict(yaml.SafeLoader):  # type: ignore[misc]
    """YAML's plain values, without references and without keys that come twice."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise ValueError("references (&name, *name) are not allowed here; write the value out")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        pairs = [(self.construct_object(key, deep=True), value) for key, value in node.value]
        return _unique([(key, self.construct_object(value, deep=True)) for key, value in pairs])


_Strict.add_constructor("tag:yaml.org,2002:map", lambda loader, node: loader.construct_mapping(node))


def _unique(pairs: list[tuple[Any, Any]]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, value in pairs:
        if str(key) in values:
            raise ValueError(f"'{key}' is set twice; keep one of the two")
        values[str(key)] = value
    return values


READERS: dict[str, Callable[[str], Any]] = {
    ".toml": tomllib.loads,
    ".json": lambda text: json.loads(text, object_pairs_hook=_unique),
    ".yaml": lambda text: yaml.load(text, _Strict),
    ".yml": lambda text: yaml.load(text, _Strict),
}
