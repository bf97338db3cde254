"""Rows into a Parquet or CSV file on disk or in a bucket: a table that is replaced as a whole, or not at all.

Several audiences may share a file; those of others stay in it as they are. CSV is written as an export writes it: a
cell that a spreadsheet would run has an apostrophe in front.
"""

from __future__ import annotations

import io
import re

import fsspec
import polars as pl

from merit.campaigns.audiences.export import WRITERS, unmarked
from merit.campaigns.sync.destination import ColumnNames, Mode, ObjectFile, refusals
from merit.campaigns.sync.rows import Outgoing, Proceed, SyncCounts
from merit.core.errors import DestinationError, MissingDependency, StorageError
from merit.engine import lock, storage

BUCKETS = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss")
KEYS = ("external_id", "audience")
KEYS_AND_PAYLOAD = (*KEYS, "payload")


def deliver(outgoing: Outgoing, destination: ObjectFile, mode: Mode, proceed: Proceed) -> SyncCounts:
    """Bring the rows of this audience in the file to those of `outgoing`. One sync of a file at a time."""
    address = address_of(destination, outgoing.audience)
    with refusals(address, (StorageError, OSError)):
        _require_bucket(address)
    with refusals(address, (StorageError, OSError)), lock.locked(f"{address}.sync"):
        before = read(address, destination.columns)
        after, counts = merged(before, wanted(outgoing), outgoing.audience, mode)
        if proceed(counts) and (counts.written or before is None):
            storage.put(address, written(after, address, destination.columns))
    return counts


def _require_bucket(address: str) -> None:
    """Refuse a bucket that is not there: a library may make one of a slip in its name, and users would go there."""
    scheme, mark, path = address.partition("://")
    if mark and scheme in BUCKETS:
        bucket = path.partition("/")[0]
        try:
            system = fsspec.filesystem(scheme)
        except ImportError as error:
            raise MissingDependency(f"{address} needs another package. {error}.") from None
        if not system.exists(bucket):
            raise DestinationError(f"There is no bucket '{bucket}' for {address}. Make it, or correct the address.")


def address_of(destination: ObjectFile, audience: str) -> str:
    """Where the file of an audience is."""
    return destination.address.replace(
        "{audience}", re.sub(r"[^\w]+", "-", audience.casefold()).strip("-") or "audience"
    )


def wanted(outgoing: Outgoing) -> pl.DataFrame:
    """All four columns of the rows to be sent."""
    at = pl.lit(outgoing.at).str.to_datetime("%Y-%m-%dT%H:%M:%S%z", time_unit="us", time_zone="UTC")
    return outgoing.table().select("external_id", pl.lit(outgoing.audience).alias("audience"), "payload", updated_at=at)


def merged(
    before: pl.DataFrame | None, rows: pl.DataFrame, audience: str, mode: Mode
) -> tuple[pl.DataFrame, SyncCounts]:
    """The file's rows after a sync of one audience by this mode, sorted, and how they differ from those before."""
    all_before = rows.clear() if before is None else before
    theirs = all_before.filter(pl.col("audience") == audience)
    gone = theirs.join(rows, on=KEYS, how="anti")
    new = rows.join(theirs, on=KEYS, how="anti")
    both = rows.join(theirs, on=KEYS, how="inner", suffix="_before")
    changed = both.filter(pl.col("payload") != pl.col("payload_before")).select(rows.columns)
    same = len(both) - len(changed)
    found = SyncCounts(added=len(new), updated=len(changed), removed=len(gone), unchanged=same).under(mode)
    dropped = [frame for frame, count in ((gone, found.removed), (changed, found.updated)) if count]
    left = all_before
    for frame in dropped:
        left = left.join(frame, on=KEYS, how="anti")
    return pl.concat([left, *([changed] if found.updated else []), new]).sort("audience", "external_id"), found


def read(address: str, names: ColumnNames) -> pl.DataFrame | None:
    """The rows of the file; None if there is none."""
    data = storage.get(address)
    if data is None:
        return None
    if address.endswith(".csv"):
        table = pl.read_csv(data, infer_schema=False).with_columns(unmarked(pl.all()))
    else:
        table = pl.read_parquet(data)
    if missing := [name for name in names.all if name not in table.columns]:
        raise DestinationError(
            f"{address} has no column '{missing[0]}', but {', '.join(table.columns)}. Map it under columns = {{ … }}, "
            "or name another file. Nothing was changed."
        )
    texts = [
        pl.col(name).cast(pl.String).alias(ours) for ours, name in zip(KEYS_AND_PAYLOAD, names.all[:3], strict=True)
    ]
    time = pl.col(names.updated_at)
    if address.endswith(".csv"):
        time = time.str.to_datetime("%Y-%m-%dT%H:%M:%SZ", time_unit="us").dt.replace_time_zone("UTC")
    return table.select(*texts, time.alias("updated_at"))


def written(rows: pl.DataFrame, address: str, names: ColumnNames) -> bytes:
    """The bytes of the file."""
    file = io.BytesIO()
    if address.endswith(".csv"):
        rows = rows.with_columns(pl.col("updated_at").dt.strftime("%Y-%m-%dT%H:%M:%SZ"))
    renamed = rows.rename(dict(zip(ColumnNames.model_fields, names.all, strict=True))).lazy()
    WRITERS["csv" if address.endswith(".csv") else "parquet"](renamed, file)
    return file.getvalue()
