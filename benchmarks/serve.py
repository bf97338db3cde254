"""The service at 1 million users and 291,000 labels: `merit serve` in a process of its own, asked over loopback.

    python -m benchmarks.serve                      # 15 minutes or so on 2 idle cores; 5 GB in a temporary folder
    python -m benchmarks.serve --out large          # keeps the model there, and takes it again the next time
    python -m benchmarks.serve --quick              # 20,000 users, 5,000 labels

Weights, users and labels are random (`benchmarks.large_model`), the artifacts and the process are real. Every preview
that is timed is of an interest that was not asked for before; `preview_again` is the same one with another size. Its
time and that of the bare scorer call, the best 10,000 users for a label, are taken in turns. A client sends its next
request when it has the answer to the one before. Rates are limited by the service's settings, which are set high.

The three figures to look at first: `preview_overhead`, `p99_ms` (the worst of all that were taken) and `rss_growth`.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection
from itertools import count
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from safetensors.numpy import load_file

from benchmarks import harness, large_model
from merit.core.artifacts import MANIFEST
from merit.core.errors import DataError
from merit.core.processes import cores
from merit.core.seeds import stream
from merit.retrieval.exact import ScorerWeights
from merit.retrieval.scorer import Scorer
from merit.service import keys

USERS, LABELS, AUDIENCE, INTERESTS = 1_000_000, 291_000, 10_000, 10
AGAIN = 10_000  # users and labels that the mixed requests come back to, so that what they map is mapped after a tenth
CLIENTS = (1, 8, 32)
PATIENCE = 600  # seconds
LIMITS = {"rate": 1_000_000, "burst": 1_000_000, "seconds": PATIENCE}
Figures = dict[str, Any]
Remarks = dict[str, str]


class Sizes(NamedTuple):
    """How much is asked."""

    users: int
    labels: int
    audience: int
    rounds: int  # of comparisons with the bare scorer
    interests: int  # requests in all, for every number of clients: as many answers behind each p99
    previews: int
    mixed: int  # requests over which memory is watched


FULL = Sizes(USERS, LABELS, AUDIENCE, rounds=15, interests=200, previews=100, mixed=100_000)
QUICK = Sizes(20_000, 5_000, 1_000, rounds=3, interests=40, previews=20, mixed=1_000)


class Asker:
    """One connection to the service, kept open."""

    def __init__(self, port: int, secret: str) -> None:
        self._connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        self._headers = {"Authorization": f"Bearer {secret}", "Content-Type": "application/json"}

    def ask(self, path: str, body: Any = None) -> float:
        """The seconds of a GET, or of a POST with a body; anything but 200 ends the benchmark."""
        begin = time.perf_counter()
        sent = None if body is None else json.dumps(body)
        self._connection.request("GET" if body is None else "POST", path, sent, self._headers)
        response = self._connection.getresponse()
        told = response.read()
        if response.status != 200:
            raise DataError(f"The service answered {response.status} to {path}: {told.decode()[:300]}")
        return time.perf_counter() - begin


Question = Callable[[Asker], float]


class Questions:
    """What is asked: users and interests at random, no interest twice."""

    def __init__(self, folder: Path, audience: int, seed: int) -> None:
        rng = stream(seed, "benchmarks.serve")
        users = pl.read_parquet(folder / "model/users.parquet", columns=["user_id"])["user_id"]
        table = pl.read_parquet(folder / "model/labels/labels.parquet").filter(pl.col("status") == "live")
        self.users = users.gather(rng.permutation(len(users))[:AGAIN]).to_list()
        order = rng.permutation(len(table))
        self.labels, self.texts = table["id"].gather(order).to_list(), table["text"].gather(order).to_list()
        self.audience, self._numbers, self._lock = audience, {"user": count(), "label": count()}, Lock()

    def next(self, what: str) -> int:
        with self._lock:
            return next(self._numbers[what])

    def interests(self, asker: Asker) -> float:
        user = self.users[self.next("user") % len(self.users)]
        return asker.ask(f"/v1/users/{user}/interests?k={INTERESTS}")

    def preview(self, asker: Asker) -> float:
        return self.preview_of(asker, self.next("label"), self.audience)

    def preview_of(self, asker: Asker, number: int, size: int) -> float:
        text = self.texts[number % len(self.texts)]
        wanted = {"name": "Spring", "interests": [text], "size": {"by": "count", "users": size}}
        return asker.ask("/v1/audience/preview", wanted)

    def mixed(self, asker: Asker) -> float:
        """Of a thousand: ten lists of interests, one preview, and what costs little."""
        at = self.next("user")
        user, label = self.users[at % len(self.users)], at % min(AGAIN, len(self.texts))
        if at % 1_000 == 0:
            return self.preview(asker)
        if at % 100 == 0:
            return self.interests(asker)
        paths = ("/ready", "/v1/key", f"/v1/labels/{self.labels[label]}", "/health")
        if at % 5:
            return asker.ask(paths[at % len(paths)])
        return asker.ask("/v1/score", {"users": [user], "interests": [self.texts[label]]})


@contextmanager
def served(folder: Path, state: Path, *words: str) -> Iterator[tuple[subprocess.Popen[bytes], int, float]]:
    """`merit serve` in a child, its port, and the seconds until it was ready."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    limits = [word for name, value in LIMITS.items() for word in ("--set", f"{name}={value}")]
    start = [sys.executable, "-c", "from merit.cli import main; main()", "serve", str(folder), "--port", str(port)]
    begin = time.perf_counter()
    with (state.parent / "log").open("ab") as log:
        child = subprocess.Popen([*start, "--state", str(state), *limits, *words], stdout=log, stderr=log)
    try:
        wait_until_ready(child, port, state.parent / "log")
        yield child, port, time.perf_counter() - begin
    finally:
        child.terminate()
        child.wait(PATIENCE)


def wait_until_ready(child: subprocess.Popen[bytes], port: int, log: Path) -> None:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end and child.poll() is None:
        try:
            Asker(port, "").ask("/ready")
            return
        except OSError:
            time.sleep(0.02)
    raise DataError(f"The service was never ready: {log.read_text(errors='replace')[-500:]}")


def load(question: Question, port: int, secret: str, clients: int, requests: int) -> tuple[float, list[float]]:
    """So many requests by so many clients: requests a second, and the seconds of each."""
    left, lock = iter(range(requests)), Lock()

    def client(_: int) -> list[float]:
        asker, took = Asker(port, secret), []
        while True:
            with lock:
                if next(left, None) is None:
                    return took
            took.append(question(asker))

    begin = time.perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        found = [seconds for took in pool.map(client, range(clients)) for seconds in took]
    return requests / (time.perf_counter() - begin), found


def by_clients(name: str, question: Question, port: int, secret: str, requests: int) -> tuple[Figures, Remarks]:
    figures, remarks = {}, {}
    for clients in CLIENTS:
        rate, took = load(question, port, secret, clients, requests)
        key = f"{name}_{clients}_clients"
        figures |= {f"{key}_per_second": round(rate, 2)}
        figures |= {f"{key}_p{p}_ms": round(1e3 * float(np.percentile(took, p))) for p in (50, 99)}
        remarks[f"{key}_per_second"] = f"{requests} requests"
    return figures, remarks


def against_scorer(
    folder: Path, questions: Questions, asker: Asker, rounds: int
) -> tuple[dict[str, harness.Ratio], list[float]]:
    """Service and bare scorer in turns; and previews of the same interests with another size."""
    model = folder / "model"
    scorer = Scorer.read(ScorerWeights.of(load_file(model / "mlp.safetensors")), model / "users", model / "interests")
    live = (pl.read_parquet(model / "labels/labels.parquet")["status"] == "live").to_numpy()
    asked: list[int] = []

    def preview() -> None:
        asked.append(questions.next("label"))
        questions.preview_of(asker, asked[-1], questions.audience)

    def audience() -> None:
        label = questions.labels[questions.next("label")]
        next(scorer.audiences(scorer.labels.vectors.take(slice(label, label + 1)), [questions.audience]))

    def interests() -> None:
        row = questions.next("user") % len(scorer.users)
        next(scorer.all_interests(INTERESTS, np.array([row]), live))

    found = {
        "preview": harness.alternate(preview, audience, rounds),
        "interests": harness.alternate(lambda: questions.interests(asker), interests, rounds),
    }
    return found, [questions.preview_of(asker, number, questions.audience + 1) for number in asked[-10:]]


class Memory(NamedTuple):
    """MiB of a process."""

    all: float
    own: float  # without what is mapped from files, which the system takes back when it needs it

    @staticmethod
    def of(child: int) -> Memory:
        told = dict(line.split(":", 1) for line in Path(f"/proc/{child}/status").read_text().splitlines())
        return Memory(*(int(told[name].split()[0]) / 1024 for name in ("VmRSS", "RssAnon")))


def watched(questions: Questions, port: int, secret: str, child: int, requests: int) -> tuple[Figures, Remarks]:
    """Memory at every tenth of many requests. The first tenth fills caches and pools, so growth counts from there."""
    if not Path(f"/proc/{child}/status").exists():
        return {"rss_growth": None}, {"rss_growth": "not known: this system has no /proc"}
    rates, seen = [], [Memory.of(child)]
    for _ in range(10):
        rates.append(load(questions.mixed, port, secret, 8, requests // 10)[0])
        seen.append(Memory.of(child))
    figures = {
        "rss_growth": round(seen[-1].all / seen[1].all - 1, 4),
        "mixed_per_second": round(median(rates), 1),
        "memory_mib": round(max(each.all for each in seen)),
        "own_memory_mib": round(seen[-1].own),
        "own_memory_growth": round(seen[-1].own / seen[1].own - 1, 4),
    }
    whole, path = (", ".join(f"{size:.0f}" for size in sizes) for sizes in zip(*seen, strict=True))
    return figures, {
        "rss_growth": f"aim: flat; from the first tenth to the last, with all that is mapped; at every tenth: {whole}",
        "mixed_per_second": f"{requests:,} requests by 8 clients: 10 of 1,000 are interests, 1 a preview",
        "memory_mib": "the most, with all that is mapped of the model's files",
        "own_memory_mib": f"without those; at every tenth: {path}",
        "own_memory_growth": "likewise, of what is its own",
    }


def measured(folder: Path, state: Path, asked: Sizes, seed: int) -> tuple[Figures, Remarks]:
    _, secret = keys.create(state / keys.FILE, "benchmark", ["read", "audience"])
    questions = Questions(folder, asked.audience, seed)
    with served(folder, state) as (_, _, checked):
        pass
    with served(folder, state, "--no-verify") as (child, port, started):
        asker = Asker(port, secret)
        idle = Memory.of(child.pid).own if Path(f"/proc/{child.pid}").exists() else None
        ratios, again = against_scorer(folder, questions, asker, asked.rounds)
        interests, also = by_clients("interests", questions.interests, port, secret, asked.interests)
        previews, more = by_clients("preview", questions.preview, port, secret, asked.previews)
        memory, watching = watched(questions, port, secret, child.pid, asked.mixed)
    worst, slowest = max((value, name) for name, value in (interests | previews).items() if name.endswith("_p99_ms"))
    figures = {
        "preview_overhead": round(ratios["preview"].ours / ratios["preview"].other, 3),
        "p99_ms": worst,
        "start_seconds": round(started, 2),
        "start_checked_seconds": round(checked, 2),
        "started_memory_mib": None if idle is None else round(idle),
        **{f"{name}_ms": round(1e3 * each.ours) for name, each in ratios.items()},
        **{f"bare_{name}_ms": round(1e3 * each.other) for name, each in ratios.items()},
        **{f"{name}_over_bare": round(1 / each.speedup, 3) for name, each in ratios.items()},
        "preview_again_ms": round(1e3 * median(again)),
        **interests,
        **previews,
        **memory,
    }
    remarks = {
        "preview_overhead": "aim ≤ 1.5; the p50 of a preview over the p50 of the bare scorer call, one client",
        "p99_ms": f"the worst of all: {slowest}",
        "start_seconds": "from the command to the first answer, with --no-verify",
        "start_checked_seconds": "the same with every byte of the model checked, as is the default",
        "started_memory_mib": "of its own, once ready",
        "preview_ms": f"one client, the best {asked.audience:,} of {asked.users:,}; in turns with the bare scorer",
        "interests_ms": f"one client, the best {INTERESTS} of {asked.labels:,}; likewise",
        "preview_over_bare": "the median of the ratios of each turn, which a busy machine moves less",
        "preview_again_ms": "the same interest with another size",
    }
    return figures, remarks | also | more | watching


def sizes_of(arguments: Namespace) -> Sizes:
    asked = QUICK if arguments.quick else FULL
    given = {"users": arguments.users, "labels": arguments.labels, "mixed": arguments.requests}
    return asked._replace(**{name: value for name, value in given.items() if value})


def model_in(folder: Path, asked: Sizes, seed: int) -> Path:
    """The model of this size there, made if it is not."""
    place = folder / f"{asked.users}-{asked.labels}-{seed}"
    if not (place / "model" / MANIFEST).exists():
        large_model.make(place, asked.users, asked.labels, seed)
    return place


def main() -> None:
    parser = harness.parser(__doc__)
    parser.add_argument("--users", type=int)
    parser.add_argument("--labels", type=int)
    parser.add_argument("--requests", type=int, help="over which memory is watched; 100,000")
    parser.add_argument("--out", type=Path, help="keep the model in this folder, or find it there")
    arguments = parser.parse_args()
    asked = sizes_of(arguments)
    with TemporaryDirectory() as temporary:
        folder, making = harness.timed(lambda: model_in(arguments.out or Path(temporary), asked, arguments.seed))
        busy = os.getloadavg()[0]
        figures, remarks = measured(folder, Path(temporary) / "state", asked, arguments.seed)
    told = {"users": asked.users, "labels": asked.labels, "cores": cores(), "load_before": round(busy, 1)}
    remarks |= {"load_before": "processes that wanted a core, the minute before; above the cores, figures are no claim"}
    harness.finish("serve", told | {"make_seconds": round(making, 1)} | figures, arguments.seed, remarks)


if __name__ == "__main__":
    harness.run(main)
