"""The pace of a device, from the figures its maker publishes and shares of them that are assumed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from merit.core.processes import DevicesConfig
from merit.plan import costs
from merit.plan.config import PlanConfig
from merit.plan.devices import Device
from merit.plan.shapes import Shape
from merit.plan.work import Decoding, Encoding, Fitting, Loading, Passing, Relating, Scoring, Tabulating, Training, Work

EVENTS = (
    1e6  # a second in a pass over the interactions, on the machine that holds the devices: README, `benchmarks.data`
)
PROMPTS = 2e3  # a second put into tokens there
LABELS = 2e3  # encoded a second by a small sentence-transformer on a device
ADAM = 32  # bytes moved for a weight in a step: read for both ways, gradient, and AdamW's three numbers there and back


@dataclass(frozen=True)
class Published:
    """Amounts over figures. Generators are trained and decoded on all devices, the rest is computed on one."""

    device: Device
    plan: PlanConfig
    devices: DevicesConfig
    shape: Shape
    scorer: int
    """Parameters of the propensity model that a user passes through."""
    pair: int
    """Numbers that a pair of user and label is multiplied by."""
    events: int
    batch: int
    """Examples of a micro-batch, over all devices."""

    def seconds(self, work: Work) -> float:
        """For all of the work, by the rule that SECONDS has for its kind."""
        return SECONDS[type(work)](self, work)

    def memory(self, work: Work) -> float:
        """Bytes at the peak, on each device; 0 for kinds of work that MEMORY does not know."""
        return MEMORY[type(work)](self, work) if type(work) in MEMORY else 0.0

    @property
    def computes(self) -> float:
        """Operations a second of one device in training."""
        return self.device.peak(self.plan.precision) * self.plan.training_share

    def training(self, work: Training) -> float:
        """Seconds of all steps, if devices share the operations without loss."""
        return costs.training(self.shape, work) / (self.devices.processes * self.computes)

    def training_memory(self, work: Training) -> float:
        """Bytes on one device, which reads its part of a micro-batch."""
        rows = costs.rows_of_device(self.batch, self.devices.processes)
        return sum(costs.training_memory(self.shape, self.plan.precision, self.devices, rows, work.tokens).values())

    def fitting(self, work: Fitting) -> float:
        """Of small batches, the time is that of moving weights and moments."""
        each = 6 * (work.tokens * self.scorer + work.pairs * self.pair)
        moved = ADAM * self.scorer / (self.device.bandwidth * self.plan.bandwidth_share)
        return work.steps * max(work.users * each / self.computes, moved)

    def decoding(self, work: Decoding) -> float:
        """Prompts are read at the speed of arithmetic; then weights and cache are read once for every token written."""
        plan, rows = self.plan, min(work.prompts, work.how.batch_size)
        peak = self.device.peak(plan.precision) * plan.reading_share
        bandwidth = self.device.bandwidth * plan.bandwidth_share
        read = costs.reading(self.shape, work.tokens, work.tokens) / peak
        size, held = costs.NUMBER[plan.precision], work.tokens + work.written / 2
        moved = size * (self.shape.parameters / rows + self.shape.cached * held)  # for each prompt
        computed = costs.reading(self.shape, work.how.lanes, 2 * held)
        written = costs.decoding_steps(work) * max(moved / bandwidth, computed / peak)
        return work.prompts * (read + written) / self.devices.processes


SECONDS: dict[type, Callable[[Published, Any], float]] = {
    Training: Published.training,
    Decoding: Published.decoding,
    Fitting: Published.fitting,
    Relating: lambda pace, work: 6 * work.examples * work.labels * work.numbers / pace.computes,
    Scoring: lambda pace, work: 2 * work.pairs * pace.pair / pace.computes,
    Encoding: lambda pace, work: work.labels / LABELS,
    Loading: lambda pace, work: work.prompts / PROMPTS,
    Passing: lambda pace, work: work.passes * pace.events / EVENTS,
    Tabulating: lambda pace, work: work.seconds,
}
MEMORY: dict[type, Callable[[Published, Any], float]] = {
    Training: Published.training_memory,
    Decoding: lambda pace, work: costs.decoding_memory(pace.shape, pace.plan.precision, work),
    Fitting: lambda pace, work: costs.SINGLE * (2 + costs.MOMENTS) * pace.scorer,
}
