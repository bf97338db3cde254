"""One job at a time on one output.

On disk it is a lock of the system, which goes with its process however that ends. In a store, it is an object that its
holder renews; one that was not renewed for a while belongs to a dead process, and may be taken.
"""

from __future__ import annotations

import json
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from merit.core import console, files
from merit.core.errors import StorageError
from merit.engine import storage

LOCK = ".lock"
RENEWED = 15.0  # seconds between two signs of life
DEAD = 90.0  # seconds without one: several are missed, not one
SETTLED = 2.0  # seconds until nobody takes over any more what several saw to be dead


@contextmanager
def held(folder: str) -> Iterator[None]:
    """While the block runs, nobody else holds this folder."""
    if path := storage.local(folder):
        busy = f"Another run is at work in {folder}. Wait for it, or stop it; what it has finished is kept."
        try:
            with files.locked(path / LOCK, busy, fleeting=True):
                yield
        finally:
            with suppress(OSError):
                path.rmdir()  # only if nothing came of it
        return
    with _leased(storage.within(folder, LOCK)):
        yield


@contextmanager
def _leased(address: str) -> Iterator[None]:
    token, over = uuid.uuid4().hex, threading.Event()
    _take(address, token)
    renewing = threading.Thread(target=_renew, args=(address, token, over), daemon=True)
    renewing.start()
    try:
        yield
    finally:
        over.set()
        renewing.join()
        if _holder(address).get("token") == token:
            storage.remove(address)


def _take(address: str, token: str) -> None:
    dead = bool(had := _holder(address)) and time.time() - had["at"] > DEAD
    if dead:
        console.warn(f"{address} was held by {had['host']}, which is gone; taken over", address=address)
        storage.remove(address)
    created = storage.create(address, _sign(token))
    if created and dead:
        time.sleep(SETTLED)  # another may have seen the same, and remove what was just created
    if not created or _holder(address).get("token") != token:
        raise StorageError(
            f"Another run, on {_holder(address).get('host')}, holds {address}. Wait for it, or stop it; "
            f"that of a killed run may be taken {DEAD:.0f} seconds later."
        )


def _renew(address: str, token: str, over: threading.Event) -> None:
    while not over.wait(RENEWED):
        try:
            if (holder := _holder(address)) and holder["token"] != token:
                console.warn(f"{address} is {holder['host']}'s now: nothing was heard of this run for too long")
                return
            storage.put(address, _sign(token))
        except StorageError as error:  # the next time may do; a job is not worth less for it
            console.warn(str(error), address=address)


def _holder(address: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(storage.get(address) or b"{}")
    return found


def _sign(token: str) -> bytes:
    return json.dumps({"token": token, "host": socket.gethostname(), "at": time.time()}).encode()
