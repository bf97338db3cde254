"""The section [plan]. No artifact depends on it."""

from __future__ import annotations

from pydantic import Field

from merit.core.config import Frozen

LOCAL = "local"


class ExpectedSizes(Frozen):
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
    """What a plan is made for, and the sizes that cannot be counted yet."""

    device: str = LOCAL
    """`local` times this machine. Any other name, such as A100, only counts: no time is promised for a device that
    is not measured."""
    shape: str = ""
    """Published sizes to plan with while the backbone's folder is not there, such as phi-3.5-mini."""
    expected: ExpectedSizes | None = None
