"""Rules judged user by user in plain Python, and tables that should not be trusted."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from merit.campaigns.audiences.eligibility import Mask, Rule, keeps, waterfall
from merit.core.errors import DataError

AS_OF = date(2027, 3, 1)
USERS = pl.Series([f"u{number}" for number in range(12)])


def rule(**values: Any) -> Any:
    return TypeAdapter(Rule).validate_python(values)


def nobody_had(texts: Sequence[str]) -> Mask:
    return np.zeros(len(USERS), dtype=bool)


def kept(**values: Any) -> list[str]:
    return USERS.filter(pl.Series(keeps(rule(**values), USERS, nobody_had, AS_OF))).to_list()


WHEN = st.integers(-40, 10).map(lambda hours: datetime(2027, 3, 1) + timedelta(hours=6 * hours))
ROWS = st.lists(st.tuples(st.sampled_from([*USERS, "stranger"]), WHEN), min_size=1, max_size=40).filter(
    lambda rows: any(user != "stranger" for user, _ in rows)
)
MANY = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@MANY
@given(rows=ROWS, days=st.integers(1, 6), most=st.integers(1, 3), text=st.booleans())
def test_times_are_judged_as_a_person_would(
    rows: list[tuple[str, datetime]], days: int, most: int, text: bool, tmp_path: Path
) -> None:
    place = tmp_path / ("log.csv" if text else "log.parquet")
    frame = pl.DataFrame(rows, schema=["user_id", "at"], orient="row")
    frame.write_csv(place) if text else frame.write_parquet(place)
    end = datetime(2027, 3, 2)
    times = {user: [at for who, at in rows if who == user and end - timedelta(days) <= at < end] for user in USERS}
    asked = {"table": place, "days": days, "column": "at"}
    assert kept(rule="recency", **asked) == [user for user in USERS if times[user]]
    assert kept(rule="frequency", most=most, **asked) == [user for user in USERS if len(times[user]) < most]
    bought = {"rule": "bought", "table": place, "time": "at", "days": days}
    assert kept(**bought) == [user for user in USERS if not times[user]]


VALUES = st.dictionaries(st.sampled_from(USERS.to_list()), st.sampled_from(["DE", " de", "AT", "", None]), min_size=1)


@MANY
@given(values=VALUES, among=st.booleans(), unknown=st.sampled_from(["keep", "drop"]))
def test_attributes_are_judged_as_a_person_would(
    values: dict[str, str | None], among: bool, unknown: str, tmp_path: Path
) -> None:
    schema = {"user_id": pl.String, "country": pl.String}
    pl.DataFrame(list(values.items()), schema=schema, orient="row").write_parquet(tmp_path / "c.parquet")

    def passes(user: str) -> bool:
        value = (values.get(user) or "").strip().upper()
        return (value == "DE") is among if value else unknown == "keep"

    asked = {"among" if among else "not_among": ["DE"]}
    found = kept(rule="attribute", table=tmp_path / "c.parquet", column="country", unknown=unknown, **asked)
    assert found == [user for user in USERS if passes(user)]


@pytest.mark.parametrize("values", [[True, False, None], [1, 0, None], ["Yes", "no", ""], ["TRUE ", "maybe", None]])
def test_consent_is_yes_and_nothing_else(values: list[Any], tmp_path: Path) -> None:
    pl.DataFrame({"user_id": ["u0", "u1", "u2"], "ok": values}).write_parquet(tmp_path / "c.parquet")
    assert kept(rule="consent", table=tmp_path / "c.parquet", column="ok") == ["u0"]


def test_numbers_lists_and_orders(tmp_path: Path) -> None:
    pl.DataFrame({"user_id": ["u0", "u1", "u2"], "age": ["17", "18", None]}).write_csv(tmp_path / "c.csv")
    asked = {"table": tmp_path / "c.csv", "column": "age"}
    assert kept(rule="attribute", at_least=18, **asked) == ["u1"]
    assert kept(rule="attribute", at_most=17, unknown="keep", **asked) == [user for user in USERS if user != "u1"]
    assert kept(rule="listed", table=tmp_path / "c.csv", keep=True) == ["u0", "u1", "u2"]
    assert kept(rule="listed", table=tmp_path / "c.csv") == USERS[3:].to_list()
    orders = {"rule": "bought", "table": tmp_path / "c.csv", "column": "age", "among": ["18"]}
    assert kept(**orders) == [user for user in USERS if user != "u1"]


def test_ids_that_are_numbers_are_the_same_ids(tmp_path: Path) -> None:
    pl.DataFrame({"customer": [7, 8], "ok": [1, 1]}).write_parquet(tmp_path / "c.parquet")
    asked = rule(rule="consent", table=tmp_path / "c.parquet", user="customer", column="ok")
    assert keeps(asked, pl.Series(["7", "9"]), nobody_had, AS_OF).tolist() == [True, False]


def test_the_waterfall_adds_up(tmp_path: Path) -> None:
    pl.DataFrame({"user_id": USERS[:6]}).write_csv(tmp_path / "a.csv")
    pl.DataFrame({"user_id": USERS[4:9]}).write_csv(tmp_path / "b.csv")
    rules = [rule(rule="listed", table=tmp_path / name) for name in ("a.csv", "b.csv")]
    left, steps = waterfall(rules, USERS, nobody_had, None)
    assert USERS.filter(pl.Series(left)).to_list() == ["u9", "u10", "u11"]
    assert [(step.removed, step.left) for step in steps] == [(6, 6), (3, 3)]


TABLES = {
    "ok.csv": "user_id,when,age\nu0,2027-02-28,30\n",
    "twice.csv": "user_id,when,age\nu0,2027-02-28,30\nu0,2027-02-28,31\n",
    "empty.csv": 'user_id,when,age\n"",2027-02-28,30\n',
    "words.csv": "user_id,when,age\nu0,yesterday,old\n",
    "zeros.csv": "user_id,when,age\n000,2027-02-28,30\n",
    "none.csv": "user_id,when,age\n",
    "cut.parquet": "PAR1",
}
RECENT = {"rule": "recency", "column": "when", "days": 7}
OLD = {"rule": "attribute", "column": "age", "at_least": 18}
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "unknown column": (RECENT | {"table": "ok.csv", "column": "wen"}, "no column 'wen'.*Rename 'when'"),
    "unknown user column": (RECENT | {"table": "ok.csv", "user": "usr"}, "no column 'usr'"),
    "a time in words": (RECENT | {"table": "words.csv"}, "row 1.*'when' that cannot be read.*'yesterday'"),
    "a number in words": (OLD | {"table": "words.csv"}, "row 1.*'age' that cannot be read.*'old'"),
    "two ages": (OLD | {"table": "twice.csv"}, "more than once, 'u0' among them"),
    "nobody's row": (RECENT | {"table": "empty.csv"}, "row 1: an empty user id"),
    "other ids": ({"rule": "listed", "table": "zeros.csv"}, "none of its users is known.*'000'.*'u0'"),
    "no rows": ({"rule": "listed", "table": "none.csv"}, "none of its users is known"),
    "no table": ({"rule": "listed", "table": "nowhere.csv"}, "does not exist"),
    "no Parquet": ({"rule": "listed", "table": "cut.parquet"}, "cut.parquet is damaged"),
}


@pytest.mark.parametrize("name", BAD)
def test_tables_that_cannot_be_trusted_are_refused(name: str, tmp_path: Path) -> None:
    for file, text in TABLES.items():
        (tmp_path / file).write_text(text)
    values, told = BAD[name]
    with pytest.raises(DataError, match=told):
        kept(**values | {"table": tmp_path / values["table"]})
