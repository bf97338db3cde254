"""Sync to a real PostgreSQL and a DuckDB file: bulk against row by row, kills at random moments, unchanged audiences.

    python -m benchmarks.sync [--quick]

`copy_speedup` is the time of one INSERT for each row, in one transaction, over that of a first sync of the same rows.
A kill is a SIGKILL at a random moment of a sync in a process of its own, between the states of two audiences in turn;
a state that is neither is mixed. `unchanged_rows` are those written by a sync of what is there already.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import tempfile
import time
from argparse import Namespace
from pathlib import Path
from typing import Any

import polars as pl

from benchmarks import harness
from merit.campaigns.sync import database, objects
from merit.campaigns.sync.destination import Destination, DuckdbTable, ObjectFile, PostgresTable
from merit.campaigns.sync.rows import Outgoing, SyncCounts
from merit.core.seeds import stream
from tests import postgres

Rows = tuple[int, str]  # users, and the payload of each


def audience(rows: Rows) -> Outgoing:
    users, payload = rows
    frame = pl.select(external_id=pl.format("user-{}", pl.int_range(users)), payload=pl.lit(payload))
    return Outgoing("benchmark", iter(frame.iter_slices(100_000)), Path("nowhere"))


def deliver(to: Destination, rows: Rows) -> SyncCounts:
    function: Any = objects.deliver if isinstance(to, ObjectFile) else database.deliver
    counts: SyncCounts = function(audience(rows), to, "mirror", lambda counts: True)
    return counts


def row_by_row(to: PostgresTable, rows: Rows) -> None:
    """What a loop over the members does, in one transaction."""
    outgoing = audience(rows)
    with database.connected(to) as connection, connection.cursor() as cursor:
        cursor.execute(database.created(to.table, to.columns))
        statement = f"INSERT INTO {to.table} VALUES ($1, $2, $3, CAST($4 AS timestamptz))"
        for frame in outgoing.frames:
            for user, payload in frame.iter_rows():
                cursor.execute(statement, (user, outgoing.audience, payload, outgoing.at))
        connection.commit()


def state(to: Any) -> list[Rows]:
    """(rows, payload) for every payload there is: one entry, unless it is a mixture."""
    if isinstance(to, ObjectFile):
        table = objects.read(to.address, to.columns)
        assert table is not None
        return [(count, payload) for payload, count in table.group_by("payload").len().iter_rows()]
    with database.connected(to) as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT count(*), payload FROM {to.table} GROUP BY payload")
        return [(int(count), payload) for count, payload in cursor.fetchall()]


def child(to: Destination, rows: Rows, ready: Any) -> None:
    ready.send(True)
    deliver(to, rows)


def kill(to: Destination, rows: Rows, seconds: float) -> tuple[bool, float]:
    """Kill a sync after so many seconds; whether it was still at work, and how long it ran."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=child, args=(to, rows, there))
    process.start()
    here.recv()
    begin = time.perf_counter()
    process.join(seconds)
    working = process.is_alive()
    if working and process.pid:
        os.kill(process.pid, signal.SIGKILL)
    process.join()
    return working, time.perf_counter() - begin


def kills(to: Destination, states: tuple[Rows, Rows], count: int, seed: int) -> dict[str, int]:
    """How many of the syncs were killed at work, and how many left a mixture."""
    deliver(to, states[0])
    _, longest = kill(to, states[1], 600)  # one that comes to its end: the import of the driver counts, too
    draws = stream(seed, "kills", type(to).__name__)
    result = {"kills": 0, "mixed": 0, "old": 0, "new": 0}
    while result["kills"] < count:
        (before,) = state(to)
        wanted = states[0] if before == states[1] else states[1]
        killed, _ = kill(to, wanted, float(draws.uniform(0, 1.05 * longest)))
        after = state(to)
        result["kills"] += killed
        result["mixed"] += after not in ([before], [wanted])
        result["old" if after == [before] else "new"] += killed
    return result


def run(arguments: Namespace, folder: Path) -> dict[str, Any]:
    server = postgres.read(folder)
    os.environ["SYNC_DSN"] = server.dsn()
    users, slow_users = (20_000, 5_000) if arguments.quick else (1_000_000, arguments.slow)
    count = 5 if arguments.quick else 50
    table = PostgresTable(kind="postgres", connection="SYNC_DSN", table="members")
    one_by_one = table.model_copy(update={"table": "one_by_one"})
    first, bulk = harness.timed(lambda: deliver(table, (users, "1")))
    again, unchanged = harness.timed(lambda: deliver(table, (users, "1")))
    changed, all_new = harness.timed(lambda: deliver(table, (users, "2")))
    _, loop = harness.timed(lambda: row_by_row(one_by_one, (slow_users, "1")))
    print(f"PostgreSQL, {users:,} rows: first {bulk:.1f} s, unchanged {unchanged:.1f} s, all updated {all_new:.1f} s")
    print(f"row by row, {slow_users:,} rows: {loop:.1f} s")
    assert (first.added, changed.updated) == (users, users)
    deliver(table, (0, ""))
    small = 5_000 if arguments.quick else 100_000
    states = ((small, '{"score": 0.1}'), (small * 9 // 10, '{"score": 0.2}'))
    file = DuckdbTable(kind="duckdb", file=folder / "crm.duckdb", table="members")
    parquet = ObjectFile(kind="file", address=str(folder / "crm.parquet"))
    outcomes = {}
    for to in (table, file, parquet):
        outcomes[to.kind] = kills(to, states, count, arguments.seed)
        print(f"{to.kind}: {outcomes[to.kind]}")
    return {
        "rows": users,
        "copy_seconds": round(bulk, 2),
        "row_by_row_seconds": round(loop * users / slow_users, 2),
        "row_by_row_rows": slow_users,
        "copy_speedup": round(loop * users / slow_users / bulk, 1),
        "kills": sum(outcome["kills"] for outcome in outcomes.values()),
        "killed_before_and_after_the_commit": {
            kind: [outcome["old"], outcome["new"]] for kind, outcome in outcomes.items()
        },
        "mixed_states": sum(outcome["mixed"] for outcome in outcomes.values()),
        "unchanged_rows": again.written,
    }


def main() -> None:
    parser = harness.parser(__doc__)
    parser.add_argument("--slow", type=int, default=1_000_000, help="rows of the loop; fewer are extrapolated")
    arguments = parser.parse_args()
    if reason := postgres.why_not():
        sys.exit(reason)
    with tempfile.TemporaryDirectory() as name:
        postgres.start(Path(name), os.getpid())
        harness.finish("sync", run(arguments, Path(name)), arguments.seed)


if __name__ == "__main__":
    harness.run(main)
