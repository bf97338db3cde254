"""Rows to a webhook: batches of JSON by POST, each acknowledged before the next one is sent.

    {"delivery": "5f0c…", "audience": "Spring", "mode": "mirror", "batch": 3, "batches": 7, "rows": [{…}, …]}

A batch carries an `Idempotency-Key`, which is the same whenever it is sent again: after a time-out, or by the run after
one that was killed. What was acknowledged is recorded beside the audience, without any user in it. A webhook cannot be
read, so a changed audience is sent whole, and the receiver does what the mode says; of a mirror, it removes with the
last batch the rows of the audience that came with other deliveries. So leavers and erased users go without being named.
"""

from __future__ import annotations

import json
import math
import random
import time
import uuid
from contextlib import closing, suppress
from hashlib import sha256
from http.client import HTTPConnection, HTTPException, HTTPSConnection, InvalidURL
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlsplit

import polars as pl
from pydantic import ValidationError

from merit import __version__
from merit.campaigns.sync.destination import Mode, Webhook, title
from merit.campaigns.sync.rows import Outgoing, Proceed, SyncCounts
from merit.core import files, secrets
from merit.core.config import Frozen
from merit.core.console import track
from merit.core.errors import ConfigError, DestinationError

AGAIN = {408, 425, 429, 500, 502, 503, 504}  # answers after which a batch is sent again
LONGEST_WAIT = 120.0  # seconds, whatever Retry-After says


class DeliveryRecord(Frozen):
    """How far a delivery is. It is written anew after every acknowledged batch."""

    delivery: str
    """A random name, which the keys of the batches begin with."""
    content: str
    """sha256 of the rows and of how they are sent: for other rows, there is another delivery."""
    at: str
    """updated_at of the rows: a batch that is sent again has the same bytes."""
    acknowledged: int = 0
    """Batches, in their order."""


def deliver(outgoing: Outgoing, destination: Webhook, mode: Mode, proceed: Proceed) -> SyncCounts:
    """Send all batches that were not acknowledged yet; none of an unchanged audience."""
    url = secrets.read(destination.address, "the URL of the webhook")
    token = secrets.read(destination.token, "the token that the webhook expects") if destination.token else None
    endpoint = Endpoint(destination, url, token)
    rows, place = outgoing.table(), record_file(outgoing, destination, endpoint)
    with files.locked(place.with_suffix(".lock"), f"Another sync to {title(destination)} runs. Wait for it.", True):
        content = digest(rows, outgoing, destination, mode)
        record = read(place)
        if record is None or record.content != content:
            record = DeliveryRecord(delivery=uuid.uuid4().hex, content=content, at=outgoing.at)
        parts = batches(rows, destination.batch)
        done = sum(map(len, parts[: record.acknowledged]))
        counts = SyncCounts(added=len(rows) - done, updated=0, removed=0, unchanged=done)
        if proceed(counts):
            send(parts, record, place, endpoint, {"audience": outgoing.audience, "mode": mode})
    return counts


def batches(rows: pl.DataFrame, most: int) -> list[pl.DataFrame]:
    """Parts of nearly one size; of no rows, one empty part, which tells the receiver so."""
    count = max(1, math.ceil(len(rows) / most))
    ends = [round(len(rows) * part / count) for part in range(count + 1)]
    return [rows[start:end] for start, end in pairwise(ends)]


def send(
    parts: list[pl.DataFrame], record: DeliveryRecord, place: Path, endpoint: Endpoint, head: dict[str, str]
) -> None:
    """One batch after the other, from the first that was not acknowledged."""
    files.write(place, record.model_dump_json())  # its keys must outlive a kill before the first answer
    names = endpoint.destination.columns
    for number in track(range(record.acknowledged, len(parts)), "batches"):
        rows = parts[number].select(
            pl.col("external_id").alias(names.external_id),
            pl.lit(head["audience"]).alias(names.audience),
            pl.col("payload").alias(names.payload),
            pl.lit(record.at).alias(names.updated_at),
        )
        body = {
            "delivery": record.delivery,
            **head,
            "batch": number + 1,
            "batches": len(parts),
            "rows": rows.to_dicts(),
        }
        endpoint.post(json.dumps(body).encode(), f"{record.delivery}-{number + 1}")
        record = record.model_copy(update={"acknowledged": number + 1})
        files.write(place, record.model_dump_json())


class Endpoint:
    """A URL that takes batches."""

    def __init__(self, destination: Webhook, url: str, token: str | None) -> None:
        self.destination, self._token = destination, token
        wrong = f"The environment variable {destination.address} holds no http:// or https:// address."
        try:
            self._url, self._port = urlsplit(url), urlsplit(url).port
        except ValueError:
            raise ConfigError(wrong) from None
        if self._url.scheme not in ("http", "https") or not self._url.hostname:
            raise ConfigError(wrong)
        self._secrets = (url, self._url.path, self._url.query, token or "")

    @property
    def origin(self) -> str:
        """Without path and query, which may be secret."""
        return f"{self._url.scheme}://{self._url.hostname}:{self._port or ''}"

    def post(self, body: bytes, key: str) -> None:
        """Returns once the batch is acknowledged with 2xx; it is tried again where that can help."""
        wait, reason = self.destination.wait, ""
        for attempt in range(self.destination.attempts):
            if attempt:
                time.sleep(min(wait * (0.75 + random.random() / 2), LONGEST_WAIT))
                wait *= 2
            try:
                status, retry_after = self._once(body, key)
            except InvalidURL:
                raise ConfigError(f"The URL in {self.destination.address} is not one. Correct it.") from None
            except (OSError, HTTPException) as error:
                reason = secrets.cleared(str(error) or type(error).__name__, *self._secrets)[:400]
                continue
            if 200 <= status < 300:
                return
            reason = f"it answered {status}"
            if status not in AGAIN:
                break
            wait = max(wait, retry_after)
        raise DestinationError(
            f"{title(self.destination)} did not take a batch: {reason}. What it acknowledged is recorded: sync again, "
            "and the rest is sent."
        )

    def _once(self, body: bytes, key: str) -> tuple[int, float]:
        """Status and Retry-After. A connection serves one batch: a late answer is none of the next one."""
        kind = HTTPSConnection if self._url.scheme == "https" else HTTPConnection
        path = (self._url.path or "/") + (f"?{self._url.query}" if self._url.query else "")
        headers = {"Content-Type": "application/json", "Idempotency-Key": key, "User-Agent": f"merit/{__version__}"}
        headers |= {"Connection": "close"} | ({"Authorization": f"Bearer {self._token}"} if self._token else {})
        with closing(kind(str(self._url.hostname), self._port, timeout=self.destination.timeout)) as connection:
            connection.request("POST", path, body, headers)
            response = connection.getresponse()
            response.read(1 << 16)
            with suppress(ValueError):
                return response.status, float(response.headers.get("Retry-After", 0))
            return response.status, 0.0


def digest(rows: pl.DataFrame, outgoing: Outgoing, destination: Webhook, mode: Mode) -> str:
    """Of all that decides what is sent, but for its time."""
    how = json.dumps([outgoing.audience, mode, destination.columns.all, destination.batch])
    hashes = sha256(how.encode())
    for column in ("external_id", "payload"):
        hashes.update(json.dumps(rows[column].to_list()).encode())
    return hashes.hexdigest()


def record_file(outgoing: Outgoing, destination: Webhook, endpoint: Endpoint) -> Path:
    """Beside what the rows were made from; one for each audience and each receiver."""
    receiver = sha256(f"{destination.address} {endpoint.origin} {outgoing.audience}".encode()).hexdigest()[:12]
    return outgoing.folder.parent / f".{outgoing.folder.name}.sync-{receiver}.json"


def read(place: Path) -> DeliveryRecord | None:
    """What was recorded; None for nothing, and for what cannot be read: then the audience is sent whole."""
    try:
        return DeliveryRecord.model_validate_json(place.read_bytes())
    except (OSError, ValidationError):
        return None
