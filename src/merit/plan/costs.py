"""Arithmetic of transformers: operations and bytes of training and decoding, from a shape and amounts alone.

A product with a matrix of n numbers is 2n operations for a token; attention over s tokens is 4 · s · width in a layer,
half of it under a causal mask; the way back of training costs twice the way there.
"""

from __future__ import annotations

from merit.core.processes import DevicesConfig
from merit.objective.losses import CHUNK_BYTES
from merit.plan.config import Precision
from merit.plan.shapes import Shape
from merit.plan.work import Decoding, Training

NUMBER = {"fp32": 4, "bf16": 2, "fp16": 2}  # bytes
SINGLE = 4  # bytes of a number in fp32
MOMENTS = 2  # that AdamW keeps of every weight
ROOM = 1.25  # the cache of decoding grows by quarters


def reading(shape: Shape, tokens: float, length: float) -> float:
    """Operations to read tokens in sequences of that length, the head left out."""
    return tokens * (2 * shape.matrices + 2 * length * shape.width * shape.layers)


def training(shape: Shape, work: Training) -> float:
    """Operations of the whole training. Frozen weights need no gradient of their own: LoRA saves a third."""
    back = 2 if shape.trained == shape.parameters else 1
    heads = work.steps * work.rows * work.targets * 2 * shape.vocabulary * shape.width
    return (1 + back) * (reading(shape, work.total, work.tokens) + heads)


def training_memory(
    shape: Shape, precision: Precision, devices: DevicesConfig, rows: int, tokens: float
) -> dict[str, float]:
    """Bytes on one device, by what they are for, when it reads so many rows at a time."""
    parts = devices.processes if devices.sharded else 1
    half = 0 if precision == "fp32" else NUMBER[precision] * shape.parameters
    at_once = half / (shape.layers if devices.sharded else 1)  # one gathered layer after the other, or all of them
    return {
        "weights": SINGLE * shape.parameters / parts + at_once,
        "gradients": SINGLE * shape.trained / parts,
        "moments": MOMENTS * SINGLE * shape.trained / parts,
        "activations": shape.activations * rows * tokens + 2 * CHUNK_BYTES,
    }


def rows_of_device(batch_size: int, devices: int) -> int:
    """A batch is parted among the devices."""
    return -(-batch_size // devices)


def decoding_steps(work: Decoding) -> float:
    """Times the model is read for a batch: a token of every lane each."""
    return work.labels * (work.label_tokens + 1)


def decoding_memory(shape: Shape, precision: Precision, work: Decoding) -> float:
    """Weights and the cache of a batch."""
    held = work.tokens + work.written
    rows = min(work.prompts, work.how.batch_size)
    return NUMBER[precision] * (shape.parameters + ROOM * shape.cached * rows * held)


def checkpoint_bytes(shape: Shape) -> float:
    """Of the trained weights and their moments in fp32; frozen weights are not counted."""
    return (1 + MOMENTS) * SINGLE * shape.trained
