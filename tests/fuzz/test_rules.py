"""Requests and the tables their rules name: whatever is in them, an answer or one message."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from merit.campaigns.audiences.eligibility import title_of, waterfall
from merit.campaigns.audiences.request import AudienceRequest, read
from merit.core import config
from merit.core.errors import ConfigError, DataError, MeritError
from tests.fuzz.words import PLAIN, TEXT, VALUES, cases, edited

RIGHT: dict[str, Any] = {
    "name": "Spring",
    "interests": ["trail running", {"text": "tents", "weight": 0.5}],
    "combine": "weighted",
    "as_of": "2027-03-01",
    "size": {"by": "count", "users": 500},
    "rules": [
        {"rule": "consent", "table": "customers.csv", "column": "newsletter"},
        {"rule": "recency", "table": "log.csv", "column": "time", "days": 30},
        {"rule": "attribute", "table": "customers.csv", "column": "country", "among": ["de"]},
    ],
    "holdout": {"share": 0.05, "salt": "nobody-2027"},
}
USERS = pl.Series("user_id", [f"u{number}" for number in range(8)])
rules = st.fixed_dictionaries(
    {"rule": st.sampled_from(["consent", "recency", "frequency", "bought", "listed", "attribute"])},
    optional={
        "table": st.just("table.csv"),
        "column": st.sampled_from(["a", "b", "user_id", "nowhere"]),
        "user": st.sampled_from(["user_id", "a"]),
        "days": st.integers(0, 4_000),
        "most": st.integers(0, 3),
        "among": st.lists(TEXT, max_size=2),
        "not_among": st.lists(TEXT, max_size=2),
        "at_least": st.floats(),
        "at_most": st.floats(),
        "unknown": st.sampled_from(["keep", "drop"]),
        "keep": st.booleans(),
        "interests": st.lists(TEXT, max_size=2),
        "time": st.sampled_from(["a", "b"]),
        "accept": st.lists(TEXT, max_size=2),
    },
)
cells = st.sampled_from(
    ["", "yes", "1", "2027-02-20", "2027-02-20T10:00:00Z", "99999-01-01", "inf", "x", "🙂", "u1", "u2"]
)


@cases(100)
@given(st.dictionaries(st.sampled_from(sorted(RIGHT)), VALUES, min_size=1, max_size=2))
def test_any_request_is_taken_or_refused(given: dict[str, Any]) -> None:
    try:
        asked = config.build(AudienceRequest, RIGHT | given)
    except ConfigError:
        return
    assert AudienceRequest.model_validate_json(asked.model_dump_json()) == asked


@cases(100)
@given(suffix=st.sampled_from([".toml", ".json", ".yaml"]), content=st.text(max_size=60) | edited(json.dumps(RIGHT)))
def test_any_document_is_taken_or_refused_by_its_name(
    suffix: str, content: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.getbasetemp() / f"request{suffix}"
    file.write_text(content, encoding="utf-8", errors="surrogatepass")
    try:
        read(file)
    except ConfigError as error:
        assert str(file) in str(error)


@cases(100)
@given(
    asked=st.lists(rules, min_size=1, max_size=3),
    table=st.lists(st.tuples(st.sampled_from([*USERS, "", "stranger"]), cells, cells), max_size=6),
)
def test_any_rules_over_any_table_keep_some_users_or_tell_why_not(
    asked: list[dict[str, Any]], table: list[tuple[str, str, str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = tmp_path_factory.getbasetemp() / "table.csv"
    pl.DataFrame(table, schema=["user_id", "a", "b"], orient="row").write_csv(place)
    named = [rule | ({"table": str(place)} if "table" in rule else {}) for rule in asked]
    try:
        request = config.build(AudienceRequest, RIGHT | {"rules": named})
        kept, steps = waterfall(request.rules, USERS, lambda texts: pl.Series([False] * 8).to_numpy(), request.as_of)
    except MeritError as error:
        assert isinstance(error, ConfigError | DataError)
        return
    assert len(kept) == len(USERS)
    assert all(title_of(rule) for rule in request.rules)
    left = [step.left for step in steps]
    assert left == sorted(left, reverse=True) and left[-1] == kept.sum()


@cases(100)
@given(day=PLAIN)
def test_any_day_is_a_day_or_refused(day: Any) -> None:
    try:
        assert isinstance(config.build(AudienceRequest, RIGHT | {"as_of": day, "rules": []}).as_of, date | None)
    except ConfigError as error:
        assert "as_of" in str(error)


def test_the_right_request_is_taken() -> None:
    assert len(config.build(AudienceRequest, RIGHT).rules) == 3
    assert not Path("customers.csv").exists()  # a table is looked at when it is needed
