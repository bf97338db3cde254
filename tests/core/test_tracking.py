"""Figures of a training go to JSON lines, and to TensorBoard's and MLflow's own files where they are named."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from merit.core import tracking
from merit.core.errors import ConfigError, MissingDependency


def write(folder: Path, *trackers: tracking.Tracker) -> None:
    with tracking.open_log(folder, "stage-2", trackers) as log:
        for step, loss in enumerate([3.5, 2.25], start=1):
            log("train/loss", loss, step)
        log("validation/recall", 0.5, 2)


def test_json_lines_are_read_again(tmp_path: Path) -> None:
    write(tmp_path)
    figures = tracking.read(tmp_path, "train/loss")
    assert [(figure.step, figure.value) for figure in figures] == [(1, 3.5), (2, 2.25)]
    assert figures[0].time <= figures[1].time
    assert [path.name for path in (tmp_path / "log").iterdir()] == ["figures.jsonl"]


def test_tensorboard_reads_what_was_written(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    write(tmp_path, "tensorboard")
    log = EventAccumulator(str(tmp_path / "log")).Reload()
    assert [(event.step, event.value) for event in log.Scalars("train/loss")] == [(1, 3.5), (2, 2.25)]
    assert len(tracking.read(tmp_path, "train/loss")) == 2


def test_mlflow_gets_a_run_with_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file://{tmp_path}/mlruns")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    from mlflow import MlflowClient

    (tmp_path / "one").mkdir()
    write(tmp_path / "one", "mlflow")
    client = MlflowClient()
    experiment = client.get_experiment_by_name("merit")
    [run] = client.search_runs([experiment.experiment_id])
    assert (run.info.run_name, run.info.status, run.data.metrics["validation/recall"]) == ("stage-2", "FINISHED", 0.5)
    assert [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, "train/loss")] == [
        (1, 3.5),
        (2, 2.25),
    ]
    (tmp_path / "two").mkdir()
    with pytest.raises(ZeroDivisionError), tracking.open_log(tmp_path / "two", "killed", ["mlflow"]):
        raise ZeroDivisionError
    statuses = {run.info.run_name: run.info.status for run in client.search_runs([experiment.experiment_id])}
    assert statuses == {"stage-2": "FINISHED", "killed": "FAILED"}


def test_a_server_that_is_not_there_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(ConfigError, match=r"MLflow cannot be used.*MLFLOW_TRACKING_URI"):
        write(tmp_path, "mlflow")


@pytest.mark.parametrize("tracker", ["tensorboard", "mlflow"])
def test_one_that_is_not_installed_names_its_extra(
    tracker: tracking.Tracker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == tracker or name == "torch.utils.tensorboard"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, tracker, None)
    with pytest.raises(MissingDependency, match=rf"needs {tracker}\..*pip install 'merit-interests\[{tracker}\]'"):
        write(tmp_path, tracker)
