"""A whole run with several processes, begun by its configuration or by a launcher, makes what one process makes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from merit.core import artifacts, config, tracking
from merit.core.errors import ConfigError
from merit.core.pipeline import STAGES, run
from merit.core.settings import RunConfig
from tests import processes
from tests.small_run import SMALL, shop

STEPS = 4
WEIGHTS = 2e-5  # as far as a weight may be from that of one process
TORCHRUN = ["-m", "torch.distributed.run", "--nproc_per_node=2", "--master_port=0", "--rdzv_backend=c10d"]
TORCHRUN += ["--rdzv_endpoint=localhost:0", "-m", "merit.cli"]

needs_two = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two processes need two cores")


@pytest.fixture(scope="module")
def values(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    place = tmp_path_factory.mktemp("shop")
    train = {"objective": "teacher-forcing", "steps": STEPS, "batch_size": 8, "evaluate_every": 2}
    return SMALL | {"reads": "text", "source": shop(place, 60, 3), "cache": str(place / "cache"), "stage_1": train}


@pytest.fixture(scope="module")
def one(values: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("one") / "run"
    run(config.build(RunConfig, values | {"out": str(out)}), until="mined-1")
    return out


@pytest.mark.slow
@needs_two
@pytest.mark.parametrize("by", ["configured", "torchrun"])
def test_a_run_with_two_processes_makes_what_one_makes(
    by: str, one: Path, values: dict[str, Any], tmp_path: Path
) -> None:
    out, file, told, errors = (tmp_path / name for name in ("run", "run.toml", "told.json", "errors.txt"))
    file.write_text(toml(values | {"out": str(out)}))
    words = ["run", str(file), "--until", "mined-1", "--json"]
    if by == "configured":
        child = processes.merit(*words, "--set", "devices.processes=2", folder=tmp_path, out=told, err=errors)
        assert child.wait() == 0, errors.read_text()
    else:
        with told.open("w") as stdout, errors.open("w") as stderr:
            done = subprocess.run([sys.executable, *TORCHRUN, *words], stdout=stdout, stderr=stderr)
        assert done.returncode == 0, errors.read_text()
    stages = list(STAGES)
    assert list(json.loads(told.read_text())) == stages[: stages.index("mined-1") + 1]  # printed once
    for name in ("examples", "labels"):
        assert artifacts.load(out / name).manifest.hash == artifacts.load(one / name).manifest.hash
    ours, theirs = (artifacts.load(folder / "stage-1", "generator") for folder in (one, out))
    assert ours.manifest.config == theirs.manifest.config
    assert ours.manifest.summary | {"tokens": 0} == theirs.manifest.summary | {"tokens": 0}
    had, got = (load_file(each.file("model.safetensors")) for each in (ours, theirs))
    assert max(float(np.abs(had[name] - got[name]).max()) for name in had) < WEIGHTS
    assert [figure.step for figure in tracking.read(theirs.path, "train/loss")] == list(range(1, STEPS + 1))
    assert [figure.step for figure in tracking.read(theirs.path, "validation/recall")] == [2, 4]
    assert {path.name for path in out.iterdir()} == {path.name for path in one.iterdir()}  # nothing is left over


def test_devices_that_are_not_there_are_told_before_anything_is_made(values: dict[str, Any], tmp_path: Path) -> None:
    asked = config.build(RunConfig, values | {"out": str(tmp_path / "run"), "devices": {"processes": 4096}})
    with pytest.raises(ConfigError, match="asks for 4096 processes"):
        run(asked)
    assert not (tmp_path / "run").exists()


def toml(values: dict[str, Any], section: str = "") -> str:
    """Plain values and sections, as TOML."""
    plain = [f"{key} = {json.dumps(value)}" for key, value in values.items() if not isinstance(value, dict)]
    inner = [toml(value, f"{section}{key}.") for key, value in values.items() if isinstance(value, dict)]
    return "\n".join([*([f"[{section[:-1]}]"] if section else []), *plain, *inner])
