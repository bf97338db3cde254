"""`merit doctor`: what this machine has, what works, and what to do about the rest."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import time
from importlib import metadata
from pathlib import Path

from merit import __version__
from merit.core import extras, weights
from merit.core.config import Frozen
from merit.core.processes import cores

PACKAGES = ("polars", "pyarrow", "numpy", "pydantic", "typer", "scipy", "altair", "tokenizers", "safetensors")


class DoctorFinding(Frozen):
    """One line of `merit doctor`. The remedy is shown only where something is not ok."""

    what: str
    value: str
    ok: bool = True
    remedy: str = ""


def examine() -> list[DoctorFinding]:
    """Everything worth knowing, worst news included. Never raises."""
    packages = [_package(name) for name in PACKAGES]
    known = [_weights(name) for name in weights.CATALOG]
    found = [_extra(extra) for extra in extras.EXTRAS]
    return [*_machine(), *packages, *found, *known, *([] if extras.missing("train") else [_arithmetic()])]


def _machine() -> list[DoctorFinding]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    free = shutil.disk_usage(Path.cwd()).free / 2**30
    return [
        DoctorFinding(what="merit", value=__version__),
        DoctorFinding(what="python", value=platform.python_version(), ok=sys.version_info >= (3, 11)),
        DoctorFinding(what="system", value=f"{platform.system()} {platform.machine()}"),
        DoctorFinding(what="cores", value=str(cores())),
        DoctorFinding(what="memory", value=f"{memory:.1f} GiB", ok=memory >= 4, remedy="the demo needs about 4 GiB"),
        DoctorFinding(what="free disk", value=f"{free:.1f} GiB", ok=free >= 2, remedy="free 2 GiB, or work elsewhere"),
    ]


def _package(name: str) -> DoctorFinding:
    try:
        return DoctorFinding(what=name, value=metadata.version(name))
    except metadata.PackageNotFoundError:
        return DoctorFinding(what=name, value="not installed", ok=False, remedy=f"pip install {name}")


def _weights(name: str) -> DoctorFinding:
    """Weights that are not there belong to an extra that is not; damaged ones are a fault."""
    status = weights.status(name)
    if status["value"] == "not installed":
        status = {"value": f"not installed ({status['remedy']})"}
    return DoctorFinding(what=f"weights {name}", **status)


def _extra(extra: str) -> DoctorFinding:
    """One that is not installed is a choice, not a fault; so is a part of one."""
    missing = extras.missing(extra)
    some = f"without {', '.join(missing)}" if len(missing) < len(extras.EXTRAS[extra]) else "no"
    value = f"{some} ({extras.install_line(extra)})" if missing else "installed"
    return DoctorFinding(what=f"extra {extra}", value=value)


def _arithmetic() -> DoctorFinding:
    """Whether torch computes, and how fast: the figure that training times scale with."""
    try:
        import torch
    except ImportError as error:
        return DoctorFinding(what="torch works", value=str(error), ok=False, remedy="pip install torch==2.13.0")
    size, rounds = 1024, 5
    left = torch.rand(size, size)
    left @ left  # the first product pays for starting the threads
    begin = time.perf_counter()
    for _ in range(rounds):
        left @ left
    rate = 2 * size**3 * rounds / (time.perf_counter() - begin) / 1e9
    device = torch.cuda.get_device_name(0) if torch.cuda.is_available() else f"CPU, {torch.get_num_threads()} threads"
    return DoctorFinding(what="torch works", value=f"{rate:.0f} GFLOP/s in fp32 on {device}")
