"""The service says what the Python API says, to the last bit."""

from __future__ import annotations

import json
import math
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from merit.campaigns.audiences import build as stage
from merit.campaigns.audiences import request as requests
from merit.campaigns.audiences.export import export
from merit.campaigns.audiences.forecast import EDGES
from merit.campaigns.audiences.report import public_summary
from merit.campaigns.audiences.request import AudienceRequest
from merit.core import config
from merit.privacy import audit
from merit.service.openapi import EXAMPLES
from merit.service.store import Served

DESIGN = EXAMPLES["design"]["request"]
STATISTICS = EXAMPLES["analyze"]["request"]["statistics"]


def test_interests_come_in_pages_that_make_up_the_list(ask: Any, model: Any) -> None:
    user = model.users["user_id"][0]
    whole = model.interests(user, k=20)
    items, cursor = [], None
    while len(items) < 20:
        page = ask("read").get(f"/v1/users/{user}/interests", params={"k": 7, **({"cursor": cursor} if cursor else {})})
        assert page.status_code == 200
        items += page.json()["items"]
        cursor = page.json()["next"]
    assert [row["interest"] for row in items[:20]] == whole["interest"].to_list()
    assert [row["probability"] for row in items[:20]] == whole["probability"].to_list()
    assert [row["rank"] for row in items[:20]] == list(range(1, 21))


def test_the_last_page_has_no_next(ask: Any, model: Any) -> None:
    user, live = model.users["user_id"][0], int(model.labels.live_mask().sum())
    page = ask("read").get(f"/v1/users/{user}/interests", params={"k": live + 5}).json()
    assert len(page["items"]) == live and page["next"] is None


def test_a_diverse_list_is_the_models_and_has_one_page(ask: Any, model: Any) -> None:
    user = model.users["user_id"][3]
    told = ask("read").get(f"/v1/users/{user}/interests", params={"k": 5, "diverse_regions": True}).json()
    assert [row["interest"] for row in told["items"]] == model.interests(user, 5, diverse_regions=True)[
        "interest"
    ].to_list()
    assert told["next"] is None


def test_a_cursor_is_good_for_its_own_list_only(ask: Any, model: Any) -> None:
    first, second = model.users["user_id"][:2]
    cursor = ask("read").get(f"/v1/users/{first}/interests").json()["next"]
    for other in (cursor, "nonsense", "W10", "WzEsMl0"):
        answer = ask("read").get(f"/v1/users/{second}/interests", params={"cursor": other})
        assert answer.status_code == 422 and "Begin again" in answer.json()["remedy"]


def test_scores_verticals_and_meanings(ask: Any, model: Any) -> None:
    users, texts = model.users["user_id"][:3].to_list(), model.labels.texts[:2]
    told = ask("read").post("/v1/score", json={"users": users, "interests": texts}).json()["items"]
    assert pl.DataFrame(told).equals(model.score(users, texts))
    pairs = [{"user_id": user, "interest": texts[0]} for user in users]
    told = ask("read").post("/v1/score-pairs", json={"pairs": pairs}).json()["items"]
    assert pl.DataFrame(told).equals(model.score_pairs(users, [texts[0]] * 3))
    told = ask("read").get(f"/v1/users/{users[0]}/verticals").json()["items"]
    assert pl.DataFrame(told).equals(model.verticals(users[0]).drop("user_id"))
    near = ask("read").post("/v1/interest", json={"text": texts[0] + " sets"}).json()
    assert near["nearest"] == texts[0] and near["label"] is None and near["warning"] is None
    far = ask("read").post("/v1/interest", json={"text": "qqq zzz www"}).json()
    assert far["far"] and "guess" in far["warning"]


def test_a_history_is_what_the_model_read_with_the_times_of_the_shop(ask: Any, model: Any, made: Any) -> None:
    user = model.users["user_id"][4]
    rows, cursor = [], None
    while True:
        params = {"limit": 7} | ({"cursor": cursor} if cursor else {})
        page = ask("read").get(f"/v1/users/{user}/history", params=params)
        rows += page.json()["items"]
        if (cursor := page.json()["next"]) is None:
            break
    items = pl.read_parquet(model.artifact.file("items.parquet"))
    read = items[model.users["items"][4].reverse()]
    assert [row["item_id"] for row in rows] == read["item_id"].to_list()
    assert page.json()["total"] == len(rows)
    shop = pl.read_parquet(made.parent / "shop/interactions.parquet").filter(pl.col("user_id") == user)
    when = shop.sort("timestamp", descending=True).select("item_id", pl.col("timestamp").dt.epoch("ms"))
    told = [(row["item_id"], round(1000 * datetime.fromisoformat(row["at"]).timestamp())) for row in rows]
    assert set(told) <= set(when.rows()) and [time for _, time in told] == sorted((t for _, t in told), reverse=True)
    live = set(model.labels.table.filter(pl.col("status") == "live")["text"])
    for row, tags in zip(rows, read["tags"], strict=True):
        assert set(row["interests"]) == {text for text in model.labels.texts if text in set(tags)} & live


def test_a_history_without_the_runs_examples_has_no_times(ask: Any, model: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(Served, "beside", lambda *_: None)
    told = ask("read").get(f"/v1/users/{model.users['user_id'][4]}/history").json()
    assert told["items"] and all(row["at"] is None and row["event"] is None for row in told["items"])


def test_regions_hold_the_interests_by_cluster(ask: Any, model: Any) -> None:
    user = model.users["user_id"][3]
    told = ask("read").get(f"/v1/users/{user}/regions", params={"k": 30}).json()
    interests = model.interests(user, 30)
    clusters = dict(model.labels.table.select("text", "cluster").iter_rows())
    by_hand: dict[int, float] = {}
    for text, probability in interests.select("interest", "probability").iter_rows():
        by_hand[clusters[text]] = by_hand.get(clusters[text], 0) + probability
    assert {row["cluster"]: row["expected"] for row in told["items"]} == pytest.approx(by_hand)
    shares = [value / sum(by_hand.values()) for value in by_hand.values()]
    assert told["effective"] == pytest.approx(math.exp(-sum(share * math.log(share) for share in shares)))
    assert sum(len(row["interests"]) for row in told["items"]) == 30


def test_a_sample_is_of_the_contacted_from_first_to_last(
    ask: Any, model: Any, wanted: dict[str, Any], service: Any
) -> None:
    request = wanted | {"size": {"by": "count", "users": 150}, "control": {"share": 0.1, "salt": "sampled-2027"}}
    told = ask("export").post("/v1/audience/sample", params={"k": 5}, json=request).json()
    members = stage.choose(model, config.build(AudienceRequest, request)).members
    contacted = members.filter(pl.col("arm") == "treatment")
    assert told["contacted"] == len(contacted) < 150 and len(told["items"]) == 5
    assert [row["rank"] for row in told["items"]][::4] == contacted["rank"][[0, -1]].to_list()
    for row in told["items"]:
        alone = model.score([row["user_id"]], wanted["interests"])["probability"][0]
        assert row["interests"][0]["probability"] == alone
        assert row["score"] == pytest.approx(alone, rel=1e-4)
    entry = audit.read(service.state)[-1]
    assert (entry.event, entry.details["what"], entry.details["users"]) == ("users named", "sample", 5)
    few = wanted | {"control": {"share": 0.5, "salt": "sampled-2027"}}
    assert ask("export").post("/v1/audience/sample", json=few).status_code == 403


def test_tables_are_named_with_their_columns_and_links_out_are_not(ask: Any) -> None:
    told = ask("audience").get("/v1/tables").json()
    assert told == {"offered": True, "items": [{"name": "customers.csv", "columns": ["user_id", "newsletter"]}]}


def test_a_key_learns_what_it_may_do(ask: Any) -> None:
    told = ask("read", "export").get("/v1/key").json()
    assert told["scopes"] == ["read", "export"] and "hash" not in told


def test_labels_are_found_by_beginning_and_by_words(ask: Any, model: Any) -> None:
    text = next(text for text in model.labels.texts if " " in text)
    first, second = text.split()[:2]
    for typed in (text[:4], second[:4].upper(), f"{second} {first[:2]}"):
        found = ask("read").get("/v1/labels", params={"q": typed, "limit": 200}).json()
        assert text in [row["text"] for row in found["items"]]
    beginning = ask("read").get("/v1/labels", params={"q": text}).json()
    assert beginning["items"][0]["text"] == text
    assert ask("read").get("/v1/labels", params={"q": "no such label"}).json()["total"] == 0


def test_all_labels_come_once_over_the_pages(ask: Any, model: Any) -> None:
    seen, cursor = [], None
    while True:
        page = ask("read").get("/v1/labels", params={"limit": 30, **({"cursor": cursor} if cursor else {})}).json()
        seen += [row["number"] for row in page["items"]]
        if (cursor := page["next"]) is None:
            break
    assert sorted(seen) == list(range(len(model.labels)))


def test_the_model_its_card_and_its_results(ask: Any, model: Any) -> None:
    facts = ask("read").get("/v1/model").json()
    assert facts["users"] == len(model.users) and sum(facts["labels"].values()) == len(model.labels)
    assert ask("read").get("/v1/model/card").json()["markdown"] == model.card()
    results = ask("read").get("/v1/model/results").json()
    assert all(row["users"] >= 50 for row in results["figures"])
    assert results["calibration"]["bins"] and all(each["pairs"] >= 50 for each in results["calibration"]["bins"])


def test_a_preview_is_what_the_stage_makes(ask: Any, model: Any, wanted: dict[str, Any]) -> None:
    rule = {"rule": "consent", "table": "customers.csv", "column": "newsletter"}
    told = ask("audience").post("/v1/audience/preview", json=wanted | {"rules": [rule]}).json()
    assert abs(told["eligible"] - (len(model.users) - 10)) < 40 and told["members"] == 110
    plain = ask("audience").post("/v1/audience/preview", json=wanted).json()
    asked = config.build(AudienceRequest, wanted)
    made = stage.choose(model, asked)
    page = json.loads(json.dumps(public_summary(made.published)))
    assert {name: plain[name] for name in page if name not in ("forecast", "sizes")} == {
        name: page[name] for name in page if name not in ("forecast", "sizes")
    }
    told = {name: value for name, value in page["forecast"].items() if value is not None}
    assert {name: plain["forecast"][name] for name in told} == pytest.approx(told, rel=1e-4)
    assert abs(sum(bar["users"] for bar in plain["member_histogram"]) - 110) < 60
    assert all(bar["users"] >= 50 for bar in plain["eligible_histogram"] + plain["member_histogram"])
    exact = model.over_indexed(made.members["user_id"], at_least=50)
    assert (exact["share"] * 110 > 49.9).all() and len(exact)
    expected = made.noise.members.shares(exact)
    assert [row["interest"] for row in plain["over_indexed"]] == expected["interest"].to_list()


def test_a_preview_within_a_window(ask: Any, model: Any, wanted: dict[str, Any], tables: Path) -> None:
    ids = [*model.items["item_id"].head(50), *(f"gone-{number}" for number in range(20))]
    pl.DataFrame({"item_id": ids}).write_csv(tables / "list.csv")
    body = wanted | {"within": {"days": 28}, "products": [{"table": "list.csv"}]}
    told = ask("audience").post("/v1/audience/preview", json=body).json()
    (tables / "list.csv").unlink()
    assert told["members"] == 110 and told["window"]["days"] == 28
    assert told["window"]["start"] == f"{model.windows.end}" and told["window"]["products"][0]["unknown"] == 20
    assert "contacted or not" in told["diagnosis"]["question"] and str(tables) not in json.dumps(told)
    assert any("20 of 70 products are unknown" in note for note in told["notes"])
    body["within"]["from"] = "2001-01-01"
    body["products"] = []
    refused = ask("audience").post("/v1/audience/preview", json=body)
    assert refused.status_code in (400, 422) and "data ends" in refused.json()["detail"]
    plain = ask("audience").post("/v1/audience/preview", json=wanted).json()
    assert not {"window", "diagnosis"} & set(plain)


def test_two_previews_cannot_be_subtracted(ask: Any, model: Any, wanted: dict[str, Any], tables: Path) -> None:
    """Before, the difference was the score of the user who was left out, to seven digits."""
    scores = model.score(model.users["user_id"], wanted["interests"])
    (tables / "one.csv").write_text(f"user_id\n{scores.sort('probability')['user_id'][-1]}\n")
    rule = {"rule": "listed", "table": "one.csv"}
    whole = wanted | {"size": {"by": "percentile", "percent": 100}}
    before, after = (
        ask("audience").post("/v1/audience/preview", json=asked).json() for asked in (whole, whole | {"rules": [rule]})
    )
    (tables / "one.csv").unlink()
    apart = before["forecast"]["conversions"] - after["forecast"]["conversions"]
    assert abs(apart - scores["probability"].max()) > 1e-4
    assert before["lowest"] in (0.0, *EDGES) and (after["eligible"] % 10 == 0 or after["eligible"] == len(model.users))


def test_a_preview_names_nobody(ask: Any, model: Any, wanted: dict[str, Any]) -> None:
    text = ask("audience").post("/v1/audience/preview", json=wanted).text
    assert not any(user in text for user in model.users["user_id"])


@pytest.mark.parametrize("form", ["parquet", "csv", "jsonl"])
def test_a_job_ends_in_the_file_the_stage_would_write(
    form: str, ask: Any, model: Any, wanted: dict[str, Any], tmp_path: Any
) -> None:
    job = finished(ask(), ask().post("/v1/audience/jobs", json=wanted).json())
    assert job["state"] == "DONE" and job["members"] == 110
    answer = ask().get(f"/v1/audience/jobs/{job['id']}/export", params={"form": form})
    assert answer.status_code == 200
    built = stage.build(
        model,
        requests.read(None, ["size.by=count", "size.users=110", "name=Spring"], wanted["interests"]),
        tmp_path / "a",
    )
    export(built, model, form, tmp_path / "b")
    assert answer.content == (tmp_path / f"b/audience.{form}").read_bytes()
    assert job["hash"] == built.manifest.hash


def test_an_analysis_from_statistics_and_from_a_table(ask: Any) -> None:
    told = ask("read").post(
        "/v1/experiments/analyze", json={"design": DESIGN, "statistics": STATISTICS, "until": "2027-03-07"}
    )
    assert told.status_code == 200 and told.json()["verdict"] == "ship"
    table = campaign(["expert", "merit"] * 500)
    design = json.dumps({**DESIGN, "salt": None})
    sent = ask("read").post(
        "/v1/experiments/analyze-table",
        data={"design": design, "until": "2027-03-07"},
        files={"table": ("../../outcomes.csv", table.encode())},
    )
    assert sent.status_code == 200, sent.text
    assert [arm["users"] for arm in sent.json()["arms"]] == [500, 500]


def campaign(arms: list[str]) -> str:
    """Outcomes of users in these arms; of ten in a row, four buy."""
    rows = [f"u{at},{arm},{int(at % 10 < 4)},{at % 7},m{at}@example.org" for at, arm in enumerate(arms)]
    return "user_id,arm,bought,weekday,mail\n" + "\n".join(rows)


def test_a_table_of_the_service_is_analysed_as_one_that_is_sent(ask: Any, tables: Path) -> None:
    table = campaign(["expert", "merit"] * 500)
    known = {"design": DESIGN | {"salt": None, "segment": "weekday"}, "until": "2027-03-07"}
    sent = ask("read").post(
        "/v1/experiments/analyze-table",
        data={"design": json.dumps(known["design"]), "until": "2027-03-07"},
        files={"table": ("outcomes.csv", table.encode())},
    )
    (tables / "outcomes.csv").write_text(table)
    told = ask("audience").post("/v1/experiments/analyze-named", json=known | {"table": "outcomes.csv"})
    (tables / "outcomes.csv").unlink()
    assert told.status_code == 200, told.text
    assert len(told.json()["segments"]) == 7 and told.json()["flow"] is None and sent.json()["flow"]
    assert told.json() | {"flow": sent.json()["flow"]} == sent.json()


def test_nothing_is_told_about_few_users_of_a_table_of_the_service(ask: Any, tables: Path) -> None:
    """Whoever asks chooses the columns: a segment of one user, or a mean of 49, would be that user's own value."""

    def told(table: str, **changes: Any) -> Any:
        (tables / "outcomes.csv").write_text(table)
        asked = {"design": DESIGN | {"salt": None} | changes, "table": "outcomes.csv"}
        answer = ask("audience").post("/v1/experiments/analyze-named", json=asked)
        (tables / "outcomes.csv").unlink()
        return answer

    alone = told(campaign(["expert", "merit"] * 400), segment="mail")
    assert alone.status_code == 200 and alone.json()["segments"] == [] and "example.org" not in alone.text
    few = told(campaign(["expert"] * 400 + ["merit"] * 49))
    assert few.status_code == 403 and "fewer than 50" in few.json()["detail"]
    shares = {"holdout": 0.1, "expert": 0.45, "merit": 0.45}
    third = told(campaign(["expert", "merit"] * 400 + ["holdout"] * 9), arms=shares)
    assert [arm["name"] for arm in third.json()["arms"]] == ["expert", "merit"]


@pytest.mark.parametrize(
    ("table", "changes"),
    [
        ("user_id,arm,bought\nanna@example.org,merit,0\nanna@example.org,merit,1\n", {}),
        ("user_id,arm,bought\nu1,merit,anna@example.org\n", {}),
        ("user_id,arm,bought\nu1,anna@example.org,0\n", {}),
        ("user_id,arm,bought\nu1,merit,it's anna@example.org\n", {}),
        ("user_id,arm,bought\nu1,anna@example.org,0\n", {"arms": {"it's": 0.5, "merit": 0.5}, "control": "it's"}),
        ("user_id,arm,it's\nu1,merit,anna@example.org\n", {"outcome": {"column": "it's"}}),
    ],
)
def test_faults_of_a_table_of_the_service_are_told_without_its_values(
    ask: Any, tables: Path, table: str, changes: dict[str, Any]
) -> None:
    (tables / "outcomes.csv").write_text(table)
    asked = {"design": DESIGN | {"salt": None} | changes, "table": "outcomes.csv"}
    answer = ask("audience").post("/v1/experiments/analyze-named", json=asked)
    (tables / "outcomes.csv").unlink()
    assert answer.status_code == 422 and "anna" not in answer.text and str(tables) not in answer.text
    assert answer.json()["detail"] and answer.json()["remedy"]


def finished(client: Any, job: dict[str, Any]) -> dict[str, Any]:
    end = time.monotonic() + 300
    while job["state"] not in ("DONE", "FAILED") and time.monotonic() < end:
        time.sleep(0.05)
        job = client.get(f"/v1/audience/jobs/{job['id']}").json()
    return job
