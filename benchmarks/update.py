"""One more week of the demo's data, from PostgreSQL into a model, an audience and a table there, by `merit update`.

    python -m benchmarks.update            # Complete Journey, and 6 kills
    python -m benchmarks.update --quick    # a planted shop, and 3 kills

A quick model is trained on all but the last week. Then the week is there, and the update runs to its end. From the same
start it is killed at a random moment, which must leave the model and the table of before or of after, and given again:
snapshot, model, members and rows have to be those of the update that nobody stopped.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl
from adbc_driver_postgresql import dbapi

import merit
from benchmarks import harness
from benchmarks.ondemand import tables
from merit.core import artifacts
from merit.core.errors import MissingDependency
from merit.core.seeds import stream
from tests import postgres
from tests.postgres import Postgres

DATABASE = "shop"
RUN = """preset = "quick"
out = "run"
cache = "cache"
[source]
kind = "sql"
connection = "env:SHOP_DSN"
snapshot = "snapshot"
watermark = "timestamp"
interactions = "SELECT user_id, item_id, timestamp, event, order_id FROM seen"
items = "SELECT item_id, title, string_to_array(tags, '|') AS tags, vertical FROM catalogue"
"""
SMALL = '[labels]\nencoder = "hashed"\n[evaluation]\nresamples = 100\n[ranking]\nresamples = 100\n'
AUDIENCE = 'name = "Spring"\ninterests = ["{}"]\nsize = {{by = "count", users = 150}}\n'
CRM = '[destination]\nkind = "postgres"\nconnection = "env:SHOP_DSN"\ntable = "members"\n'
WEEKLY = 'run = "shop.toml"\n[[audience]]\nrequest = "spring.toml"\nout = "spring"\ndestination = "crm.toml"\n'
State = dict[str, Any]


def fill(quick: bool, seed: int) -> None:
    """Load both tables into the database; the view `seen` ends a week before the log."""
    interactions, items = tables(quick, seed)
    if "order_id" not in interactions.columns:
        interactions = interactions.with_columns(order_id=pl.lit(None, pl.String))
    catalogue = items.select("item_id", "title", pl.col("tags").list.join("|"), "vertical")
    with dbapi.connect(os.environ["SHOP_DSN"]) as connection, connection.cursor() as cursor:
        for name, frame in (("log", interactions), ("catalogue", catalogue)):
            cursor.adbc_ingest(name, frame.to_arrow(), mode="create")
        cursor.execute(
            "CREATE VIEW seen AS SELECT * FROM log "
            "WHERE timestamp <= (SELECT max(timestamp) FROM log) - interval '7 days'"
        )
        connection.commit()


def started(*words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "merit.cli", *words], stdout=subprocess.DEVNULL)


def finished(*words: str) -> float:
    """The seconds that a command took."""
    begin = time.perf_counter()
    if code := started(*words).wait():
        raise SystemExit(f"merit {' '.join(words)} ended with {code}")
    return time.perf_counter() - begin


def state(server: Postgres) -> State:
    """What an update leaves. Every byte of an artifact is checked."""
    model, members = artifacts.load(Path("run/model")), Path("spring/members.parquet")
    return {
        "rows": artifacts.load(Path("snapshot")).manifest.summary["interactions"]["rows"],
        "until": model.manifest.summary["last"],
        "users": sha256(model.file("users.parquet").read_bytes()).hexdigest(),
        "members": pl.read_parquet(members)["user_id"].sort().to_list() if members.exists() else [],
        "sent": sent(server),
    }


def sent(server: Postgres) -> str:
    if not server.run("SELECT to_regclass('members')", DATABASE):
        return ""
    return server.run("SELECT external_id, payload FROM members ORDER BY 1", DATABASE)


def restored(server: Postgres) -> None:
    """The folders and the table as they were before the update."""
    for name in ("run", "snapshot", "spring"):
        shutil.rmtree(name, ignore_errors=True)
        if (kept := Path("kept") / name).exists():
            shutil.copytree(kept, name)
    server.run("DROP TABLE IF EXISTS members", DATABASE)


def measure(server: Postgres, quick: bool, seed: int) -> dict[str, Any]:
    """In the working folder."""
    fill(quick, seed)
    Path("shop.toml").write_text(f"seed = {seed}\n{RUN}{SMALL if quick else ''}")
    trained = finished("run", "shop.toml")
    label = merit.load("run").labels.texts[0]
    for name, text in (("spring", AUDIENCE.format(label)), ("crm", CRM), ("weekly", WEEKLY)):
        Path(f"{name}.toml").write_text(text)
    for name in ("run", "snapshot"):
        shutil.copytree(name, Path("kept") / name)
    before = state(server)
    server.run("CREATE OR REPLACE VIEW seen AS SELECT * FROM log", DATABASE)
    whole, after = finished("update", "weekly.toml"), state(server)
    again = finished("update", "weekly.toml")
    same_again, rng, mixed, equal = state(server) == after, stream(seed, "update"), 0, True
    kills = 3 if quick else 6
    for _ in range(kills):
        restored(server)
        process = started("update", "weekly.toml")
        time.sleep(float(rng.uniform(0.2, 0.95)) * whole)
        process.send_signal(signal.SIGKILL)
        process.wait()
        left = state(server)
        mixed += any(left[name] not in (before[name], after[name]) for name in before)
        finished("update", "weekly.toml")
        equal &= state(server) == after
    return {
        "train_seconds": round(trained, 1),
        "update_seconds": round(whole, 1),
        "again_seconds": round(again, 1),
        "new_rows": after["rows"] - before["rows"],
        "sent_rows": len(after["sent"].splitlines()),
        "kills": kills,
        "mixed_states": mixed,
        "same_after_kills": equal and same_again,
    }


def main() -> None:
    given = harness.parser(__doc__).parse_args()
    if reason := postgres.why_not():
        raise MissingDependency(f"{reason}.")
    with TemporaryDirectory() as folder:
        postgres.start(Path(folder), os.getpid())
        server = postgres.read(Path(folder))
        server.run(f"CREATE DATABASE {DATABASE}")
        os.environ["SHOP_DSN"] = server.dsn(DATABASE)
        os.chdir(folder)
        harness.finish("update", measure(server, given.quick, given.seed), given.seed)


if __name__ == "__main__":
    harness.run(main)
