"""One more week from a database into a model, an audience and a table: by one command, stopped anywhere.

The files are those of docs/warehouse.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest

import merit
from merit.core import artifacts, update
from merit.core.errors import ConfigError, MissingArtifact, StorageError
from merit.core.files import locked
from merit.core.update import UpdateConfig
from tests.conftest import Command
from tests.refresh import worlds

QUERY = "SELECT user_id, item_id, timestamp, event, order_id FROM log"
ITEMS = "SELECT item_id, title, tags, vertical FROM catalogue"
STEPS = (("snapshot", "pull"), ("", "refresh"), ("build", "build"), ("sync", "sync_audience"))


class Stopped(BaseException):
    """As a signal would."""


@pytest.fixture
def shop(quick: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A trained run, its log and one more week in a database, and the files of an update."""
    run, (log, catalogue) = worlds.copy(quick, tmp_path), worlds.tables(quick)
    grown = pl.concat([log, worlds.week(log).select(log.columns)])
    with duckdb.connect(str(tmp_path / "shop.duckdb")) as database:
        for name, frame in (("log", grown), ("catalogue", catalogue)):
            database.register("given", frame)
            database.execute(f"CREATE TABLE {name} AS SELECT * FROM given")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SHOP_DSN", "duckdb:///shop.duckdb")
    label = merit.load(run).labels.texts[0]
    Path("shop.toml").write_text(
        f"""out = "run"\n[source]\nkind = "sql"\nconnection = "env:SHOP_DSN"\nsnapshot = "snapshot"
        watermark = "timestamp"\ninteractions = "{QUERY}"\nitems = "{ITEMS}"\n"""
    )
    Path("spring.toml").write_text(f'name = "Spring"\ninterests = ["{label}"]\nsize = {{by = "count", users = 110}}\n')
    Path("crm.toml").write_text('[destination]\nkind = "duckdb"\nfile = "crm.duckdb"\ntable = "members"\n')
    Path("weekly.toml").write_text(
        'run = "shop.toml"\n[[audience]]\nrequest = "spring.toml"\nout = "spring"\ndestination = "crm.toml"\n'
    )
    yield tmp_path


def settings() -> UpdateConfig:
    return update.config.load(UpdateConfig, Path("weekly.toml"))


def state() -> tuple[Any, ...]:
    """What an update leaves: rows of the snapshot, the end of the model's data, members, and what was sent."""
    rows = artifacts.load(Path("snapshot")).manifest.summary["interactions"]["rows"]
    members = pl.read_parquet("spring/members.parquet")["user_id"].sort().to_list()
    with duckdb.connect("crm.duckdb") as crm:
        sent = crm.execute("SELECT external_id, payload FROM members ORDER BY 1").fetchall()
    return rows, merit.load("run").artifact.manifest.summary["last"], members, sent


def test_a_week_goes_all_the_way_by_one_command(shop: Path, quick: Path, command: Command, monkeypatch) -> None:
    before = merit.load("run").artifact.manifest.summary["last"]
    monkeypatch.chdir(shop)
    code, out, _ = command("update", "weekly.toml")
    assert code == 0 and "110" in out
    rows, last, members, sent = state()
    assert last > before and rows > 0
    assert sorted(user for user, _ in sent) == members
    again = update.update(settings())
    assert not again.refreshed and again.audiences["spring"].written == 0  # type: ignore[union-attr]


@pytest.mark.parametrize(("step", "after"), [(0, True), (1, True), (2, True), (3, False), (3, True)])
def test_it_is_stopped_at_any_step_and_given_again(shop: Path, monkeypatch, step, after) -> None:
    module, name = STEPS[step]
    place = getattr(update, module) if module else update
    real: Callable[..., Any] = getattr(place, name)

    def stopped(*given: Any, **named: Any) -> Any:
        if after:
            real(*given, **named)
        raise Stopped

    with monkeypatch.context() as patch, pytest.raises(Stopped):
        patch.setattr(place, name, stopped)
        update.update(settings())
    done = update.update(settings())
    assert done.refreshed == (step < 2)
    _, last, members, sent = state()
    assert sorted(user for user, _ in sent) == members and last == last_of_log()
    assert update.update(settings()).audiences["spring"].written == 0  # type: ignore[union-attr]


def last_of_log() -> int:
    with duckdb.connect("shop.duckdb") as database:
        return int(database.execute("SELECT epoch_ms(max(timestamp)) FROM log").fetchall()[0][0])


def test_what_is_refused_before_anything_is_read(shop: Path) -> None:
    given = settings()
    with pytest.raises(ConfigError, match="Two audiences are written to spring"):
        update.update(given.model_copy(update={"audience": given.audience * 2}))
    with locked(Path("run") / update.LOCK), pytest.raises(StorageError, match="Another update of run"):
        update.update(given)
    Path("shop.toml").write_text(Path("shop.toml").read_text().replace('out = "run"', 'out = "nothing"'))
    with pytest.raises(MissingArtifact):
        update.update(given)
    assert not Path("snapshot").exists()
