"""Files of buckets: a table that is replaced as a whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest.mock import patch

import fsspec
import polars as pl
import pytest

from merit.campaigns.sync import objects
from merit.campaigns.sync.destination import ObjectFile, read
from merit.campaigns.sync.rows import Outgoing, SyncCounts
from merit.campaigns.sync.sync import deliver
from merit.core.errors import ConfigError, DestinationError, MissingDependency, StorageError
from merit.engine import storage

Rows = dict[str, str]


def send(address: str, rows: Rows, mode: Any = "mirror", audience: str = "Spring!", **columns: str) -> SyncCounts:
    frame = pl.DataFrame(
        {"external_id": list(rows), "payload": list(rows.values())},
        schema={"external_id": pl.String, "payload": pl.String},
    )
    to = ObjectFile.model_validate({"kind": "file", "address": address, "columns": columns})
    return deliver(Outgoing(audience, iter([frame]), Path("nowhere")), to, mode, lambda counts: True)


@pytest.mark.parametrize("mode", ["mirror", "upsert", "append"])
@pytest.mark.parametrize("place", ["memory://{}/members.csv", "{}/members.parquet"])
def test_a_file_holds_what_a_dict_would(place: str, mode: str, tmp_path: Path) -> None:
    address = place.format(tmp_path)
    before = {f"u{number}": str(number % 3) for number in range(50)} | {"=1+1": "x", "'q": "y"}
    after = {f"u{number}": str(number % 2) for number in range(20, 70)} | {"=1+1": "x"}
    added = {user: payload for user, payload in after.items() if user not in before}
    wanted = {"mirror": after, "upsert": before | after, "append": before | added}[mode]
    send(address, {"u1": "other"}, audience="Other")
    send(address, before)
    counts = send(address, after, mode)
    table = objects.read(address, ObjectFile(kind="file", address=address).columns)
    assert table is not None
    stored = table.filter(pl.col("audience") == "Spring!")
    assert dict(stored.select("external_id", "payload").iter_rows()) == wanted and len(stored) == len(wanted)
    assert len(table) == len(wanted) + 1
    changed = sum(before.get(user) != payload for user, payload in wanted.items())
    assert counts.written == changed + len(before.keys() - wanted.keys())
    with patch.object(storage, "put", side_effect=AssertionError("nothing is to be written")):
        assert send(address, after, mode).written == 0


def test_a_bucket_of_a_real_server(monkeypatch: pytest.MonkeyPatch) -> None:
    moto, s3fs = pytest.importorskip("moto.server"), pytest.importorskip("s3fs")
    server = moto.ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        port = server.get_host_and_port()[1]
        for name, value in {"KEY": "reader", "SECRET": "s3-s3cret", "ENDPOINT_URL": f"http://127.0.0.1:{port}"}.items():
            monkeypatch.setitem(fsspec.config.conf.setdefault("s3", {}), name.lower(), value)
        s3fs.S3FileSystem.clear_instance_cache()
        with pytest.raises(DestinationError, match="no bucket 'crm'") as caught:
            send("s3://crm/members.parquet", {"a": "1"})
        assert "s3-s3cret" not in str(caught.value)
        s3fs.S3FileSystem().mkdir("crm")
        assert send("s3://crm/{audience}.parquet", {"a": "1", "b": "1"}).added == 2
        assert send("s3://crm/{audience}.parquet", {"b": "2", "c": "1"}) == SyncCounts(
            added=1, updated=1, removed=1, unchanged=0
        )
        assert send("s3://crm/{audience}.parquet", {"b": "2", "c": "1"}).written == 0
        assert s3fs.S3FileSystem().ls("crm", refresh=True) == ["crm/spring.parquet"]  # no lock, no draft
    finally:
        server.stop()
        s3fs.S3FileSystem.clear_instance_cache()


def test_each_audience_has_a_file_where_the_address_says_so(tmp_path: Path) -> None:
    send(f"{tmp_path}/{{audience}}.csv", {"a": "1"}, audience="Trail running, spring", external_id="customer")
    text = (tmp_path / "trail-running-spring.csv").read_text()
    assert (
        text.splitlines()[0] == '"customer","audience","payload","updated_at"'
        and '"a","Trail running, spring","1"' in text
    )
    assert [path.name for path in tmp_path.iterdir()] == ["trail-running-spring.csv"]


def test_what_cannot_be_written_is_one_message_and_the_old_file_stays(tmp_path: Path) -> None:
    address = str(tmp_path / "members.csv")
    send(address, {"a": "1"})
    old = Path(address).read_bytes()
    with pytest.raises(DestinationError, match=r"no column 'customer', but external_id.*columns = "):
        send(address, {"b": "1"}, external_id="customer")
    gone = StorageError("s3://b cannot be used: The bucket does not exist")
    with patch.object(storage, "put", side_effect=gone), pytest.raises(DestinationError, match="does not exist"):
        send(address, {"b": "1"})
    assert Path(address).read_bytes() == old
    with pytest.raises((MissingDependency, DestinationError)):
        send("nosuch://bucket/a.csv", {"b": "1"})
    for secret in ("s3://key:s3cret@bucket/a.csv", "https://host/put?sig=s3cret&name=a.csv"):
        (tmp_path / "to.json").write_text(json.dumps({"kind": "file", "address": secret}))
        with pytest.raises(ConfigError, match="a key or a query") as refused:
            read(tmp_path / "to.json")
        assert "s3cret" not in str(refused.value)
    Path(address).write_bytes(b"\xff\xfe")
    with pytest.raises(DestinationError, match=r"members\.csv"):
        send(address, {"b": "1"})
