"""What people should not send, and some will: an answer in the 4xx, one message, a remedy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from starlette.testclient import TestClient

from merit.service import app
from merit.service.auth import AuthMiddleware
from merit.service.middleware import RequestMiddleware
from merit.service.openapi import EXAMPLES
from merit.service.request_limits import Limits, RequestLimits, parse_json
from merit.service.routes import SCOPE_OF
from merit.service.service import Service

DESIGN = EXAMPLES["design"]["request"]
STATISTICS = EXAMPLES["analyze"]["request"]["statistics"]
JSON = {"Content-Type": "application/json"}
DEEP = "[" * 100_000
BODIES = {
    "not JSON": "{",
    "NaN": '{"text": NaN}',
    "an infinity": '{"text": -Infinity}',
    "beyond a float": '{"text": 1e999}',
    "beyond 64 bits": '{"text": 123456789012345678901234567890}',
    "a million digits": '{"text": ' + "9" * 1_000_000 + "}",
    "half a pair": '{"text": "\\ud800"}',
    "half a pair as a key": '{"\\udfff": "x"}',
    "nested without end": DEEP,
    "a key twice": '{"text": "a", "text": "b"}',
    "not UTF-8": b'{"text": "\xff"}',
    "UTF-16": '{"text": "a"}'.encode("utf-16"),
    "a list": "[]",
    "a number": "7",
    "null": "null",
    "nothing": "",
    "an unknown key": '{"text": "a", "admin": true}',
    "too long": json.dumps({"text": "x" * 201}),
    "empty": '{"text": ""}',
    "blanks": '{"text": "   "}',
    "another type": '{"text": ["a"]}',
}


@pytest.mark.parametrize("name", BODIES)
def test_bodies_that_do_not_fit_are_refused(name: str, ask: Any) -> None:
    body = BODIES[name]
    answer = ask("read").post("/v1/interest", content=body, headers=JSON)
    assert answer.status_code == 422, answer.text
    told = answer.json()
    assert answer.headers["content-type"] == "application/problem+json"
    assert told["title"] and told["detail"] and told["remedy"] and told["request_id"] == answer.headers["x-request-id"]


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""]
)
def test_other_kinds_of_bodies_are_refused(kind: str, ask: Any) -> None:
    answer = ask("read").post("/v1/interest", content='{"text": "a"}', headers={"Content-Type": kind})
    assert answer.status_code == 422


def test_what_passes_the_door_means_one_thing() -> None:
    values = parse_json('{"a": [1, -2, 0.5, "é😀", null, true], "b": 9223372036854775807}')
    assert values == {"a": [1, -2, 0.5, "é😀", None, True], "b": 2**63 - 1}


def test_ten_megabytes_and_one_byte(ask: Any) -> None:
    answer = ask("read").post("/v1/interest", content=b" " * (10 * 2**20 + 1), headers=JSON)
    assert answer.status_code == 413 and "10,485,760" in answer.json()["detail"]
    parts = (b" " * 2**20 for _ in range(11))  # no length is told
    assert ask("read").post("/v1/interest", content=parts, headers=JSON).status_code == 413


@pytest.mark.parametrize(
    "query", ["k=0", "k=-1", "k=1000000000", "k=1e9", "k=NaN", "k=" + "9" * 5_000, "k=x", "diverse_regions=perhaps"]
)
def test_numbers_in_queries_are_bounded(query: str, ask: Any, model: Any) -> None:
    assert ask("read").get(f"/v1/users/{model.users['user_id'][0]}/interests?{query}").status_code == 422


@pytest.mark.parametrize("user", ["nobody", "%ED%A0%80", "%00", "a%2Fb", "..%2f..", "%F0%9F%98%80", "'; drop table"])
def test_unknown_users_are_not_there(user: str, ask: Any) -> None:
    for what in ("interests", "verticals", "regions", "history"):
        assert ask("read").get(f"/v1/users/{user}/{what}").status_code == 404


def test_many_pairs_are_refused(ask: Any, model: Any) -> None:
    users, text = ["u"] * 200, model.labels.texts[0]
    told = ask("read").post("/v1/score", json={"users": users, "interests": [f"{text} {n}" for n in range(60)]})
    assert told.status_code == 422 and "10,000 pairs" in told.json()["detail"]
    pairs = [{"user_id": "u", "interest": f"{n}"} for n in range(101)]
    assert ask("read").post("/v1/score-pairs", json={"pairs": pairs}).status_code == 422
    pairs = [{"user_id": "u", "interest": "a"}] * 10_001
    assert ask("read").post("/v1/score-pairs", json={"pairs": pairs}).status_code == 422


@pytest.mark.parametrize("phrase", ["handguns", "a gun for beginners", "red wine"])
def test_blocked_interests_are_refused_on_every_way(phrase: str, ask: Any, model: Any) -> None:
    user = model.users["user_id"][0]
    size = {"by": "count", "users": 110}
    for path, body in {
        "/v1/interest": {"text": phrase},
        "/v1/score": {"users": [user], "interests": [phrase]},
        "/v1/score-pairs": {"pairs": [{"user_id": user, "interest": phrase}]},
        "/v1/explain": {"user_id": user, "interest": phrase},
        "/v1/audience/preview": {"name": "a", "interests": [phrase], "size": size},
        "/v1/audience/sample": {"name": "a", "interests": [phrase], "size": size},
    }.items():
        answer = ask().post(path, json=body)
        assert answer.status_code == 403 and "policy" in answer.json()["detail"], path


# --- tables on the server --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "table",
    [
        "../secret.csv",
        "/etc/passwd",
        "link.csv",
        "a/../../secret.csv",
        "~/x.csv",
        ".hidden.csv",
        "a\u0000.csv",
        "",
        "missing.csv",
    ],
)
def test_a_table_leads_into_its_folder_or_nowhere(table: str, ask: Any, wanted: dict[str, Any], tables: Path) -> None:
    for part in (
        {"rules": [{"rule": "consent", "table": table, "column": "newsletter"}]},
        {"interests": [], "lookalike": {"table": table, "about": "buyers of our tents"}},
    ):
        answer = ask("audience").post("/v1/audience/preview", json=wanted | part)
        assert answer.status_code == 422, answer.text
        assert str(tables.parent) not in answer.text and "root:" not in answer.text
    answer = ask("audience").post("/v1/experiments/analyze-named", json={"design": DESIGN, "table": table})
    assert answer.status_code == 422 and str(tables.parent) not in answer.text and "root:" not in answer.text


def test_messages_about_tables_tell_neither_paths_nor_people(
    ask: Any, wanted: dict[str, Any], tables: Path, model: Any
) -> None:
    (tables / "strangers.csv").write_text("user_id,newsletter\nstranger,yes\n")
    twice = model.users["user_id"][0]
    (tables / "twice.csv").write_text(f"user_id,newsletter\n{twice},yes\n{twice},no\n")
    for table in ("strangers.csv", "twice.csv"):
        rule = {"rule": "consent", "table": table, "column": "newsletter"}
        answer = ask("audience").post("/v1/audience/preview", json=wanted | {"rules": [rule]})
        assert answer.status_code == 422 and table in answer.text
        assert str(tables) not in answer.text
        assert not any(user in answer.text for user in model.users["user_id"])
        (tables / table).unlink()  # other tests look into the same folder
    rule = {"rule": "listed", "table": "customers.csv", "keep": True}
    told = ask("audience").post("/v1/audience/preview", json=wanted | {"rules": [rule]}).json()
    assert "customers.csv" in json.dumps(told["waterfall"]) and str(tables) not in json.dumps(told)


def test_audiences_of_few_and_of_too_many_rules_are_refused(ask: Any, wanted: dict[str, Any]) -> None:
    few = ask("audience").post("/v1/audience/preview", json=wanted | {"size": {"by": "count", "users": 99}})
    assert few.status_code == 403 and "Fewer than 100" in few.json()["detail"]
    rule = {"rule": "listed", "table": "customers.csv"}
    assert ask("audience").post("/v1/audience/preview", json=wanted | {"rules": [rule] * 21}).status_code == 422


# --- experiments -----------------------------------------------------------------------------------------------------

CELLS = {
    "no users in an arm": [{"arm": "merit", "users": 100, "mean": [0.5]}],
    "nobody converts": [{"arm": arm, "users": 100, "mean": [0.0]} for arm in ("merit", "expert")],
    "another arm": [{"arm": "x", "users": 100, "mean": [0.5]}],
    "huge users": [{"arm": arm, "users": 2**62, "mean": [0.5]} for arm in ("merit", "expert")],
    "a huge covariance": [
        {"arm": arm, "users": 10, "mean": [0.5], "covariance": [[1e308]]} for arm in ("merit", "expert")
    ],
    "no cells": [],
}


@pytest.mark.parametrize("name", CELLS)
def test_impossible_statistics_are_never_an_error_of_ours(name: str, ask: Any) -> None:
    body = {"design": DESIGN, "statistics": STATISTICS | {"cells": CELLS[name]}}
    answer = ask("read").post("/v1/experiments/analyze", json=body)
    assert answer.status_code in (200, 422) and "/tmp" not in answer.text


def test_a_window_without_end_is_refused(ask: Any) -> None:
    body = {"design": DESIGN | {"days": 10**15}, "statistics": STATISTICS}
    assert ask("read").post("/v1/experiments/analyze", json=body).status_code == 422


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", b""),
        ("a.csv", b"user_id,arm\n1,merit\n"),
        ("a.csv", b"\xff\xfe\x00"),
        ("a.csv.gz", b"\x1f\x8b"),
        ("a.parquet", b"PAR1PAR1"),
        ("a.exe", b"MZ"),
        ("../../etc/passwd", b"x"),
        ("a.jsonl", b"{}"),
    ],
)
def test_tables_that_are_none_are_refused(name: str, content: bytes, ask: Any) -> None:
    sent = ask("read").post(
        "/v1/experiments/analyze-table", data={"design": json.dumps(DESIGN)}, files={"table": (name, content)}
    )
    assert sent.status_code == 422 and "/tmp" not in sent.text, sent.text


@pytest.mark.parametrize("design", ["", "{", "[]", '{"name": NaN}', '{"name": "\\ud800"}', '{"nme": "a"}'])
def test_designs_that_are_none_are_refused(design: str, ask: Any) -> None:
    table = ("a.csv", b"user_id,arm,bought\n1,merit,0\n")
    sent = ask("read").post("/v1/experiments/analyze-table", data={"design": design}, files={"table": table})
    assert sent.status_code == 422


def test_a_small_file_that_unfolds_to_much_is_refused(ask: Any, tmp_path: Path) -> None:
    frame = pl.DataFrame({"bought": pl.Series([0], dtype=pl.UInt8).new_from_index(0, 1_000_001)})
    frame.write_parquet(tmp_path / "t.parquet")
    table = ("t.parquet", (tmp_path / "t.parquet").read_bytes())
    sent = ask("read").post(
        "/v1/experiments/analyze-table", data={"design": json.dumps(DESIGN)}, files={"table": table}
    )
    assert sent.status_code == 422 and "1,000,000 rows" in sent.json()["detail"]


# --- time ------------------------------------------------------------------------------------------------------------


def test_an_answer_that_takes_too_long_is_given_up(
    service: Service, secret: Any, model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import time

    api = app.routed(service)
    limited = RequestLimits(api, Limits(seconds=0.2))
    auth = AuthMiddleware(limited, api, SCOPE_OF, service.keys, service.limiter)
    client = TestClient(RequestMiddleware(auth, service.metrics), headers={"Authorization": f"Bearer {secret('read')}"})
    slow = lambda *_: time.sleep(1)  # noqa: E731
    monkeypatch.setattr(service.store.current.model, "verticals", slow)
    began = time.monotonic()
    answer = client.get(f"/v1/users/{model.users['user_id'][0]}/verticals")
    assert answer.status_code == 503 and answer.headers["retry-after"] and time.monotonic() - began < 0.9
