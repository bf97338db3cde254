"""Operations and bytes, against what torch counts while a small model really trains."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from merit.core.errors import ConfigError
from merit.core.processes import DevicesConfig
from merit.generator import backbone
from merit.generator.backbone import BackboneConfig
from merit.generator.decoding import DecodeConfig
from merit.plan import costs
from merit.plan.config import PlanConfig
from merit.plan.devices import DEVICES, named
from merit.plan.published import Published
from merit.plan.shapes import Shape, shape_of, stand_in
from merit.plan.work import Decoding, Loading, Scoring, Training

SHAPE = Shape(1000, 1000, 800, 4, 8, 64, 25, 512, 40.0)
ONE, EIGHT = DevicesConfig(), DevicesConfig(processes=8, sharded=True)
WORK = Training("stage-1", steps=10, rows=4, tokens=64, targets=8)


@pytest.mark.parametrize("tokens", [32, 128])
def test_operations_of_reading_are_those_torch_counts(tokens: int) -> None:
    asked = BackboneConfig(width=64, layers=2, vocabulary=300)
    model = backbone.make(asked, stand_in(300), seed=0)
    model.set_attn_implementation("eager")  # torch does not know what its fused attention costs on a CPU
    with FlopCounterMode(display=False) as counter:
        model.get_decoder()(input_ids=torch.zeros(3, tokens, dtype=torch.long), use_cache=False)
    shape = shape_of(asked, PlanConfig())
    whole = costs.reading(shape, 3 * tokens, 2 * tokens)  # torch counts attention as if nothing were masked
    assert whole == pytest.approx(counter.get_total_flops(), rel=0.03)


def test_training_is_three_readings_and_two_where_weights_are_frozen() -> None:
    head = 10 * 4 * 8 * 2 * 25 * 8
    assert costs.training(SHAPE, WORK) == 3 * (costs.reading(SHAPE, 10 * 4 * 64, 64) + head)
    frozen = replace(SHAPE, trained=10)
    assert costs.training(frozen, WORK) == pytest.approx(2 / 3 * costs.training(SHAPE, WORK))


def test_memory_of_training_is_sixteen_bytes_a_weight_and_the_activations() -> None:
    held = costs.training_memory(SHAPE, "fp32", ONE, rows=2, tokens=64)
    assert held["weights"] + held["gradients"] + held["moments"] == 16 * 1000
    assert held["activations"] == 40 * 2 * 64 + 2 * costs.CHUNK_BYTES
    shared = costs.training_memory(SHAPE, "fp16", EIGHT, rows=2, tokens=64)
    assert shared["weights"] == 4 * 1000 / 8 + 2 * 1000 / 4  # and a layer in half precision
    assert shared["moments"] == held["moments"] / 8
    assert costs.rows_of_device(9, 8) == 2


def pace(devices: DevicesConfig, precision: str = "fp16") -> Published:
    plan = PlanConfig.model_validate({"device": "A100-80GB", "precision": precision})
    return Published(DEVICES["A100-80GB"], plan, devices, SHAPE, 100, 10, 1_000_000, 8)


def test_twice_the_devices_or_half_the_work_take_half_the_time() -> None:
    one, two = pace(ONE), pace(DevicesConfig(processes=2))
    assert one.seconds(WORK) == pytest.approx(2 * two.seconds(WORK))
    assert one.seconds(replace(WORK, steps=5)) == pytest.approx(one.seconds(WORK) / 2)
    assert pace(ONE, "fp32").seconds(WORK) == pytest.approx(one.seconds(WORK) * 312 / 19.5)
    assert one.seconds(Loading(0)) == 0 == one.memory(Scoring(5))


def test_a_prompt_is_read_once_however_many_samples_follow() -> None:
    how = DecodeConfig(mode="sample", samples=1, max_labels=3)
    single = Decoding(64, 400, how, labels=3, label_tokens=2)
    four = replace(single, how=how.model_copy(update={"samples": 4}))
    assert pace(ONE).seconds(single) < pace(ONE).seconds(four) < 4 * pace(ONE).seconds(single)
    assert four.total - single.total == 64 * 3 * 3 * 3  # prompts, further samples, labels, tokens


def test_an_unknown_device_is_told_with_those_that_are_known() -> None:
    with pytest.raises(ConfigError, match="did you mean 'A100-80GB'"):
        named("A100-80")
    with pytest.raises(ConfigError, match="known: A100-80GB, A100-40GB"):
        named("abacus")
