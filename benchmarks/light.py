"""The base install in a fresh environment: its size, how fast it is imported, and that all works which needs no torch.

    python -m benchmarks.light                        # pip needs an index: some minutes
    python -m benchmarks.light --python python3.13    # with another interpreter

The environment has the base only, then the extras `phrases` and `serve`. A quick model is fitted in it on a planted
shop; a standard one is trained here, with torch, and asked there. MB are 2^20 bytes of files, pip's own among them.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl

import merit
from benchmarks import harness
from merit.data import planted
from merit.service import keys

ROOT = Path(__file__).parents[1]
PATH = Path(__file__).with_name("light_path.py")
USERS = 160
STANDARD: dict[str, Any] = {
    "item_generator": {"network": {"width": 16, "layers": 1, "heads": 2}, "train": {"steps": 20}},
    "predict": {"exposure": False, "union": False, "likelihood": False},
    "evaluation": {"resamples": 100},
    "ranking": {"resamples": 100},
}
TIMED = "import time; t = time.perf_counter(); import merit; print(time.perf_counter() - t)"


def environment(folder: Path, python: str) -> Path:
    """The interpreter of a fresh environment with the base install."""
    subprocess.run([python, "-m", "venv", str(folder)], check=True)
    interpreter = folder / "bin" / "python"
    install(interpreter, str(ROOT))
    return interpreter


def install(interpreter: Path, what: str) -> None:
    """`what` with the pinned versions, by pip."""
    words = ["--quiet", "--disable-pip-version-check", "-c", str(ROOT / "constraints.txt"), what]
    subprocess.run([str(interpreter), "-m", "pip", "install", *words], check=True, stderr=subprocess.DEVNULL)


def megabytes(folder: Path) -> float:
    files = (path.lstat().st_blocks * 512 for path in folder.rglob("*") if not path.is_symlink())
    return round(sum(files) / 2**20, 1)


def import_seconds(interpreter: Path) -> float:
    """The median of seven, warm."""
    times = [float(_run(interpreter, "-c", TIMED)) for _ in range(8)][1:]
    return round(median(times), 3)


@contextmanager
def serving(interpreter: Path, run: Path, state: Path) -> Iterator[tuple[str, str]]:
    """`merit serve` over a run, in a process of that interpreter: its address, and a key that may read."""
    _, secret = keys.create(state / keys.FILE, "benchmark", ["read"])
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{probe.getsockname()[1]}"
    words = ["serve", run, "--state", state, "--port", address.rpartition(":")[2]]
    words += ["--set", "rate=100000", "--set", "burst=100000"]
    command = [str(interpreter), "-m", "merit.cli", *map(str, words)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as service:
        try:
            while not _healthy(address):
                assert service.poll() is None, "the service did not start"
                time.sleep(0.05)
            yield address, secret
        finally:
            service.terminate()


def _healthy(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/health", timeout=30) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def ask(address: str, secret: str, history: list[dict[str, str]], k: int = 10) -> int:
    """How many interests the service gives a history."""
    body = json.dumps({"histories": [{"user_id": "a", "events": history}], "k": k}).encode()
    headers = {"Authorization": f"Bearer {secret}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{address}/v1/histories/interests", body, headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return len(json.load(answer)["items"][0]["interests"])


def serve_health(interpreter: Path, run: Path, state: Path) -> float:
    """Seconds until `merit serve` in the environment says that it is well; it answers a question, too."""
    begin = time.perf_counter()
    with serving(interpreter, run, state) as (address, secret):
        seconds = time.perf_counter() - begin
        assert ask(address, secret, [{"title": "trail running shoes"}], 3) == 3
    return round(seconds, 2)


def _alone() -> dict[str, str]:
    """The environment's variables without those that lead to this checkout."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def _run(interpreter: Path, *words: object) -> str:
    done = subprocess.run([str(interpreter), *map(str, words)], capture_output=True, text=True, cwd="/", env=_alone())
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, words))[:200]} failed:\n{done.stderr[-3000:]}")
    return done.stdout.strip().splitlines()[-1]


def main() -> None:
    parser = harness.parser(__doc__)
    parser.add_argument("--python", default=sys.executable, help="the interpreter of the environment")
    given = parser.parse_args()
    with TemporaryDirectory(prefix="merit-light-") as name:
        work = Path(name)
        planted.write(planted.shop(planted.PlantedConfig(users=USERS), given.seed), work)
        interpreter = environment(work / "base", given.python)
        figures: dict[str, Any] = {
            "python": _run(interpreter, "-c", "import platform; print(platform.python_version())")
        }
        figures |= {"base_mb": megabytes(work / "base"), "import_seconds": import_seconds(interpreter)}
        figures["base"] = json.loads(_run(interpreter, PATH, work, "hashed"))
        install(interpreter, f"{ROOT}[phrases]")
        figures["with_phrases_mb"] = megabytes(work / "base")
        standard = merit.fit(
            *(pl.read_parquet(work / f"{table}.parquet") for table in ("interactions", "items")),
            preset="standard",
            out=work / "standard",
            seed=given.seed,
            cache=str(work / "cache-here"),
            **STANDARD,
        )
        figures["with_phrases"] = json.loads(_run(interpreter, PATH, _again(work), "minilm", standard.artifact.path))
        install(interpreter, f"{ROOT}[serve]")
        figures["with_serve_mb"] = megabytes(work / "base")
        figures["healthy_seconds"] = serve_health(interpreter, work / "standard", work / "state")
        harness.finish("light", figures, given.seed)


def _again(work: Path) -> Path:
    """A folder with the same tables and no run."""
    place = work / "again"
    place.mkdir()
    for name in ("interactions", "items"):
        (place / f"{name}.parquet").hardlink_to(work / f"{name}.parquet")
    return place


if __name__ == "__main__":
    harness.run(main)
