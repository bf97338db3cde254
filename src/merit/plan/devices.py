"""Devices by the figures their makers publish: dense arithmetic, without sparsity."""

from __future__ import annotations

import difflib
from typing import NamedTuple

from merit.core.errors import ConfigError
from merit.plan.config import Precision


class Device(NamedTuple):
    """One accelerator, at its peak: what is reached of it is for the plan to assume."""

    half: float  # FLOP/s in fp16 and bf16, with fp32 sums
    single: float  # FLOP/s in fp32
    memory: float  # bytes
    bandwidth: float  # bytes/s

    def peak(self, precision: Precision) -> float:
        """FLOP/s; fp16 and bf16 are equally fast."""
        return self.single if precision == "fp32" else self.half


DEVICES = {
    "A100-80GB": Device(312e12, 19.5e12, 80e9, 2039e9),  # SXM
    "A100-40GB": Device(312e12, 19.5e12, 40e9, 1555e9),
    "H100-80GB": Device(989e12, 67e12, 80e9, 3350e9),  # SXM
    "L40S": Device(362e12, 91.6e12, 48e9, 864e9),
    "L4": Device(121e12, 30.3e12, 24e9, 300e9),
    "T4": Device(65e12, 8.1e12, 16e9, 320e9),
}


def named(name: str) -> Device:
    """The device of that name, or an error that lists them."""
    if name in DEVICES:
        return DEVICES[name]
    near = difflib.get_close_matches(name, DEVICES, n=1, cutoff=0.4)
    hint = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(DEVICES)}; `here` measures this machine."
    raise ConfigError(f"There are no figures for a device '{name}'; {hint}")
