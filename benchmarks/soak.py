"""The service for half an hour, by many clients at once, of whose requests one in four is hostile.

    python -m benchmarks.soak --minutes 30 --clients 32     # half an hour
    python -m benchmarks.soak --quick                       # a minute, with a smaller model

It asks for what `benchmarks.serve` mixes, and beside it sends what an attacker would: keys that come twice, JSON
without a bottom, broken text, two lengths, paths that lead out, tables that unpack to much, headers that never end,
connections that say nothing, bodies that stop half way. A process of its own asks for /health five times a second. The
exit code is 1 unless every answer with 5xx was 503 with Retry-After, /health was answered within a second throughout,
and memory stayed flat. --data FOLDER keeps the model there, or finds it there.
"""

from __future__ import annotations

import io
import json
import os
import random
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Lock

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import harness, serve
from benchmarks.serve import Asker, Memory, Questions
from merit.core.errors import DataError
from merit.service import keys
from merit.service.openapi import EXAMPLES

FLAT = 1.10  # of its own memory: the last tenth over the second, as caches and threads fill in the first
HEALTHY = 1.0  # seconds
HOSTILE = 0.25  # of all requests
PATIENCE = 60  # seconds for an answer
SIZES = {False: serve.FULL._replace(users=200_000, labels=50_000), True: serve.QUICK}
JSON = {"Content-Type": "application/json"}

Headers = dict[str, str]
Request = tuple[str, str, bytes, Headers]  # method, path, body, headers


def bomb() -> bytes:
    """A form with a Parquet file of few kilobytes whose rows repeat two long texts."""
    file, rows = io.BytesIO(), 100_000
    texts = pa.DictionaryArray.from_arrays(pa.array([row % 2 for row in range(rows)]), ["a" * 20_480, "b" * 20_480])
    table = pa.table({"user_id": texts, "arm": ["merit", "expert"] * (rows // 2), "bought": [0] * rows})
    pq.write_table(table, file, compression="zstd", store_schema=False)
    parts = [
        b'--x\r\nContent-Disposition: form-data; name="design"\r\n\r\n'
        + json.dumps(EXAMPLES["design"]["request"]).encode(),
        b'--x\r\nContent-Disposition: form-data; name="table"; filename="../../a.parquet"\r\n\r\n' + file.getvalue(),
    ]
    return b"\r\n".join([*parts, b"--x--\r\n"])


def hostile(users: list[str]) -> list[Callable[[random.Random], Request]]:
    """What a stranger, or somebody with a key, may send."""
    twice = b"{" + b",".join(b'"k%d":0' % (number % 20_000) for number in range(40_000)) + b"}"
    packed = bomb()
    paths = (
        "/v1/../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/v1/users/%00/interests",
        "/v1/labels/-1",
        "/" + "a" * 30_000,
    )
    bodies = (
        b"[" * 100_000,
        b'{"text": NaN}',
        b'{"text": "\\ud800"}',
        b"\xff\xfe\x00",
        b'{"text": 1e999}',
        b"[" + b"[]," * 60_000,
    )
    routes = ("/v1/interest", "/v1/score", "/v1/audience/preview", "/v1/audiences", "/v1/experiments/analyze", "/")
    return [
        lambda rng: ("POST", rng.choice(routes), twice, JSON),
        lambda rng: ("POST", rng.choice(routes), rng.choice(bodies), JSON),
        lambda rng: ("POST", rng.choice(routes), rng.randbytes(rng.randrange(5_000)), JSON),
        lambda rng: ("GET", rng.choice(paths), b"", {}),
        lambda rng: (rng.choice(("TRACE", "PUT", "DELETE", "OPTIONS", "HEAD")), rng.choice(routes), b"x", {}),
        lambda rng: (
            "POST",
            "/v1/score",
            b"5\r\nhello\r\n0\r\n\r\n",
            {"Transfer-Encoding": "chunked", "Content-Length": "5"},
        ),
        lambda rng: (
            "POST",
            "/v1/experiments/analyze-table",
            packed,
            {"Content-Type": "multipart/form-data; boundary=x"},
        ),
        lambda rng: (
            "GET",
            f"/v1/users/{rng.choice(users)}/interests",
            b"",
            {"Authorization": "Bearer " + "x" * 9_000},
        ),
        lambda rng: ("POST", "/v1/score", json.dumps({"users": users[:400] * 30, "interests": ["a"]}).encode(), JSON),
        lambda rng: (
            "GET",
            f"/v1/users/{rng.choice(users)}/interests?k={rng.choice(('-1', '1e9', '99999999999999999999'))}",
            b"",
            {},
        ),
    ]


def stalling(port: int, rng: random.Random, opened: list[socket.socket]) -> None:
    """A connection that says nothing, or stops half way; the oldest of a hundred is given up."""
    beginnings = (
        b"",
        b"GET / HTTP/1.1\r\nHost: a\r\nX-A: ",
        b"POST /v1/score HTTP/1.1\r\nHost: a\r\nContent-Length: 99999\r\n\r\n{",
    )
    line = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
    line.sendall(rng.choice(beginnings))
    opened.append(line)
    if len(opened) > 100:
        opened.pop(0).close()


class Tally:
    """What clients got, by status; and what ought not to have come."""

    def __init__(self) -> None:
        self.statuses: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self._lock = Lock()

    def note(self, what: str, status: int | None, retry_after: str | None = None) -> None:
        with self._lock:
            self.statuses[str(status or "closed")] += 1
            if status and status >= 500 and not (status == 503 and retry_after):
                self.faults[f"{status} to {what}"] += 1


class Client:
    """A client of the mix: every request is told to the tally, and a broken connection is opened again."""

    def __init__(self, port: int, secret: str, tally: Tally, rng: random.Random) -> None:
        self._port, self._tally, self.rng = port, tally, rng
        self._key = {"Authorization": f"Bearer {secret}"}
        self._connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE)

    def ask(self, path: str, body: object = None) -> float:
        """As an `Asker` does, so that a question of `benchmarks.serve` can be put; no status is an error."""
        sent = b"" if body is None else json.dumps(body).encode()
        self.send(("GET" if body is None else "POST", path, sent, JSON if sent else {}))
        return 0.0

    def send(self, request: Request) -> None:
        method, path, body, headers = request
        status, retry_after = None, None
        try:
            self._connection.putrequest(method, path, skip_accept_encoding=True)
            for name, value in ({"Content-Length": str(len(body))} | self._key | headers).items():
                self._connection.putheader(name, value)
            self._connection.endheaders(body)
            answer = self._connection.getresponse()
            answer.read()
            status, retry_after = answer.status, answer.getheader("Retry-After")
        except (OSError, HTTPException, ValueError):
            self._connection.close()
        self._tally.note(f"{method} {path[:60]}", status, retry_after)


def one_client(number: int, port: int, secret: str, questions: Questions, tally: Tally, end: Event) -> None:
    client, opened = Client(port, secret, tally, random.Random(number)), list[socket.socket]()
    attacks = hostile(questions.users)
    while not end.is_set():
        if client.rng.random() > HOSTILE:
            questions.mixed(client)  # type: ignore[arg-type]  # it has the one method that is called
        elif client.rng.random() < 0.1:
            with suppress(OSError):
                stalling(port, client.rng, opened)
        else:
            client.send(client.rng.choice(attacks)(client.rng))


def health(port: int, seconds: float) -> list[float]:
    """The seconds of each answer of /health, on a new connection each; infinity for none."""
    took, end = [], time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.2)
        begin = time.perf_counter()
        try:
            Asker(port, "").ask("/health")
            took.append(time.perf_counter() - begin)
        except (OSError, HTTPException, DataError):
            took.append(float("inf"))
    return took


def soak(
    folder: Path, state: Path, seconds: float, clients: int, audience: int, seed: int
) -> tuple[serve.Figures, Tally]:
    _, secret = keys.create(state / keys.FILE, "soak", ["read", "audience", "export"])
    questions, tally, end, memory = Questions(folder, audience, seed), Tally(), Event(), list[float]()
    with (
        serve.served(folder, state, "--set", "seconds=30") as (child, port, _),
        ThreadPoolExecutor(clients) as pool,
        ProcessPoolExecutor(1, mp_context=get_context("spawn")) as beside,  # an interpreter lock of its own
    ):
        asked = beside.submit(health, port, seconds)
        working = [pool.submit(one_client, n, port, secret, questions, tally, end) for n in range(clients)]
        try:
            for _ in range(10):
                time.sleep(seconds / 10)
                memory.append(Memory.of(child.pid).own)
        finally:
            end.set()
        for client in working:
            client.result()
        took, alive = asked.result(), child.poll() is None
    requests = sum(tally.statuses.values())
    return {
        "requests": requests,
        "per_second": round(requests / seconds, 1),
        "faults": sum(tally.faults.values()) + (not alive),
        "health_asked": len(took),
        "health_worst_seconds": round(max(took), 3),
        "own_memory_growth": round(memory[-1] / memory[1], 3),
        "own_memory_mib": [round(size) for size in memory],
        "statuses": dict(sorted(tally.statuses.items())),
    }, tally


def main() -> None:
    parser = harness.parser(__doc__)
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--clients", type=int, default=32)
    given = parser.parse_args()
    sizes, minutes = SIZES[given.quick], given.minutes or (1.0 if given.quick else 30.0)
    with TemporaryDirectory() as temporary:
        folder = serve.model_in(given.data or Path(temporary), sizes, given.seed)
        figures, tally = soak(
            folder, Path(temporary) / "state", 60 * minutes, given.clients, sizes.audience, given.seed
        )
    remarks = {
        "load": "processes that wanted a core, the minute before the end; far above the cores, figures are no claim",
        "faults": "aim 0: answers with 5xx that were not 503 with Retry-After"
        + "".join(f"; {k}: {n}" for k, n in tally.faults.items()),
        "health_worst_seconds": f"aim ≤ {HEALTHY:g}",
        "own_memory_growth": f"aim ≤ {FLAT:g}: the end over the second tenth",
    }
    sound = (
        not figures["faults"] and figures["health_worst_seconds"] <= HEALTHY and figures["own_memory_growth"] <= FLAT
    )
    harness.finish(
        "soak",
        {"minutes": minutes, "clients": given.clients, "sound": sound, "load": round(os.getloadavg()[0], 1)} | figures,
        given.seed,
        remarks,
    )
    sys.exit(not sound)


if __name__ == "__main__":
    harness.run(main)
