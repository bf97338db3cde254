"""Tables in an S3-compatible store and behind HTTP, both on this machine; and Delta tables."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest
from pydantic import ValidationError

from merit.core import artifacts
from merit.core.errors import ConfigError, DataError, MissingDependency
from merit.data.sources import TablesSource, addresses, open_source, snapshot
from tests.data import warehouse

boto3 = pytest.importorskip("boto3")
s3fs = pytest.importorskip("s3fs")
moto_server = pytest.importorskip("moto.server")
BUCKET = "shop-tables"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    server = moto_server.ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def store(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A client of an empty bucket; keys and the endpoint are in the environment, as operators give them."""
    names = {"ACCESS_KEY_ID": "reader", "SECRET_ACCESS_KEY": "s3cret-w0rd", "DEFAULT_REGION": "us-east-1"}
    for name, value in (names | {"ENDPOINT_URL": endpoint}).items():
        monkeypatch.setenv(f"AWS_{name}", value)
    s3fs.S3FileSystem.clear_instance_cache()
    client = boto3.client("s3")
    client.create_bucket(Bucket=BUCKET)
    yield client
    empty(client)


def empty(client: Any) -> None:
    for entry in client.list_objects_v2(Bucket=BUCKET).get("Contents", []) if exists(client) else []:
        client.delete_object(Bucket=BUCKET, Key=entry["Key"])
    if exists(client):
        client.delete_bucket(Bucket=BUCKET)


def exists(client: Any) -> bool:
    return BUCKET in [bucket["Name"] for bucket in client.list_buckets()["Buckets"]]


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A log in two days of Parquet, and a catalogue as packed JSON lines."""
    events, items = warehouse.tables(tmp_path)
    for day, part in enumerate((events[:1500], events[1500:])):
        folder = tmp_path / "log" / f"day={day}"
        folder.mkdir(parents=True)
        part.write_parquet(folder / "part.parquet")
    (tmp_path / "log" / "_SUCCESS").touch()
    items.write_ndjson(tmp_path / "items.jsonl")
    return tmp_path


def upload(client: Any, folder: Path) -> None:
    for file in folder.rglob("*"):
        if file.is_file():
            client.upload_file(str(file), BUCKET, str(file.relative_to(folder)))


def rows(given: TablesSource) -> list[tuple[object, ...]]:
    tables = open_source(given)
    return [*tables.interactions.drop("file").collect().rows(), *tables.items.drop("file").collect().rows()]


def test_a_folder_in_a_bucket_is_the_folder_on_disk(store, shop, tmp_path) -> None:
    upload(store, shop)
    places = {"interactions": f"s3://{BUCKET}/log/", "items": f"s3://{BUCKET}/items.jsonl"}
    far = TablesSource(**places, snapshot=tmp_path / "copy")
    assert rows(far) == rows(TablesSource(interactions=shop / "log", items=shop / "items.jsonl"))
    copied = artifacts.load(tmp_path / "copy", "snapshot").manifest
    assert set(copied.files) == {
        "interactions/day=0/part.parquet",
        "interactions/day=1/part.parquet",
        "items/items.jsonl",
    }
    assert copied.summary["items"]["address"] == f"s3://{BUCKET}/items.jsonl"
    everything = b"".join(file.read_bytes() for file in (tmp_path / "copy").rglob("*") if file.is_file())
    assert b"s3cret-w0rd" not in everything


def test_only_what_changed_is_copied_again(store, shop, tmp_path) -> None:
    upload(store, shop)
    far = TablesSource(interactions=f"s3://{BUCKET}/log", items=shop / "items.jsonl", snapshot=tmp_path / "copy")
    snapshot.pull(far)
    kept = (tmp_path / "copy/interactions/day=0/part.parquet").stat().st_ino
    events = pl.read_parquet(shop / "log/day=1/part.parquet")
    pl.concat([events, events]).write_parquet(shop / "log/day=1/part.parquet")
    events.write_parquet(shop / "log/day=1/more.parquet")
    upload(store, shop)
    before = len(rows(far))
    snapshot.pull(far)
    assert len(rows(far)) == before + 2 * len(events)
    assert (tmp_path / "copy/interactions/day=0/part.parquet").stat().st_ino == kept


def test_a_bucket_that_vanishes_leaves_the_copy(store, shop, tmp_path) -> None:
    upload(store, shop)
    far = TablesSource(interactions=f"s3://{BUCKET}/log", items=shop / "items.jsonl", snapshot=tmp_path / "copy")
    before = snapshot.pull(far).manifest
    empty(store)
    with pytest.raises(DataError, match=rf"s3://{BUCKET}/log (cannot be read|holds no data files)"):
        snapshot.pull(far)
    assert artifacts.load(tmp_path / "copy").manifest == before
    assert rows(far)


def test_a_store_that_refuses(store, shop, tmp_path, monkeypatch) -> None:
    far = TablesSource(interactions=f"s3://{BUCKET}/nothing", items=shop / "items.jsonl", snapshot=tmp_path / "copy")
    with pytest.raises(DataError, match=r"holds no data files.*--set source\.interactions=ADDRESS"):
        open_source(far)
    s3fs.S3FileSystem.clear_instance_cache()
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free.getsockname()[1]}")
    with pytest.raises(DataError, match=r"cannot be read.*source\.interactions") as refused:
        open_source(far)
    assert "s3cret" not in str(refused.value) and not (tmp_path / "copy").exists()


def test_names_that_lead_out_of_the_copy_are_no_data() -> None:
    keys = ["b/log/a.csv", "b/log/../../../x.csv", "b/log/../_delta_log/x.json", "b/log/_delta_log/0.json"]
    store = SimpleNamespace(find=lambda root, detail: {key: {} for key in keys})
    assert [name for name, _ in addresses._listed(store, "b/log")] == ["a.csv", "_delta_log/0.json"]


def test_a_file_behind_http(shop, tmp_path) -> None:
    quiet = type("Quiet", (SimpleHTTPRequestHandler,), {"log_message": lambda *_: None})
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(quiet, directory=str(shop)))
    Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    far = TablesSource(interactions=shop / "log", items=f"{address}/items.jsonl", snapshot=tmp_path / "copy")
    assert rows(far) == rows(far.model_copy(update={"items": shop / "items.jsonl"}))
    with pytest.raises(DataError, match=r"holds no data files"):
        open_source(far.model_copy(update={"items": f"{address}/"}))
    with pytest.raises(DataError, match=r"nothing\.csv cannot be read: .*source\.items"):
        open_source(far.model_copy(update={"items": f"{address}/nothing.csv"}))
    server.shutdown()
    server.server_close()
    assert rows(far)  # of the copy


def test_addresses_that_are_refused(shop, tmp_path) -> None:
    for address in ("https://reader:s3cret@host/items.csv", "https://host/items.csv?sig=s3cret"):
        with pytest.raises(ValidationError, match="an address with a key or a query"):
            TablesSource(interactions="log", items=address)
    with pytest.raises(MissingDependency, match="pip install gcsfs"):
        open_source(TablesSource(interactions="gs://bucket/log", items=shop / "items.jsonl"))
    with pytest.raises(DataError, match="nowhere://x/y cannot be read: Protocol not known"):
        open_source(TablesSource(interactions="nowhere://x/y", items=shop / "items.jsonl"))
    with pytest.raises(ConfigError, match=r"source\.pseudonyms: a copy of s3://x would hold real ids"):
        open_source(TablesSource(interactions="s3://x", items=shop / "items.jsonl", pseudonyms=tmp_path / "key"))
    with pytest.raises(ConfigError, match="files on this disk"):
        snapshot.pull(TablesSource(interactions=shop / "log", items=shop / "items.jsonl"))


def test_of_a_delta_table_only_the_newest_version_is_read(store, shop, tmp_path) -> None:
    deltalake = pytest.importorskip("deltalake")
    events = pl.read_parquet(shop / "interactions.parquet").with_columns(channel=pl.col("event"))
    table = tmp_path / "tables" / "log"
    events.write_delta(table, delta_write_options={"partition_by": ["channel"]})
    events.head(100).write_delta(table, mode="overwrite")
    assert len(list(table.rglob("*.parquet"))) > len(deltalake.DeltaTable(table).file_uris())
    near = TablesSource(interactions=table, items=shop / "items.jsonl")
    assert open_source(near).interactions.collect().height == 100
    upload(store, tmp_path / "tables")
    far = TablesSource(interactions=f"s3://{BUCKET}/log", items=shop / "items.jsonl", snapshot=tmp_path / "copy")
    assert sorted(map(str, rows(far))) == sorted(map(str, rows(near)))


def test_tables_whose_files_do_not_tell_their_rows(shop, tmp_path, monkeypatch) -> None:
    iceberg = tmp_path / "iceberg"
    (iceberg / "metadata").mkdir(parents=True)
    (iceberg / "metadata" / "v1.metadata.json").write_text("{}")
    with pytest.raises(DataError, match=r"is an Iceberg table.*source\.kind=sql"):
        open_source(TablesSource(interactions=iceberg, items=shop / "items.jsonl"))
    broken = tmp_path / "delta"
    (broken / "_delta_log").mkdir(parents=True)
    with pytest.raises(DataError, match="no readable Delta table"):
        open_source(TablesSource(interactions=broken, items=shop / "items.jsonl"))
    monkeypatch.setitem(__import__("sys").modules, "deltalake", None)
    with pytest.raises(MissingDependency, match=r"pip install 'merit-interests\[delta\]'"):
        open_source(TablesSource(interactions=broken, items=shop / "items.jsonl"))
