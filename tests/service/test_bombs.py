"""Small files that unpack to much: refused by what they hold, and read by a child in any case."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from merit.campaigns.experiments.design import ExperimentDesign
from merit.core import config
from merit.core.errors import DataError
from merit.data.sources.size import require_small
from merit.service.openapi import EXAMPLES
from merit.service.problems import Refusal
from merit.service.tables import TableReader

DESIGN: dict[str, Any] = EXAMPLES["design"]["request"]
ROWS, SIZE = 1_000, 2**20


def dictionary(file: Path, rows: int = 300) -> None:
    """Two texts of 20 KB, and which of them stands in each row: 3 KB in all."""
    texts = pa.DictionaryArray.from_arrays(pa.array([row % 2 for row in range(rows)]), ["a" * 20_480, "b" * 20_480])
    arms = pa.array(["merit", "expert"] * (rows // 2))
    table = pa.table({"user_id": texts, "arm": arms, "bought": pa.array([0] * rows)})
    pq.write_table(table, file, compression="zstd", store_schema=False)


BOMBS: dict[str, Callable[[Path], object]] = {
    "dictionary.parquet": dictionary,
    "runs.parquet": lambda file: pl.DataFrame({"a": [0] * 100_000}).write_parquet(file),
    "rows.csv": lambda file: file.write_text("a\n" + "0\n" * 1_001),
    "rows.csv.gz": lambda file: file.write_bytes(gzip.compress(b"a\n" + b"0\n" * 1_001)),
    "rows.jsonl": lambda file: file.write_text('{"a":0}\n' * 1_001),
    "wide.jsonl": lambda file: file.write_text(
        json.dumps({f"c{number}": 0 for number in range(200)}) + "\n" + "{}\n" * 900
    ),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_table_is_judged_by_what_it_holds(name: str, tmp_path: Path) -> None:
    BOMBS[name](tmp_path / name)
    with pytest.raises(DataError, match=r"more than 1,000 rows, or unpacks to more than 1 MiB"):
        require_small(tmp_path / name, ROWS, SIZE)


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.parquet"])
def test_a_table_of_ordinary_size_passes(name: str, tmp_path: Path) -> None:
    frame = pl.DataFrame({"user_id": [f"user {row}" for row in range(ROWS)], "bought": [0] * ROWS})
    write = {".csv": frame.write_csv, ".jsonl": frame.write_ndjson, ".parquet": frame.write_parquet}
    write[Path(name).suffix](tmp_path / name)
    require_small(tmp_path / name, ROWS, SIZE)


def test_an_uploaded_bomb_is_refused_and_the_service_stays_small(ask: Any, tmp_path: Path) -> None:
    dictionary(tmp_path / "t.parquet", 20_000)  # 400 MB
    before = _peak(reset=True)
    sent = ask("read").post(
        "/v1/experiments/analyze-table",
        data={"design": json.dumps(DESIGN)},
        files={"table": ("t.parquet", (tmp_path / "t.parquet").read_bytes())},
    )
    assert sent.status_code == 422 and "unpacks to more than 256 MiB" in sent.json()["detail"], sent.text
    assert _peak() - before < 100 * 2**20


def test_a_bomb_among_the_tables_of_the_service_is_refused(
    ask: Any, wanted: dict[str, Any], tables: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("merit.service.tables.MOST_NAMED", (ROWS, SIZE))
    dictionary(tables / "bomb.parquet")
    try:
        for part in (
            {"rules": [{"rule": "listed", "table": "bomb.parquet"}]},
            {"interests": [], "lookalike": {"table": "bomb.parquet", "about": "buyers of our tents"}},
        ):
            answer = ask("audience").post("/v1/audience/preview", json=wanted | part)
            assert answer.status_code == 422 and "unpacks to more than" in answer.json()["detail"]
    finally:
        (tables / "bomb.parquet").unlink()


def test_one_table_is_read_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("merit.service.tables.PATIENCE", 0.05)
    reader = TableReader(60.0)
    (tmp_path / "t.csv").write_text("user_id,arm,bought\nu,merit,0\n")
    with reader._lock, pytest.raises(Refusal) as refused:
        began = time.monotonic()
        reader.sent(config.build(ExperimentDesign, DESIGN), tmp_path / "t.csv")
    assert refused.value.status == 503 and refused.value.headers["Retry-After"] and time.monotonic() - began < 5


def _peak(reset: bool = False) -> int:
    """The most memory that this process had since the last reset."""
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    return 1024 * int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
