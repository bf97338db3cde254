"""Several processes train the model that one would: gradients, weights, checkpoints; and end with one clear error."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from merit.core import processes
from merit.core.errors import ConfigError, TrainingError
from merit.core.processes import DevicesConfig, launch
from merit.generator.batches import share_of
from tests.core import failing
from tests.generator import together
from tests.generator.test_training import CONFIG

TWO = DevicesConfig(processes=2)
SHARED = DevicesConfig(processes=2, sharded=True)
GRADIENTS, WEIGHTS = 1e-6, 2e-5  # largest differences of any gradient after a step, of any weight after twelve

needs_two = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two processes need two cores")


# --- without processes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 3, 8])
@pytest.mark.parametrize("size", [1, 2, 7, 16])
def test_parts_are_the_batch_and_shares_are_one(size: int, count: int) -> None:
    batch = np.random.default_rng(0).permutation(size)
    parts = [share_of(batch, number, count) for number in range(count)]
    assert sorted(np.concatenate([part for part, share in parts if share])) == list(range(size))
    assert sum(share for _, share in parts) == pytest.approx(1)
    assert all(len(part) for part, _ in parts)  # also those that count for nothing: gradients are exchanged by all
    assert max(len(part) for part, _ in parts) - min(len(part) for part, share in parts if share) <= 1


def test_more_processes_than_there_are_devices_is_an_error() -> None:
    with pytest.raises(ConfigError, match="asks for 4096 processes, but here are"):
        launch(DevicesConfig(processes=4096), failing.refuses, 0)


def test_nobody_to_share_with_is_an_error() -> None:
    with pytest.raises(ConfigError, match="nobody to share with"):
        processes.check(DevicesConfig(sharded=True))


def test_a_launcher_that_asks_for_gpus_that_are_not_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """What `accelerate launch --multi_gpu --num_processes 2` sets."""
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "LOCAL_RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("ACCELERATE_DYNAMO_BACKEND", "NO")
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    for refuse in (processes.join, lambda: processes.check(DevicesConfig())):
        with pytest.raises(ConfigError, match=r"asks for 2 GPUs, but here are 0.*devices\.processes"):
            refuse()


GPUS = "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nnum_machines: 1\nnum_processes: 2\n"
RUN = '[source]\nkind = "tables"\ninteractions = "nowhere.parquet"\nitems = "nowhere.parquet"\n'


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.device_count() > 1, reason="here are GPUs")
def test_an_accelerate_config_that_asks_for_gpus_that_are_not_there_is_told_before_anything_else(
    tmp_path: Path,
) -> None:
    (tmp_path / "accelerate.yaml").write_text(GPUS)
    (tmp_path / "run.toml").write_text(f'out = "{tmp_path / "run"}"\n{RUN}')
    launcher = ["-m", "accelerate.commands.launch", "--config_file", str(tmp_path / "accelerate.yaml")]
    command = [sys.executable, *launcher, "-m", "merit.cli", "run", str(tmp_path / "run.toml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode
    assert f"The launcher asks for 2 GPUs, but here are {torch.cuda.device_count()}" in " ".join(done.stderr.split())
    assert "nowhere.parquet" not in done.stderr and not (tmp_path / "run").exists()


def test_one_process_is_a_plain_call() -> None:
    assert launch(DevicesConfig(), os.getpid) == os.getpid()


# --- two processes ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("one")
    together.everything(folder)
    return folder


@pytest.fixture(scope="module", params=["copied", "sharded"])
def two(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, one: Path) -> Path:
    """All trainings of these tests, in one start of two processes; some go on from where one process was. The last
    one fails: its loss is not a number."""
    folder = tmp_path_factory.mktemp(request.param)
    together.begun_by(one, folder)
    with pytest.raises(TrainingError, match="not a number at step 0"):
        launch(SHARED if request.param == "sharded" else TWO, together.everything_and_not_a_number, folder)
    return folder


def furthest(one: Path, two: Path, name: str, kind: str = "") -> float:
    """The largest difference of any number, or of any of a kind, in two files of the same name."""
    ours, theirs = (load_file(folder / name) for folder in (one, two))
    assert ours.keys() == theirs.keys()
    return max(float(np.abs(ours[key] - theirs[key]).max()) for key in ours if key.endswith(kind))


@pytest.mark.slow
@needs_two
@pytest.mark.parametrize("case", together.CASES)
def test_gradients_are_those_of_one_process(case: str, one: Path, two: Path) -> None:
    """Adam's first moments after one step without clipping are a tenth of them."""
    name = f"{case}-gradients/step-0000001.safetensors"
    assert 10 * furthest(one, two, name, "exp_avg") < GRADIENTS
    largest = max(float(np.abs(value).max()) for key, value in load_file(one / name).items() if key.endswith("exp_avg"))
    assert largest > 1000 * GRADIENTS  # or the test would see nothing


@pytest.mark.slow
@needs_two
@pytest.mark.parametrize("case", together.CASES)
def test_weights_are_those_of_one_process(case: str, one: Path, two: Path) -> None:
    for name in ("model", "step-0000003", f"step-{CONFIG.steps:07}"):
        assert furthest(one, two, f"{case}/{name}.safetensors") < WEIGHTS


@pytest.mark.slow
@needs_two
@pytest.mark.parametrize("case", together.CASES)
def test_the_log_tells_of_the_whole_batch(case: str, one: Path, two: Path) -> None:
    ours, theirs = (together.told(folder / case) for folder in (one, two))
    same = {
        "train/loss",
        "train/classification",
        "train/completion",
        "train/history",
        "train/rate",
        "validation/recall",
    }
    assert same & ours.keys() == same & theirs.keys()
    for name in same & ours.keys():
        assert theirs[name] == pytest.approx(
            ours[name][-len(theirs[name]) :], rel=1e-4
        )  # a resumed one has less to tell


@pytest.mark.slow
@needs_two
def test_one_process_goes_on_where_two_were(one: Path, two: Path) -> None:
    """The other way round is among the cases: `begun_by`."""
    case = "self-correction"
    for later in sorted((two / case).glob("step-*.safetensors"))[2:]:
        later.unlink()
    together.trained(two / case, **together.CASES[case])
    assert furthest(one, two, f"{case}/model.safetensors") < WEIGHTS


@pytest.mark.slow
@needs_two
@pytest.mark.parametrize("where", [0, 1])
def test_the_error_of_one_process_ends_all_and_is_told(where: int) -> None:
    with pytest.raises(ConfigError, match=f"process {where} of 2 cannot"):
        launch(TWO, failing.refuses, where)


@pytest.mark.slow
@needs_two
def test_a_killed_process_ends_all_and_is_told() -> None:
    with pytest.raises(TrainingError, match="SIGKILL"):
        launch(TWO, failing.dies, 1)


@pytest.mark.slow
@needs_two
def test_a_loss_that_is_not_a_number_stops_all(two: Path) -> None:
    """As `two` saw. Each keeps its part of the batch."""
    assert len(list(two.glob("not-a-number/not-a-number-*.safetensors"))) == 2
