"""How one of several processes fails in the tests; light, so that each starts quickly."""

from __future__ import annotations

import os
import signal

from merit.core import processes
from merit.core.errors import ConfigError


def refuses(where: int) -> None:
    """One process finds something wrong; the others wait for it."""
    accelerator = processes.join()
    if processes.number() == where:
        raise ConfigError(f"process {where} of {processes.count()} cannot")
    accelerator.wait_for_everyone()


def dies(where: int) -> None:
    """One process is killed; the others wait for it."""
    accelerator = processes.join()
    if processes.number() == where:
        os.kill(os.getpid(), signal.SIGKILL)
    accelerator.wait_for_everyone()
