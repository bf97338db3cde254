"""Histories that are sent: answered as the model answers in Python, by either preset, and kept nowhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from starlette.testclient import TestClient

import merit
from merit.service import app, histories, keys
from merit.service.request_limits import Limits
from merit.service.service import opened

SECRET = "nobody-may-find-this-title"


@pytest.fixture(scope="module")
def quick_service(quick: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TestClient, Path]]:
    state = tmp_path_factory.mktemp("quick-state")
    _, secret = keys.create(state / keys.FILE, "test", ["read"])
    with opened(quick, state, limits=Limits(seconds=300)) as service:
        yield TestClient(app.make(service), headers={"Authorization": f"Bearer {secret}"}), state


def sent(run: Path, users: list[str]) -> list[dict[str, Any]]:
    """The events of these users as a shop would send them."""
    events = pl.read_parquet(run / "tables/interactions.parquet").filter(pl.col("user_id").is_in(users))
    at = pl.col("timestamp").dt.to_string("iso:strict")
    rows = events.select("user_id", "item_id", at=at)
    return [
        {"user_id": user, "events": rows.filter(pl.col("user_id") == user).drop("user_id").to_dicts()} for user in users
    ]


def test_stored_users_are_answered_as_stored(quick: Path, quick_service: tuple[TestClient, Path]) -> None:
    client, model = quick_service[0], merit.load(quick)
    users = model.users["user_id"][:3].to_list()
    answer = client.post("/v1/histories/interests", json={"histories": sent(quick, users), "k": 5}).json()
    for row, user in zip(answer["items"], users, strict=True):
        stored = model.interests(user, 5).drop("user_id").to_dicts()
        assert [one["interest"] for one in row["interests"]] == [one["interest"] for one in stored]
        assert [one["probability"] for one in row["interests"]] == pytest.approx([one["probability"] for one in stored])
        assert (row["user_id"], row["rests_on"]) == (user, "history")
    texts = [row["interest"] for row in stored[:2]]
    body = {"histories": sent(quick, users), "interests": texts}
    scores = client.post("/v1/histories/score", json=body).json()["items"]
    expected = model.score(users, texts)
    assert [(row["user_id"], row["interest"]) for row in scores] == expected.select("user_id", "interest").rows()
    assert [row["probability"] for row in scores] == pytest.approx(expected["probability"].to_list())


def test_nothing_is_answered_by_popularity_and_flagged(quick_service: tuple[TestClient, Path]) -> None:
    body = {"histories": [{"user_id": "a", "events": []}, {"user_id": "b", "events": [{"item_id": "?"}]}], "k": 3}
    rows = quick_service[0].post("/v1/histories/interests", json=body).json()["items"]
    assert [row["rests_on"] for row in rows] == ["popularity", "popularity"]
    assert rows[0]["interests"] == rows[1]["interests"] and len(rows[0]["interests"]) == 3


def test_nothing_that_was_sent_is_kept(quick: Path, quick_service: tuple[TestClient, Path]) -> None:
    client, state = quick_service
    body = {"histories": [{"user_id": SECRET, "events": [{"item_id": SECRET, "title": SECRET}]}]}
    assert client.post("/v1/histories/interests", json=body).status_code == 200
    assert client.get(f"/v1/users/{SECRET}/interests").status_code == 404
    for folder in (state, quick):
        assert not [file for file in folder.rglob("*") if file.is_file() and SECRET.encode() in file.read_bytes()]


@pytest.mark.parametrize(
    ("histories", "words"),
    [
        ([], "at least 1"),
        ([{"user_id": "a", "events": []}] * 2, "two histories have one user_id"),
        ([{"user_id": str(at), "events": []} for at in range(101)], "at most 100"),
        ([{"user_id": "a", "events": [{"item_id": "1"}] * 20_001}], "at most 20000"),
        ([{"user_id": str(at), "events": [{"item_id": "1"}] * 15_000} for at in range(2)], "20,000 events"),
        ([{"user_id": "a", "events": [{"title": str(at)} for at in range(502)]}], "500 different titles"),
        ([{"user_id": "a", "events": [{"item_id": "1", "at": "yesterday"}]}], "'yesterday' is not a time"),
        ([{"user_id": "a", "events": [{"item_id": "1", "at": "2190-01-01"}]}], "in the future"),
        ([{"user_id": "a", "events": [{"item": "1"}]}], "item"),
    ],
)
def test_what_does_not_fit_is_refused(
    quick_service: tuple[TestClient, Path], histories: list[dict[str, Any]], words: str
) -> None:
    answer = quick_service[0].post("/v1/histories/interests", json={"histories": histories})
    assert answer.status_code == 422 and words in answer.text, answer.text[:500]


def test_a_standard_model_answers_without_torch(made: Path, ask: Callable[..., TestClient]) -> None:
    model = merit.load(made)
    item = pl.read_parquet(made / "model/items.parquet")["item_id"][0]
    events, users = [["a", item, None, None]], ["a", "b"]
    body = {"histories": [{"user_id": "a", "events": [{"item_id": item}]}, {"user_id": "b", "events": []}]}
    rows = ask("read").post("/v1/histories/interests", json=body | {"k": 4}).json()["items"]
    assert rows == histories.interests_of(model, users, events, 4)
    scored = body | {"interests": model.labels.texts[:2]}
    rows = ask("read").post("/v1/histories/score", json=scored).json()["items"]
    assert rows == histories.scores_of(model, users, events, model.labels.texts[:2])
    assert {row["rests_on"] for row in rows} == {"history", "popularity"}
