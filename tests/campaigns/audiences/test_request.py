"""Requests in three formats, and every way to get one wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from merit.campaigns.audiences.request import AudienceRequest, read
from merit.core.config import build
from merit.core.errors import ConfigError

TOML = """
name = "Spring"
interests = ["trail running", { text = "tents", weight = 0.5 }]
combine = "weighted"
as_of = 2027-03-01
size = { by = "count", users = 500 }
[[rules]]
rule = "consent"
table = "customers.csv"
column = "newsletter"
"""
YAML = """
name: Spring
interests: [trail running, {text: tents, weight: 0.5}]
combine: weighted
as_of: 2027-03-01
size: {by: count, users: 500}
rules:
  - {rule: consent, table: customers.csv, column: newsletter}
"""
COUNT = {"by": "count", "users": 500}


def written(folder: Path, name: str, text: str) -> Path:
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


def test_three_formats_say_the_same(tmp_path: Path) -> None:
    toml = read(written(tmp_path, "a.toml", TOML))
    assert read(written(tmp_path, "a.yaml", YAML)) == toml
    assert read(written(tmp_path, "a.json", toml.model_dump_json())) == toml
    assert toml.interests[0].weight == 1 and toml.interests[1].weight == 0.5


def test_words_of_the_command_line_fill_and_change_a_request(tmp_path: Path) -> None:
    asked = read(None, ["size.by=percentile", "size.percent=5"], ["tents", "stoves"])
    assert asked.name == "tents + stoves" and asked.size.by == "percentile"
    again = read(written(tmp_path, "a.toml", TOML), ["combine=any"], ["stoves"])
    assert [each.text for each in again.interests] == ["stoves"] and len(again.rules) == 1


BAD_FILES = {
    "twice.yaml": ("name: a\nname: b\n", "set twice"),
    "twice.json": ('{"name": "a", "name": "b"}', "set twice"),
    "twice.toml": ('name = "a"\nname = "b"\n', "not valid TOML"),
    "bomb.yaml": ("a: &x [1, 2]\nb: [*x, *x]\n", "references"),
    "object.yaml": ("a: !!python/object/apply:os.system ['true']\n", "not valid YAML"),
    "list.yaml": ("- a\n- b\n", "with names"),
    "deep.json": ("[" * 100_000, "not valid JSON"),
    "bytes.json": ("\udcff", "not valid JSON"),
    "word.txt": ("name", "suffix"),
    "long.json": ('{"name": "' + "x" * (1 << 20) + '"}', "mebibyte"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_bad_files_are_named_with_a_reason(name: str, tmp_path: Path) -> None:
    text, told = BAD_FILES[name]
    (tmp_path / name).write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(ConfigError, match=told) as found:
        read(tmp_path / name)
    assert name in str(found.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nothing\.toml does not exist"):
        read(tmp_path / "nothing.toml")


LOOKALIKE = {"table": "seeds.csv", "about": "buyers of our tents"}
BAD_REQUESTS: dict[str, tuple[dict[str, Any], str]] = {
    "unknown field": ({"intrests": ["a"]}, "did you mean 'interests'"),
    "unknown field of a rule": ({"rules": [{"rule": "consent", "table": "a", "colum": "b"}]}, "column"),
    "unknown rule": ({"rules": [{"rule": "consents", "table": "a"}]}, "consents"),
    "nothing asked": ({"interests": []}, "one of the two"),
    "two things asked": ({"lookalike": LOOKALIKE}, "one of the two"),
    "an interest twice": ({"interests": ["Tents", "tents "]}, "named twice"),
    "weights without use": ({"interests": [{"text": "a", "weight": 2}]}, "weighted"),
    "weight zero": ({"interests": [{"text": "a", "weight": 0}], "combine": "weighted"}, "greater than or equal"),
    "a number as interest": ({"interests": [7]}, "valid dictionary"),
    "no size": ({"size": None}, "size"),
    "size of nobody": ({"size": {"by": "count", "users": 0}}, "greater than or equal"),
    "more than everybody": ({"size": {"by": "percentile", "percent": 101}}, "less than or equal"),
    "certainty": ({"size": {"by": "probability", "at_least": 1}}, "less than 1"),
    "budget without cost": ({"size": {"by": "budget", "budget": 10}}, "cost_per_contact"),
    "value without value": ({"size": {"by": "value"}, "economics": {"cost_per_contact": 1}}, "value_per_conversion"),
    "an endless budget": ({"size": {"by": "budget", "budget": float("inf")}}, "finite"),
    "a cost beyond all money": ({"economics": {"cost_per_contact": 1.7e308}}, "less than or equal"),
    "days without a day": (
        {"rules": [{"rule": "recency", "table": "a", "column": "b", "days": 7}]},
        "as_of",
    ),
    "one salt": (
        {"holdout": {"share": 0.1, "salt": "12345678"}, "control": {"share": 0.1, "salt": "12345678"}},
        "one salt",
    ),
    "everybody held out": ({"holdout": {"share": 1, "salt": "12345678"}}, "less than 1"),
    "a rule that asks nothing": ({"rules": [{"rule": "attribute", "table": "a", "column": "b"}]}, "does not restrict"),
    "nobody between": (
        {"rules": [{"rule": "attribute", "table": "a", "column": "b", "at_least": 5, "at_most": 4}]},
        "nobody is left",
    ),
    "Norway": ({"rules": [{"rule": "attribute", "table": "a", "column": "b", "among": [False]}]}, "valid string"),
    "bought what": ({"rules": [{"rule": "bought"}]}, "one of the two"),
    "bought when": ({"rules": [{"rule": "bought", "table": "a", "time": "b"}]}, "time with days"),
}


@pytest.mark.parametrize("name", BAD_REQUESTS)
def test_bad_requests_are_told(name: str) -> None:
    changes, told = BAD_REQUESTS[name]
    with pytest.raises(ConfigError, match=told):
        build(AudienceRequest, {"name": "a", "interests": ["a"], "size": COUNT} | changes)


def test_a_request_without_a_size_is_told_the_ways_to_give_one() -> None:
    with pytest.raises(ConfigError) as told:
        read(None, interests=["trail running"])
    ways = [line.strip() for line in str(told.value).splitlines() if "--set size.by=" in line]
    assert "--set size.by=percentile --set size.percent=…" in ways and len(ways) == 5


def test_a_lookalike_has_no_probability_to_be_sized_by() -> None:
    values = {"name": "a", "lookalike": LOOKALIKE, "size": {"by": "probability", "at_least": 0.1}}
    with pytest.raises(ConfigError, match="has no probabilities"):
        build(AudienceRequest, values)


def test_a_request_survives_its_own_json() -> None:
    asked = build(AudienceRequest, {"name": "a", "lookalike": LOOKALIKE, "size": COUNT})
    assert build(AudienceRequest, json.loads(asked.model_dump_json())) == asked
