"""A real cluster of several nodes: the same hashes as here, with two nodes, with three, and when one is lost."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from merit.data import planted
from merit.engine.job import EngineConfig
from merit.engine.run import write_parts
from tests.engine import jobs
from tests.engine.clusters import Nodes, cluster
from tests.engine.stages import SHARDS, hashes, prepared

pytest.importorskip("ray", reason="Ray is not installed: pip install 'merit-interests[ray]'")

ON_RAY = EngineConfig(runner="ray", threads=1, shards=SHARDS)
MANY = EngineConfig(runner="ray", threads=1, shards=40)


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    """Two nodes, for all tests here: a node takes ten seconds of a core to start. The second one has a GPU."""
    with tempfile.TemporaryDirectory(prefix="ray") as place, cluster(Path(place)) as nodes:  # sockets: a short path
        nodes.start(gpus=1)
        nodes.wait_for(2)
        yield nodes


@pytest.mark.slow  # each worker pays some seconds for torch: `python -m benchmarks.engine --all` makes all by all
def test_two_nodes_three_nodes_and_two_that_are_left(nodes: Nodes, made: Path, tmp_path: Path) -> None:
    right = hashes(made, tmp_path / "here", EngineConfig(shards=SHARDS))
    whole = write_parts(jobs.job(tmp_path), jobs.rows(400), str(tmp_path / "whole"), EngineConfig(shards=40))
    assert hashes(made, tmp_path / "two", ON_RAY, ("mined",)) == {"mined": right["mined"]}
    nodes.start()
    nodes.wait_for(3)
    three = hashes(made, tmp_path / "three", ON_RAY, ("states", "scores"))
    assert three == {name: right[name] for name in three}
    out, marks = tmp_path / "killed", tmp_path / "marks"
    marks.mkdir()
    cut = threading.Thread(target=lose_power, args=(nodes, marks, out))
    cut.start()
    parts = write_parts(jobs.job(marks, jobs.slow), jobs.rows(400), str(out), MANY)
    cut.join()
    nodes.wait_for(2)
    assert sum(len(table) for table in parts.tables()) == len(jobs.rows(400))
    assert parts.manifest.hash == whole.manifest.hash


@pytest.mark.slow
def test_paths_begin_where_the_command_is_given_and_not_where_ray_was_started(
    nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    planted.write(planted.shop(planted.PlantedConfig(users=40), 7), Path("shop"))
    right = prepared(Path("shop"), Path("here"))
    assert prepared(Path("shop"), Path("examples"), ON_RAY).manifest.hash == right.manifest.hash
    assert sorted(path.name for path in tmp_path.iterdir()) == ["examples", "here", "shop"]


@pytest.mark.slow
def test_a_worker_that_needs_a_gpu_waits_for_a_node_with_one(nodes: Nodes, tmp_path: Path) -> None:
    """Ray hands out what a node says it has; that there is none in this machine, it does not ask."""
    asked = replace(jobs.job(tmp_path, jobs.gpu), device="cuda")
    parts = write_parts(asked, jobs.rows(), str(tmp_path / "out"), ON_RAY)
    assert set(pl.concat(parts.tables())["gpu"]) == {"0"}
    assert len(list(tmp_path.glob("set-up-*"))) == 1  # two nodes, one GPU


def lose_power(nodes: Nodes, marks: Path, out: Path) -> None:
    """As soon as all three nodes are at work."""
    stop = time.monotonic() + 120
    while len(list(marks.glob("set-up-*"))) < 3 or len(list(out.glob("*.parquet"))) < 3:
        assert time.monotonic() < stop
        time.sleep(0.05)
    nodes.kill(2)
