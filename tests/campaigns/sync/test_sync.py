"""The door: who leaves, who never does, and the line that says so."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import merit
from merit.campaigns.audiences import build, export
from merit.campaigns.audiences.request import ArmShare
from merit.campaigns.sync import sync
from merit.campaigns.sync.destination import ObjectFile
from merit.core import artifacts
from merit.core.artifacts import Artifact
from merit.core.errors import PolicyError
from merit.labels.build import change_labels
from merit.privacy import audit, hidden
from merit.privacy.erasure.erase import erase
from tests.campaigns.sync.conftest import request

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def to(tmp_path: Path) -> ObjectFile:
    return ObjectFile(kind="file", address=str(tmp_path / "crm.parquet"))


def rows_of(to: ObjectFile) -> pl.DataFrame:
    return pl.read_parquet(to.address)


def test_those_who_leave_are_those_of_an_export(audience: Artifact, model: Any, to: ObjectFile, tmp_path: Path) -> None:
    counts = sync.sync_audience(audience, model, to)
    exported = pl.read_parquet(export.export(audience, model, "parquet", tmp_path / "send").file("audience.parquet"))
    sent = rows_of(to)
    assert sorted(sent["external_id"]) == sorted(exported["user_id"]) and counts.added == len(exported)
    others = pl.read_parquet(audience.file("members.parquet")).filter(pl.col("arm") != "treatment")["user_id"]
    assert len(others) > 10 and not set(others) & set(sent["external_id"])
    scores = dict(exported.select("user_id", "score").iter_rows())
    payload = {user: json.loads(text)["score"] for user, text in sent.select("external_id", "payload").iter_rows()}
    assert payload == {user: round(score, 4) for user, score in scores.items()}
    assert sent["audience"].unique().to_list() == ["Spring"] and sent["updated_at"].dtype.time_zone == "UTC"  # type: ignore[attr-defined]
    assert sync.sync_audience(audience, model, to).written == 0


def test_every_sync_is_a_line_of_the_audit_log(audience: Artifact, model: Any, to: ObjectFile) -> None:
    folder = audience.path.parent
    assert sync.sync_audience(audience, model, to, dry_run=True).added > 100
    assert not Path(to.address).exists() and not (folder / audit.FILE).exists()
    sync.sync_audience(audience, model, to)
    (entry,) = audit.read(folder)
    assert (
        entry.event == "sync"
        and entry.details["to"]["address"] == to.address
        and entry.details["to"]["mode"] == "mirror"
    )
    assert entry.details["audience"] == audience.manifest.hash and entry.details["rows"]["added"] == len(rows_of(to))


def test_leavers_and_erased_users_go_and_held_out_ones_never_come(
    world: Callable[[], tuple[Any, Artifact]], to: ObjectFile
) -> None:
    model, audience = world()
    sync.sync_audience(audience, model, to)
    first, second = rows_of(to)["external_id"].head(2)
    hidden.hide([audience.path.parent], "1", [second], audience.path.parent)
    assert sync.sync_audience(audience, model, to).removed == 1
    assert second not in set(rows_of(to)["external_id"])
    hidden.unhide([audience.path.parent])
    erase([audience.path.parent], [first])
    model, rebuilt = merit.load(model.artifact.path), audience.path
    assert sync.sync_audience(artifacts.load(rebuilt, "audience"), model, to).removed == 1
    assert first not in set(rows_of(to)["external_id"])
    smaller = build.build(model, request(model, 130), rebuilt)
    arms = dict(pl.read_parquet(smaller.file("members.parquet")).select("user_id", "arm").iter_rows())
    counts = sync.sync_audience(smaller, model, to)
    sent = set(rows_of(to)["external_id"])
    assert counts.removed and sent == {user for user, arm in arms.items() if arm == "treatment"}


def test_few_and_blocked_ones_stay_and_what_is_there_can_be_removed(
    audience: Artifact, model: Any, to: ObjectFile, tmp_path: Path, made: Path
) -> None:
    sync.sync_audience(audience, model, to)
    few = build.build(model, request(model, 115), tmp_path / "few")
    before = Path(to.address).read_bytes()
    with pytest.raises(PolicyError, match="Fewer than 100"):
        sync.sync_audience(few, model, to)
    labels, texts = artifacts.load(made / "labels"), model.labels.texts[:1]
    change_labels(labels, tmp_path / "labels", "block", texts, reason="sensitive", cache=tmp_path / "cache")
    with pytest.raises(PolicyError):
        sync.sync_audience(audience, merit.load(made, tmp_path / "labels"), to)
    assert Path(to.address).read_bytes() == before
    assert sync.clear(few.path, "Spring", to).removed == len(pl.read_parquet(before)) and rows_of(to).is_empty()


def test_lists_of_all_users_leave_by_the_same_door(model: Any, to: ObjectFile) -> None:
    holdout = ArmShare(share=0.2, salt="nobody-2027")
    lists = sync.InterestLists(k=3, holdout=holdout)
    held = set(sync.held_out(model.users["user_id"], holdout))
    counts = sync.sync_interests(model, to, lists)
    sent = rows_of(to)
    assert held and counts.added == len(sent) and set(sent["external_id"]) == set(model.users["user_id"]) - held
    user = sent["external_id"][0]
    interests = model.interests([user], k=3).select("interest", pl.col("probability").round(4)).to_dicts()
    assert json.loads(sent["payload"][0]) == {"interests": interests}
    assert sync.sync_interests(model, to, lists).written == 0
    with pytest.raises(PolicyError, match="Fewer than 100"):
        sync.sync_interests(model, to, lists.model_copy(update={"holdout": ArmShare(share=0.9, salt="nobody-2027")}))


def test_on_the_command_line(audience: Artifact, made: Path, command: Call, tmp_path: Path) -> None:
    (tmp_path / "crm.toml").write_text('[destination]\nkind = "duckdb"\nfile = "crm.duckdb"\ntable = "members"\n')
    sync_it = ("-q", "audience", "sync", audience.path, "crm.toml", "--mode", "mirror")
    code, out, _ = command(*sync_it, "--dry-run")
    assert code == 0 and "To be written: table members of crm.duckdb" in out and "added" in out
    code, out, _ = command(*sync_it, "--json")
    assert code == 0 and (added := json.loads(out)["added"]) > 100
    assert json.loads(command(*sync_it, "--json")[1]) == {
        "added": 0,
        "updated": 0,
        "removed": 0,
        "unchanged": added,
        "written": 0,
    }
    assert json.loads(command(*sync_it, "--clear", "--json")[1])["removed"] == added
    code, out, _ = command("-q", "model", "sync-interests", made, "crm.toml", "--mode", "upsert", "-k", 2, "--json")
    assert code == 0 and json.loads(out)["added"] > 100
    (tmp_path / "bad.toml").write_text('kind = "postgres"\nconnection = "postgresql://u:pw@h/d"\ntable = "a"\n')
    code, _, err = command("-q", "audience", "sync", audience.path, "bad.toml", "--mode", "mirror")
    assert code == 2 and "connection" in err and "pw@h" not in err
    assert command("-q", "audience", "sync", audience.path, "crm.toml", "--mode", "merge")[0] == 2
