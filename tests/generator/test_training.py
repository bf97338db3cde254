"""The loop learns, resumes to the byte, and fails in ways a person can act on."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from merit.core.errors import ConfigError, DataError, TrainingError
from merit.core.ragged import Ragged
from merit.data import tokenizer
from merit.generator import backbone, checkpoint
from merit.generator.batches import epoch_batches, plan_batches
from merit.generator.patching import in_full
from merit.generator.training import TrainConfig, learning_rate, train
from merit.objective.collate import OBJECTIVES, Corpus, collate
from tests.processes import FORKED

WORDS = ["red", "green", "blue", "warm", "cold", "round", "flat", "old"]


def world(examples: int = 64) -> tuple[Any, Corpus]:
    """A prompt names two words; the labels are those words. One mined label each."""
    vocabulary = tokenizer.train(WORDS * 5, WORDS, 300)
    paths = Ragged.of(vocabulary.encode(WORDS))
    rng = np.random.default_rng(0)
    gold = np.array([rng.choice(len(WORDS), 2, replace=False) for _ in range(examples)])
    mined = np.array([[next(n for n in range(8) if n not in pair)] for pair in gold.tolist()])
    prompts = [[vocabulary.controls.profile, *(paths[a][0] for a in pair), vocabulary.controls.answer] for pair in gold]
    corpus = Corpus(
        Ragged.of(prompts), Ragged.of(gold.tolist()), Ragged.of(mined.tolist()),
        np.ones(examples, np.int32), paths, vocabulary.sep, vocabulary.end,
    )  # fmt: skip
    shape = backbone.BackboneConfig(width=32, layers=1, heads=2, vocabulary=300)
    return backbone.make(shape, vocabulary, seed=7), corpus


CONFIG = TrainConfig(steps=12, batch_size=16, checkpoint_every=3, learning_rate=5e-3)


class Log:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.told: dict[str, list[float]] = defaultdict(list)

    def __call__(self, name: str, value: float, step: int) -> None:
        self.told[name].append(value)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_every_objective_learns(objective: str, tmp_path: Path) -> None:
    model, corpus = world()
    log = Log()
    train(model, corpus, OBJECTIVES[objective], CONFIG.model_copy(update={"steps": 60}), 7, tmp_path, log=log)
    seen = log.told["train/loss"]
    assert np.mean(seen[-5:]) < 0.5 * np.mean(seen[:5])


def weights(folder: Path) -> bytes:
    return (folder / f"step-{CONFIG.steps:07}.safetensors").read_bytes()


def whole_training(folder: Path) -> None:
    model, corpus = world()
    train(model, corpus, OBJECTIVES["self-correction"], CONFIG, 7, folder)


@pytest.mark.slow
def test_killed_three_times_the_weights_are_the_same_bytes(tmp_path: Path) -> None:
    whole_training(tmp_path / "whole")
    rng, folder = random.Random(5), tmp_path / "killed"
    for _ in range(3):
        child = FORKED.Process(target=whole_training, args=(folder,))
        had = len(list(folder.glob("step-*.safetensors")))
        child.start()
        while child.is_alive() and len(list(folder.glob("step-*.safetensors"))) == had:
            time.sleep(0.002)
        time.sleep(rng.random() * 0.02)  # somewhere within the next steps, or within the next save
        child.kill()
        child.join()
    whole_training(folder)
    assert weights(tmp_path / "killed") == weights(tmp_path / "whole")


def test_another_seed_gives_other_bytes(tmp_path: Path) -> None:
    for seed in (7, 8):
        model, corpus = world()
        train(model, corpus, OBJECTIVES["self-correction"], CONFIG, seed, tmp_path / str(seed))
    assert weights(tmp_path / "7") != weights(tmp_path / "8")


@pytest.mark.parametrize("damage", ["truncated", "header", "garbage"])
def test_a_damaged_checkpoint_is_passed_over(tmp_path: Path, damage: str) -> None:
    model, corpus = world()
    train(model, corpus, OBJECTIVES["self-correction"], CONFIG, 7, tmp_path / "whole")
    last = tmp_path / "whole" / f"step-{CONFIG.steps:07}.safetensors"
    good = last.read_bytes()
    bad = {"truncated": good[: len(good) // 2], "header": b"\xff" * 8 + good[8:], "garbage": b"cos\nsystem"}[damage]
    last.write_bytes(bad)
    model, corpus = world()
    train(model, corpus, OBJECTIVES["self-correction"], CONFIG, 7, tmp_path / "whole")
    assert last.read_bytes() == good


def test_settings_changed_means_a_new_run(tmp_path: Path) -> None:
    model, corpus = world()
    train(model, corpus, OBJECTIVES["self-correction"], CONFIG, 7, tmp_path)
    other = CONFIG.model_copy(update={"learning_rate": 1e-4})
    assert checkpoint.latest(tmp_path, "another-digest") is None
    model, corpus = world()
    progress = train(model, corpus, OBJECTIVES["self-correction"], other, 7, tmp_path)
    assert progress.tokens == pytest.approx(
        train(world()[0], corpus, OBJECTIVES["self-correction"], CONFIG, 7, tmp_path / "fresh").tokens
    )


def test_the_best_weights_come_back(tmp_path: Path) -> None:
    model, corpus = world()
    recalls = iter([0.3, 0.9, 0.5, 0.4, 0.2, 0.1])
    kept: dict[str, torch.Tensor] = {}

    def evaluate(trained: Any) -> dict[str, float]:
        value = next(recalls)
        if value == 0.9:
            kept.update({name: tensor.detach().clone() for name, tensor in checkpoint.trainable(trained).items()})
        return {"exposure_bias": 1 - value, "recall": value}

    config = CONFIG.model_copy(update={"steps": 60, "evaluate_every": 3, "patience": 2})
    log = Log()
    progress = train(model, corpus, OBJECTIVES["self-correction"], config, 7, tmp_path, evaluate, log)
    assert (progress.step, progress.best_step, progress.best) == (12, 6, 0.9)
    assert all(torch.equal(tensor, kept[name]) for name, tensor in checkpoint.trainable(model).items())
    assert log.told["validation/recall"] == [0.3, 0.9, 0.5, 0.4]
    assert log.told["validation/exposure_bias"] == pytest.approx([0.7, 0.1, 0.5, 0.6])


def test_evaluations_change_no_byte_of_a_run_that_was_stopped(tmp_path: Path) -> None:
    config = CONFIG.model_copy(update={"evaluate_every": 2})
    for folder, stops in (("whole", []), ("stopped", [3, 2])):
        for stop in [*stops, None]:
            model, corpus = world()
            with suppress(KeyboardInterrupt):
                train(model, corpus, OBJECTIVES["self-correction"], config, 7, tmp_path / folder, improving(stop))
    for name in (f"step-{CONFIG.steps:07}.safetensors", "best.safetensors"):
        assert (tmp_path / "stopped" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def improving(stop: int | None) -> Callable[[Any], dict[str, float]]:
    """A recall that is a function of the weights alone; the evaluation number `stop` is interrupted."""
    done = iter(range(1, 100))

    def evaluate(trained: Any) -> dict[str, float]:
        if next(done) == stop:
            raise KeyboardInterrupt
        return {"recall": float(backbone.head(trained).detach().abs().mean()), "exposure_bias": 0.0}

    return evaluate


def test_not_a_number_stops_and_keeps_the_batch(tmp_path: Path) -> None:
    model, corpus = world()
    with torch.no_grad():
        model.get_input_embeddings().weight.fill_(float("nan"))
    with pytest.raises(TrainingError, match="not a number at step 0"):
        train(model, corpus, OBJECTIVES["self-correction"], CONFIG, 7, tmp_path)
    assert len(list(tmp_path.glob("not-a-number-*.safetensors"))) == 1


def test_out_of_memory_names_the_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, corpus = world()

    def exhausted(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr(backbone, "states", exhausted)
    with pytest.raises(TrainingError, match=r"Halve stage_1\.batch_size"):
        train(model, corpus, OBJECTIVES["self-correction"], CONFIG, 7, tmp_path)


def test_an_empty_label_set_is_refused(tmp_path: Path) -> None:
    model, corpus = world()
    empty = Corpus(**(vars(corpus) | {"gold": Ragged.of([[]] * len(corpus))}))
    with pytest.raises(DataError, match="nothing to train on"):
        train(model, empty, OBJECTIVES["self-correction"], CONFIG, 7, tmp_path)


def test_a_label_longer_than_the_target_is_refused(tmp_path: Path) -> None:
    model, corpus = world()
    long = Corpus(**(vars(corpus) | {"paths": Ragged.of([[9] * 30] + [[n] for n in range(10, 17)])}))
    with pytest.raises(ConfigError, match=r"stage_2\.max_target to 31"):
        train(model, long, OBJECTIVES["self-correction"], CONFIG.model_copy(update={"max_target": 20}), 7, tmp_path)


def test_the_schedule_warms_up_and_cools_down() -> None:
    config = TrainConfig(steps=100, learning_rate=1.0, warmup=0.1, final_rate=0.05)
    rates = [learning_rate(step, config) for step in range(100)]
    assert rates[0] == pytest.approx(0.1) and max(rates) == pytest.approx(1.0) and rates[-1] < 0.06


def test_an_epoch_is_every_example_once() -> None:
    lengths = np.random.default_rng(0).integers(1, 300, 1000)
    one, two = (np.concatenate(epoch_batches(lengths, 16, epoch, 7)) for epoch in (0, 1))
    assert sorted(one) == sorted(two) == list(range(1000))
    assert not np.array_equal(one, two)


def test_a_pass_over_the_batches_is_every_example_once() -> None:
    corpus, config = uneven_corpus(), TrainConfig(batch_size=8)
    plan = plan_batches(corpus, config, 7, in_full)
    per_epoch = -(-len(corpus) // 8)
    for epoch in range(2):
        read = [plan(number) for number in range(epoch * per_epoch, (epoch + 1) * per_epoch)]
        assert {number for number, _ in read} == {epoch}
        assert sorted(np.concatenate([rows for _, rows in read])) == list(range(len(corpus)))


def test_prompts_of_like_length_share_a_batch() -> None:
    """Less is padded than in batches at random."""
    corpus, config, shares = uneven_corpus(), TrainConfig(batch_size=8), []
    for lengths in (np.zeros(len(corpus), np.int64), corpus.prompts.lengths()):
        batches = epoch_batches(lengths, 8, 0, 7)
        made = [collate(corpus, rows.tolist(), 0, OBJECTIVES["self-correction"], config, 7) for rows in batches]
        shares.append(float(np.mean([batch.padding for batch in made])))
    assert shares[1] < 0.7 * shares[0]


def uneven_corpus(examples: int = 300) -> Corpus:
    """Prompts of 1 to 60 tokens, 1 to 6 gold labels of 1 to 3 tokens, up to 4 mined ones."""
    rng = np.random.default_rng(3)
    paths = Ragged.of([[10 + label] * (1 + label % 3) for label in range(20)])
    chosen = [rng.permutation(20) for _ in range(examples)]
    golds, wrong = rng.integers(1, 7, examples), rng.integers(0, 5, examples)
    mined = Ragged.of([labels[6 : 6 + size].tolist() for labels, size in zip(chosen, wrong, strict=True)])
    return Corpus(
        Ragged.of([[5] * size for size in rng.integers(1, 61, examples)]),
        Ragged.of([labels[:size].tolist() for labels, size in zip(chosen, golds, strict=True)]),
        mined, np.ones(len(mined.values), np.int32), paths, sep=1, end=2,
    )  # fmt: skip
