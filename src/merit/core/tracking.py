"""Where the figures of a training go: to a file of JSON lines, and to TensorBoard or MLflow where they are named.

    with tracking.open_log(folder, "stage-2", ("tensorboard",)) as write:
        write("train/loss", 3.2, 17)
    tracking.read(folder, "train/loss")  # step, value, time

MLflow's client goes where MLFLOW_TRACKING_URI says. A run that is resumed begins a log of its own.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Literal, NamedTuple

from merit.core import extras
from merit.core.errors import ConfigError

Tracker = Literal["tensorboard", "mlflow"]
Write = Callable[[str, float, int], object]
"""Takes the name of a figure, such as `train/loss`, its value, and the step."""
LOG = "log"  # a folder of the artifact; what is in it does not count for the artifact's hash
FIGURES = "figures.jsonl"
EXPERIMENT = "merit"


class TrackedFigure(NamedTuple):
    """A figure of a step, and when it was written, in seconds."""

    step: int
    value: float
    time: float


@contextmanager
def open_log(folder: Path, name: str, trackers: Sequence[Tracker] = ()) -> Iterator[Write]:
    """A function that writes a figure to all of them, until the end of the block."""
    (folder / LOG).mkdir()
    with ExitStack() as stack:
        writes = [stack.enter_context(WRITERS[tracker](folder / LOG, name)) for tracker in ("jsonl", *trackers)]

        def write(figure: str, value: float, step: int) -> None:
            for each in writes:
                each(figure, float(value), step)

        yield write


def read(folder: Path, figure: str) -> list[TrackedFigure]:
    """The figures of that name in an artifact's folder, in the order of the steps."""
    with (folder / LOG / FIGURES).open(encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    return [TrackedFigure(row["step"], row["value"], row["time"]) for row in rows if row["name"] == figure]


@contextmanager
def _jsonl(folder: Path, name: str) -> Iterator[Write]:
    with (folder / FIGURES).open("w", encoding="utf-8", buffering=1) as file:  # a line at a time: to be watched
        yield lambda figure, value, step: file.write(
            json.dumps({"step": step, "name": figure, "value": value, "time": round(time.time(), 4)}) + "\n"
        )


@contextmanager
def _tensorboard(folder: Path, name: str) -> Iterator[Write]:
    with extras.needed_by("trackers = [tensorboard]"):
        from torch.utils.tensorboard import SummaryWriter
    with SummaryWriter(str(folder)) as log:
        yield log.add_scalar


@contextmanager
def _mlflow(folder: Path, name: str) -> Iterator[Write]:
    with extras.needed_by("trackers = [mlflow]"):
        from mlflow import MlflowClient
        from mlflow.exceptions import MlflowException
    try:
        client = MlflowClient()
        found = client.get_experiment_by_name(EXPERIMENT)
        experiment = found.experiment_id if found else client.create_experiment(EXPERIMENT)
        run = client.create_run(experiment, run_name=name).info.run_id
    except MlflowException as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"MLflow cannot be used: {reason} Set MLFLOW_TRACKING_URI, or leave out trackers.") from None
    status = "FAILED"
    try:
        yield lambda figure, value, step: client.log_metric(run, figure, value, step=step)
        status = "FINISHED"
    finally:
        client.set_terminated(run, status)


WRITERS: dict[str, Callable[[Path, str], AbstractContextManager[Write]]] = {
    "jsonl": _jsonl,
    "tensorboard": _tensorboard,
    "mlflow": _mlflow,
}
