"""Tables from a database into a snapshot, at size: memory, rows a second, and that appending gives the same bytes.

    python -m benchmarks.warehouse            # 5 million rows, from PostgreSQL and from DuckDB
    python -m benchmarks.warehouse --quick    # 200 thousand

Every reading runs in a child process, whose peak memory counts; the server has its own. One snapshot gets nine tenths
of the rows and then the rest, another all at once, and both must have the same bytes.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb

from benchmarks import harness
from merit.core import artifacts
from merit.core.errors import MissingDependency
from merit.data.sources import SqlSource, snapshot
from tests import postgres

ROWS, QUICK = 5_000_000, 200_000
LIMIT = 1.5  # GiB
ITEMS = 20_011
KINDS = "['view','view','view','click','click','cart','purchase'][1 + n % 7]"
LOG = """CREATE TABLE log AS SELECT n,
    'u' || (big * 7919 % {users}) AS user_id, 'i' || (big * 104729 % {items}) AS item_id,
    TIMESTAMPTZ '2023-01-01 00:00:00+00' + n * INTERVAL '7 seconds' AS timestamp, {kinds} AS event
    FROM (SELECT n, CAST(n AS bigint) AS big FROM {series}) AS numbers"""
CATALOGUE = (
    "CREATE TABLE catalogue AS SELECT 'i' || n AS item_id, 'product ' || n AS title, 'tag ' || (n % 997) AS tags"
)
Fill = Callable[[str], object]


def source(folder: Path) -> SqlSource:
    return SqlSource(
        connection="env:BENCHMARK_DSN",
        interactions="SELECT n, user_id, item_id, timestamp, event FROM seen",
        items="SELECT item_id, title, tags FROM catalogue",
        watermark="n",
        snapshot=folder,
    )


def pull(folder: Path) -> None:
    snapshot.pull(source(folder))


def measure(run: Fill, series: str, array: str, rows: int, folder: Path) -> dict[str, float | bool]:
    """Of one database, in which `run` runs SQL."""
    kinds = KINDS.replace("[", f"({array}[", 1).replace("]", "])", 1)
    names = {"users": rows // 20, "items": ITEMS, "kinds": kinds}
    run(LOG.format(**names, series=series.format(first=1, last=rows)))
    run(f"{CATALOGUE} FROM {series.format(first=0, last=ITEMS)}")
    run(f"CREATE VIEW seen AS SELECT * FROM log WHERE n <= {rows * 9 // 10}")
    harness.in_child(pull, folder / "appended")
    run("CREATE OR REPLACE VIEW seen AS SELECT * FROM log")
    append_memory, append_seconds = harness.in_child(pull, folder / "appended")
    memory, seconds = harness.in_child(pull, folder / "full")
    full, appended = (artifacts.load(folder / name, "snapshot").manifest for name in ("full", "appended"))
    return {
        "rows": full.summary["interactions"]["rows"],
        "seconds": round(seconds, 1),
        "rows_per_second": round(rows / seconds),
        "peak_gib": round(max(memory, append_memory), 2),
        "append_seconds": round(append_seconds, 1),
        "same_bytes": full.files == appended.files,
    }


def measure_postgres(rows: int, folder: Path) -> dict[str, float | bool]:
    if reason := postgres.why_not():
        raise MissingDependency(f"{reason}.")
    postgres.start(folder, os.getpid())
    server = postgres.read(folder)
    os.environ["BENCHMARK_DSN"] = server.dsn()
    return measure(server.run, "generate_series({first}, {last}) AS s(n)", "ARRAY", rows, folder)


def measure_duckdb(rows: int, folder: Path) -> dict[str, float | bool]:
    file = folder / "shop.duckdb"
    os.environ["BENCHMARK_DSN"] = f"duckdb:///{file}"

    def run(sql: str) -> None:
        with duckdb.connect(str(file)) as connection:
            connection.execute(sql)

    return measure(run, "range({first}, {last} + 1) AS s(n)", "", rows, folder)


def main() -> None:
    given = harness.parser(__doc__).parse_args()
    rows, figures = QUICK if given.quick else ROWS, {}
    for name, measured in (("postgresql", measure_postgres), ("duckdb", measure_duckdb)):
        with TemporaryDirectory() as folder:
            figures |= {f"{name}_{figure}": value for figure, value in measured(rows, Path(folder)).items()}
    peak = max(value for name, value in figures.items() if name.endswith("peak_gib"))
    remarks = {name: f"at most {LIMIT}" for name in figures if name.endswith("peak_gib")}
    harness.finish("warehouse", figures | {"within_limit": peak < LIMIT}, given.seed, remarks)


if __name__ == "__main__":
    harness.run(main)
