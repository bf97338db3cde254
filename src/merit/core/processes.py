"""Several processes that train one model: how they are started, and which of them this is.

`accelerate launch` and torchrun say so by environment variables, and that is all a training looks at. Without one of
them, `devices.processes` starts the processes here, with the same variables.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

from pydantic import Field

from merit.core import console
from merit.core.config import Frozen
from merit.core.errors import ConfigError, MeritError, TrainingError

T = TypeVar("T")

PATIENCE = timedelta(days=7)  # of processes that wait for the main one: it may be mining
SHARDED = {  # what `accelerate launch --use_fsdp --fsdp_version 2` says
    "ACCELERATE_USE_FSDP": "true",
    "FSDP_VERSION": "2",
    "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP",
    "FSDP_RESHARD_AFTER_FORWARD": "true",
    "FSDP_CPU_RAM_EFFICIENT_LOADING": "false",
}


class DevicesConfig(Frozen):
    """What trains. No part of an artifact's settings: the result is the same, up to rounding."""

    processes: int = Field(1, ge=1)
    """That train one model together, each on its part of every batch: one for each GPU, or for some cores."""
    sharded: bool = False
    """Whether weights, gradients and optimiser are shared out among the processes (FSDP), for a model too large for one
    device; otherwise each has all of them (DDP)."""


def cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def number() -> int:
    """Which of the processes this is. The main one, which alone writes, is 0."""
    return int(os.environ.get("RANK", "0"))


def count() -> int:
    """How many processes train together."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def check(devices: DevicesConfig) -> None:
    """Refuse what is not there, before hours are spent on other stages. What a launcher asks for comes first."""
    import torch

    gpus = torch.cuda.device_count()
    if count() > 1:
        _check_launcher(gpus)
        return
    room, what = (gpus, "GPUs") if gpus else (cores(), "cores and no GPU")
    if devices.processes > room:
        raise ConfigError(
            f"devices.processes asks for {devices.processes} processes, but here are {room} {what}. "
            f"Set devices.processes={room} or less; over several machines, use `accelerate launch` (docs/scaling.md)."
        )
    if devices.sharded and devices.processes == 1:
        raise ConfigError("devices.sharded has nobody to share with. Set devices.processes to 2 or more.")


def join() -> Any:
    """The Accelerator of this process, once all are there."""
    import torch
    from accelerate import Accelerator, DistributedDataParallelKwargs, InitProcessGroupKwargs

    _check_launcher(torch.cuda.device_count())
    how = [InitProcessGroupKwargs(timeout=PATIENCE), DistributedDataParallelKwargs(gradient_as_bucket_view=True)]
    try:
        made = Accelerator(cpu=not torch.cuda.is_available(), kwargs_handlers=how)
    except (RuntimeError, ValueError, ImportError, NotImplementedError) as error:
        raise ConfigError(f"The devices that were asked for cannot be used: {error}") from error
    _shard(made)
    return made


def launch(devices: DevicesConfig, function: Callable[..., T], *arguments: Any) -> T:
    """Call a module-level function in every process; the few plain values that it gives in the main one.

    If one fails, all are ended, and its error is raised here. Within a launcher's processes it is a plain call.
    """
    if devices.processes == 1 or count() > 1:
        return function(*arguments)
    check(devices)
    import torch
    from torch.multiprocessing.spawn import ProcessExitedException, ProcessRaisedException, start_processes

    answers = multiprocessing.get_context("spawn").SimpleQueue()
    threads, size = max(1, torch.get_num_threads() // devices.processes), devices.processes
    variables: dict[str, Any] = {"WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size, "OMP_NUM_THREADS": threads}
    variables |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": _free_port(), **(SHARDED if devices.sharded else {})}
    quiet = not any(handler.level <= logging.INFO for handler in console.log.handlers)
    begun = start_processes(  # type: ignore[no-untyped-call]
        _work, (variables, quiet, answers, function, arguments), size, join=False, daemon=True, start_method="spawn"
    )
    try:
        while not begun.join():
            pass
    except (ProcessRaisedException, ProcessExitedException) as error:
        cause = None if answers.empty() else answers.get()
        if isinstance(cause, MeritError):
            raise cause from None
        raise TrainingError(
            "A training process ended before its time. Run the same command again to go on from the last checkpoint; "
            f"if memory ran out, halve batch_size and double accumulate first. {error}"
        ) from None
    finally:
        for process in begun.processes:
            process.kill()
    answer: T = answers.get()
    return answer


def _work(
    place: int, variables: dict[str, Any], quiet: bool, answers: Any, function: Callable[..., Any], arguments: Any
) -> None:
    """The life of a process that `launch` began."""
    import torch

    signal.signal(signal.SIGINT, signal.SIG_DFL)  # the one that began it tells what happened
    ranks = {"RANK": place, "LOCAL_RANK": place}
    os.environ |= {name: str(value) for name, value in (variables | ranks).items()}
    console.set_up_logging(quiet=quiet or place > 0)
    torch.set_num_threads(variables["OMP_NUM_THREADS"])
    try:
        answer = function(*arguments)
    except MeritError as error:
        answers.put(error)
        raise
    finally:
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
    if not place:
        answers.put(answer)


@contextmanager
def main_first(alone: bool = True) -> Iterator[None]:
    """With a launcher's processes: the others wait until the main one is through, and then find its work done.

    What is not done `alone` all do at the same time.
    """
    if not alone or count() == 1:
        yield
        return
    with join().main_process_first():
        yield


def wait() -> None:
    """Until all processes are here."""
    if count() > 1:
        join().wait_for_everyone()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _check_launcher(gpus: int) -> None:
    """`accelerate launch` starts several processes for GPUs only, and does not look whether there are any."""
    local = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    for_gpus = gpus or "ACCELERATE_DYNAMO_BACKEND" in os.environ  # set by no one else
    if local > 1 and for_gpus and local > gpus:
        raise ConfigError(
            f"The launcher asks for {local} GPUs, but here are {gpus}. Give it --num_processes {max(gpus, 1)}; "
            "on CPUs, set devices.processes instead, or use torchrun (docs/scaling.md)."
        )


def _shard(accelerator: Any) -> None:
    """FSDP as we need it. Accelerate leaves it out on CPUs, where torch can do it too: so it is tested without GPUs."""
    from accelerate import DistributedType, FullyShardedDataParallelPlugin

    if os.environ.get("ACCELERATE_USE_FSDP", "").lower() != "true" or count() == 1:
        return
    state = accelerator.state
    if state.distributed_type == DistributedType.MULTI_CPU:
        state.fsdp_plugin, state.distributed_type = FullyShardedDataParallelPlugin(), DistributedType.FSDP
    if state.fsdp_plugin.fsdp_version != 2:
        raise ConfigError("Only the second version of FSDP is supported: give `accelerate launch` --fsdp_version 2.")
    state.fsdp_plugin.cpu_ram_efficient_loading = False  # every process has the weights: all begin with the same
