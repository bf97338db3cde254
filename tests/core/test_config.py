from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, ValidationError

from merit.core import config
from merit.core.config import Frozen
from merit.core.errors import ConfigError


class Cat(Frozen):
    kind: Literal["cat"]
    whiskers: int = 12


class Dog(Frozen):
    kind: Literal["dog"]
    tail_length: float = 30.0


class Home(Frozen):
    rooms: int = 3
    colour: str = "white"


class Settings(Frozen):
    seed: int = 7
    home: Home = Home()
    pet: Annotated[Cat | Dog, Field(discriminator="kind")] = Cat(kind="cat")


def write(folder: Path, text: str) -> Path:
    path = folder / "settings.toml"
    path.write_text(text)
    return path


def test_reads_a_file_and_fills_in_defaults(tmp_path: Path) -> None:
    found = config.load(Settings, write(tmp_path, "seed = 3\n[home]\nrooms = 5\n"))
    assert (found.seed, found.home.rooms, found.home.colour) == (3, 5, "white")


def test_unknown_key_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"home\.romos: unknown setting; did you mean 'rooms'\?"):
        config.load(Settings, write(tmp_path, "[home]\nromos = 5\n"))


def test_unknown_key_inside_a_choice_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"did you mean 'tail_length'\?"):
        config.load(Settings, write(tmp_path, '[pet]\nkind = "dog"\ntail_lenght = 5\n'))


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        config.load(Settings, write(tmp_path, 'sede = 1\n[home]\nrooms = "many"\n'))
    assert "did you mean 'seed'?" in str(error.value)
    assert "home.rooms" in str(error.value)
    assert "'many'" in str(error.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("home.rooms=9", {"rooms": 9, "colour": "white"}),
        ("home.colour=dark red", {"rooms": 3, "colour": "dark red"}),
        ('home.colour="7"', {"rooms": 3, "colour": "7"}),
    ],
)
def test_overrides(tmp_path: Path, text: str, expected: dict[str, object]) -> None:
    assert config.load(Settings, write(tmp_path, ""), [text]).home.model_dump() == expected


@pytest.mark.parametrize("text", ["rooms", "=3", "home.=3", "seed.deeper=3"])
def test_a_bad_override_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError):
        config.load(Settings, write(tmp_path, "seed = 1"), [text])


@pytest.mark.parametrize("content", [b"seed = ", b"\xff\xfe", b"seed = 1\nseed = 2"])
def test_a_broken_file_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "settings.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"settings\.toml is not valid TOML"):
        config.load(Settings, path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        config.load(Settings, tmp_path / "none.toml")


class Homes(Frozen):
    homes: tuple[Home, ...] = Field(min_length=1)


def test_a_wrong_part_is_told_once_and_not_again_as_a_missing_one() -> None:
    with pytest.raises(ConfigError) as told:
        config.build(Homes, {"homes": [{"rooms": "many"}]})
    assert "homes.0.rooms" in str(told.value) and "at least 1 item" not in str(told.value)


class Owner(Frozen):
    pet: Annotated[Cat | Dog, Field(discriminator="kind")]


class Kennel(Frozen):
    kind: Literal["kennel"]
    places: int


class Owners(Frozen):
    first: Owner = Owner(pet=Cat(kind="cat"))
    where: Annotated[Dog | Kennel, Field(discriminator="kind")]


def test_a_choice_that_is_missing_is_told_with_every_way_to_make_it() -> None:
    ways = ["--set where.kind=dog", "--set where.kind=kennel --set where.places=…"]
    for values in ({}, {"where": {}}):
        with pytest.raises(ConfigError) as told:
            config.build(Owners, values)
        assert [line.strip() for line in str(told.value).splitlines()[2:]] == ways
        assert "where: " in str(told.value).splitlines()[1]
    with pytest.raises(ConfigError, match=r"--set first\.pet\.kind=cat\n"):
        config.build(Owners, {"first": {}, "where": {"kind": "dog"}})
    for way in ways:
        assert config.build(Owners, {}, [word.replace("…", "3") for word in way.split() if word != "--set"])


def test_settings_are_frozen() -> None:
    with pytest.raises(ValidationError):
        Settings().seed = 8  # type: ignore[misc]


def test_schema_knows_every_section() -> None:
    schema = config.json_schema(Settings)
    assert set(schema["properties"]) == {"seed", "home", "pet"}
    assert schema["additionalProperties"] is False


@given(st.text(max_size=30))
def test_any_override_is_taken_or_refused_but_never_crashes(text: str) -> None:
    try:
        config.build(Settings, {}, [text])
    except ConfigError as error:
        assert str(error)
