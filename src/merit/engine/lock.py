"""One job at a time on one output.

On disk it is a lock of the system, which ends with its process however that ends. In a store it is an object that its
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
RENEWAL = 15.0  # seconds between two signs of life
EXPIRY = 90.0  # seconds without one: several are missed, not one
SETTLING = 2.0  # seconds until nobody takes over any more what several saw to be dead


@contextmanager
def locked(folder: str) -> Iterator[None]:
    """Hold the lock of a folder while the block runs."""
    if path := storage.local(folder):
        busy = f"Another run is at work in {folder}. Wait for it, or stop it; what it has finished is kept."
        try:
            with files.locked(path / LOCK, busy, fleeting=True):
                yield
        finally:
            with suppress(OSError):
                path.rmdir()  # only if nothing came of it
        return
    address, token, over = storage.within(folder, LOCK), uuid.uuid4().hex, threading.Event()
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
    holder = _holder(address)
    dead = bool(holder) and time.time() - holder["at"] > EXPIRY
    if dead:
        console.warn(f"{address} was held by {holder['host']}, which is gone; taken over", address=address)
        storage.remove(address)
    created = storage.create(address, _signature(token))
    if created and dead:
        time.sleep(SETTLING)  # another may have seen the same, and remove what was just created
    if not created or _holder(address).get("token") != token:
        raise StorageError(
            f"Another run, on {_holder(address).get('host')}, holds {address}. Wait for it, or stop it; "
            f"that of a killed run may be taken {EXPIRY:.0f} seconds later."
        )


def _renew(address: str, token: str, over: threading.Event) -> None:
    while not over.wait(RENEWAL):
        try:
            if (holder := _holder(address)) and holder["token"] != token:
                console.warn(f"{address} belongs to {holder['host']} now: this run was silent for too long")
                return
            storage.put(address, _signature(token))
        except StorageError as error:  # the next renewal may succeed
            console.warn(str(error), address=address)


def _holder(address: str) -> dict[str, Any]:
    holder: dict[str, Any] = json.loads(storage.get(address) or b"{}")
    return holder


def _signature(token: str) -> bytes:
    return json.dumps({"token": token, "host": socket.gethostname(), "at": time.time()}).encode()
