"""What a plan may assume. Nothing here decides what a run makes, so no artifact's settings mention it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from merit.core.config import Frozen

Precision = Literal["fp32", "bf16", "fp16"]
HERE = "here"


class Expected(Frozen):
    """Sizes of data that are not there yet. Tables that can be read are counted instead."""

    train: int = Field(ge=1)
    """Examples."""
    validation: int = Field(ge=1)
    test: int = Field(ge=1)
    users: int = Field(ge=1)
    events: int = Field(ge=1)
    items: int = Field(ge=1)
    labels: int = Field(ge=1)
    gold: float = Field(3.0, gt=0)
    """Labels of an example."""
    label_tokens: float = Field(3.0, gt=0)
    """Of a label's path, its cluster's part included."""
    vector_width: int = Field(384, ge=1)
    """Of a label's vector; 384 is MiniLM's."""


class PlanConfig(Frozen):
    """The section [plan]: what is planned for, and the shares of a device's figures that are reached."""

    device: str = HERE
    """`here` measures this machine; any other name is looked up among the devices we know (docs/planning.md). How many
    of them, and whether they share a model out, say `devices.processes` and `devices.sharded`."""
    precision: Precision = "fp32"
    """Of the arithmetic. Weights and moments stay in fp32: `accelerate launch --mixed_precision` does the same."""
    shape: str = ""
    """Published sizes to plan with while the backbone's folder is not there, such as phi-3.5-mini."""
    training_share: float = Field(0.4, gt=0, le=1)
    """Of the peak arithmetic that training reaches on a device."""
    reading_share: float = Field(0.5, gt=0, le=1)
    """Of the peak arithmetic that reading prompts reaches."""
    bandwidth_share: float = Field(0.6, gt=0, le=1)
    """Of the peak memory bandwidth that writing labels token by token reaches."""
    expected: Expected | None = None
