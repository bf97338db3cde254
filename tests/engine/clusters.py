"""A Ray cluster of several nodes on this machine: each a `ray start` with an address and a core of its own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

RAY = str(Path(sys.executable).parent / "ray")
ROOT = Path(__file__).parents[2]
QUICK = {  # a silent node counts as dead after seconds, not after the minute that a real network deserves
    "RAY_health_check_initial_delay_ms": "500",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "2000",
    "RAY_health_check_failure_threshold": "3",
    "RAY_worker_niceness": "0",  # on a machine that is busy with other things, 15 means never
}


class Nodes:
    """The head is 127.0.0.1, the others are 127.0.0.2 and so on. All are started in a folder of their own."""

    def __init__(self, place: Path) -> None:
        self._place, self._begun = place, list[subprocess.Popen[bytes]]()
        self.address = f"127.0.0.1:{_free_port()}"

    def start(self, cores: int = 1, gpus: int = 0) -> None:
        number = len(self._begun)
        where = ["--head", f"--port={self.address.split(':')[1]}"] if not number else [f"--address={self.address}"]
        where += [f"--temp-dir={self._place}", "--include-dashboard=false"] if not number else []
        where += [f"--node-ip-address=127.0.0.{number + 1}", f"--num-cpus={cores}", f"--num-gpus={gpus}"]
        where += ["--object-store-memory=80000000"]
        here = os.environ | QUICK | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
        with (self._place / f"node-{number}.log").open("wb") as log:
            command = [RAY, "start", *where, "--block", "--disable-usage-stats"]
            how = {"cwd": self._place, "env": here, "start_new_session": True}
            self._begun.append(subprocess.Popen(command, stdout=log, stderr=log, **how))

    def kill(self, number: int) -> None:
        """As if the machine lost its power."""
        os.killpg(self._begun[number].pid, signal.SIGKILL)
        self._begun[number].wait()

    def wait_for(self, count: int, seconds: float = 90) -> None:
        """Until so many nodes have joined."""
        import ray

        stop = time.monotonic() + seconds
        while sum(node["Alive"] for node in ray.nodes()) != count:
            assert time.monotonic() < stop, f"{ray.nodes()}"
            time.sleep(0.2)


@contextmanager
def cluster(place: Path) -> Iterator[Nodes]:
    """A cluster of one node that this process has joined."""
    import ray

    made = Nodes(place)
    try:
        made.start()
        _join(made.address)
        yield made
    finally:
        ray.shutdown()
        for number, begun in enumerate(made._begun):
            if begun.poll() is None:
                made.kill(number)


def _join(address: str, seconds: float = 90) -> None:
    import ray

    host, port = address.split(":")
    stop = time.monotonic() + seconds
    while True:
        try:
            with socket.create_connection((host, int(port)), timeout=1):
                break
        except OSError:
            assert time.monotonic() < stop
            time.sleep(0.2)
    ray.init(address=address, log_to_driver=False, logging_level="ERROR", _node_ip_address="127.0.0.1")


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port
