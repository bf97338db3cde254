"""Whatever a settings file holds: it is taken, or refused in one message that names the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from merit.core import config
from merit.core.errors import ConfigError
from merit.core.settings import RunConfig
from tests.fuzz.words import PLAIN, VALUES, cases, edited

SOURCE = {"kind": "tables", "interactions": "log.csv", "items": "items.csv"}
DEMO = (Path(__file__).parents[2] / "configs" / "demo.toml").read_text(encoding="utf-8")


def places(model: type[BaseModel], before: str = "") -> list[str]:
    """Every setting there is, as `section.name`."""
    found = []
    for name, field in model.model_fields.items():
        inner = [each for each in (field.annotation, *get_args(field.annotation)) if isinstance(each, type)]
        below = [each for each in inner if issubclass(each, BaseModel)]
        found += [place for each in below for place in places(each, f"{before}{name}.")] or [f"{before}{name}"]
    return found


PLACES = places(RunConfig)


@cases(100)
@given(st.dictionaries(st.sampled_from(PLACES), VALUES, max_size=3))
def test_any_value_in_any_place_is_taken_or_refused(given: dict[str, Any]) -> None:
    values: dict[str, Any] = {"source": dict(SOURCE)}
    for place, value in given.items():
        *sections, name = place.split(".")
        inner = values
        for section in sections:
            inner = inner.setdefault(section, {})
            if not isinstance(inner, dict):
                return
        inner[name] = value
    try:
        found = config.build(RunConfig, values)
    except ConfigError as error:
        assert "do not fit" in str(error)
        return
    assert RunConfig.model_validate_json(found.model_dump_json()) == found
    assert config.digest(found) == config.digest(RunConfig.model_validate_json(found.model_dump_json()))


@cases(100)
@given(place=st.sampled_from(PLACES), value=PLAIN)
def test_any_override_of_any_place_is_taken_or_refused(place: str, value: Any) -> None:
    try:
        config.build(RunConfig, {"source": SOURCE}, [f"{place}={value}"])
    except ConfigError as error:
        assert place.split(".", maxsplit=1)[0] in str(error) or "KEY=VALUE" in str(error)


@cases(100)
@given(content=st.binary(max_size=60) | edited(DEMO).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_any_file_is_taken_or_refused_by_its_name(content: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.getbasetemp() / "settings.toml"
    file.write_bytes(content)
    try:
        config.load(RunConfig, file)
    except ConfigError as error:
        assert str(file) in str(error)
