"""What a contact adds, learnt from a past campaign with a random control."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from sklearn.linear_model import LogisticRegression

import merit
from merit.campaigns.audiences import build, uplift
from merit.campaigns.audiences.request import AudienceRequest
from merit.core import config
from merit.core.errors import DataError


def test_most_of_a_known_uplift_is_found() -> None:
    rng = np.random.default_rng(3)
    known = np.column_stack([np.ones(12_000), rng.normal(size=(12_000, 3))])
    without, effect = -1 + known[:, 1], 0.4 + 0.8 * known[:, 2] - 0.4 * known[:, 1]
    added = 1 / (1 + np.exp(-without - effect)) - 1 / (1 + np.exp(-without))
    treated = rng.random(12_000) < 0.5
    bought = rng.random(12_000) < 1 / (1 + np.exp(-without - effect * treated))
    learnt = uplift.effect(known[6_000:], uplift.fit(known[:6_000], treated[:6_000], bought[:6_000]))
    true = added[6_000:]
    best = np.sort(true)[-1_200:].sum()
    assert true[np.argsort(-learnt)[:1_200]].sum() > 0.9 * best
    assert true[np.argsort(-without[6_000:])[:1_200]].sum() < 0.6 * best  # who buys is another question


def test_two_models_agree_where_nothing_is_held() -> None:
    rng = np.random.default_rng(4)
    known = np.column_stack([np.ones(40_000), rng.normal(size=40_000)])
    treated, odds = rng.random(40_000) < 0.5, known[:, 1] - 0.5
    bought = rng.random(40_000) < 1 / (1 + np.exp(-odds - 0.6 * treated))
    one = uplift.effect(known, uplift.fit(known, treated, bought))
    parts = [LogisticRegression(C=1e6).fit(known[rows, 1:], bought[rows]) for rows in (treated, ~treated)]
    two = np.subtract(*(part.predict_proba(known[:, 1:])[:, 1] for part in parts))
    assert np.abs(one - two).max() < 5e-3


def test_without_a_control_it_says_that_it_cannot(quick: Path, tmp_path: Path) -> None:
    model = merit.load(quick)
    users = model.users["user_id"]
    table = pl.DataFrame({"user_id": users, "arm": "treatment", "outcome": 1})
    table.write_csv(tmp_path / "test.csv")
    label = model.labels.texts[int(np.bincount(model.windows.item_labels.values).argmax())]
    values = {"name": "t", "interests": [label], "within": {"days": 14}, "size": {"by": "count", "users": 110}}
    values["uplift"] = {"table": str(tmp_path / "test.csv"), "start": str(model.windows.end)}
    request = config.build(AudienceRequest, values, (), "the request")
    with pytest.raises(DataError, match=r"cannot be learnt.*random control"):
        build.choose(model, request)
    pl.concat([table, table.head(1)]).write_csv(tmp_path / "test.csv")
    with pytest.raises(DataError, match="comes more than once"):
        build.choose(model, request)
    long_ago = request.model_copy(update={"uplift": request.uplift.model_copy(update={"start": date(2001, 1, 1)})})  # type: ignore[union-attr]
    table.write_csv(tmp_path / "test.csv")
    with pytest.raises(DataError):
        build.choose(model, long_ago)


def test_an_audience_by_uplift(quick: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LEAST_USERS", "LEAST_BUYERS"):
        monkeypatch.setattr(uplift, name, 5)
    model, rng = merit.load(quick), np.random.default_rng(1)
    users = model.users["user_id"]
    arm = pl.Series(rng.choice(["treatment", "control"], len(users)))
    outcome = ((arm == "treatment").to_numpy() * 0.4 + 0.2 > rng.random(len(users))).astype(int)
    pl.DataFrame({"user_id": users, "arm": arm, "outcome": outcome}).write_csv(tmp_path / "test.csv")
    label = model.labels.texts[int(np.bincount(model.windows.item_labels.values).argmax())]
    values = {"name": "t", "interests": [label], "within": {"days": 14}, "size": {"by": "count", "users": 110}}
    values["uplift"] = {"table": str(tmp_path / "test.csv"), "start": str(model.windows.end)}
    made = build.choose(model, config.build(AudienceRequest, values, (), "the request"))
    diagnosis = made.figures.diagnosis
    assert made.figures.forecast is None and diagnosis and diagnosis.added and diagnosis.expected
    assert diagnosis.added == pytest.approx(made.members["score"].sum()) and diagnosis.added > 10
    assert "contact" in diagnosis.question and made.published.diagnosis
