"""The pace of this machine: a little of everything is done with the configured models, and timed."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from merit.core import console
from merit.core.errors import ConfigError
from merit.core.settings import RunConfig
from merit.core.timings import peak, reset_peak
from merit.data import sources, validate
from merit.data.patches import windows_of
from merit.generator import backbone, decoding, training
from merit.generator.model import ObjectiveConfig
from merit.labels import encoders
from merit.objective.collate import Corpus
from merit.plan import costs
from merit.plan.sample import Sample
from merit.plan.shapes import Shape
from merit.plan.work import Decoding, Encoding, Fitting, Loading, Passing, Relating, Scoring, Tabulating, Training, Work
from merit.propensity import training as fitting
from merit.propensity.features import States, UserFeatures
from merit.propensity.linear import factors_loss
from merit.propensity.negatives import SampledLabels, make_sampler
from merit.propensity.train import GRID, make_model

STEPS = 7  # of a training; the first is not counted
OPERATIONS = 3e11  # of a step or a decoding at the most: a few seconds on a small machine
BATCHES = 4  # of the propensity model
TEXTS = 128  # labels encoded


@dataclass
class _Clock:
    """A log that notes when each step ended and how many tokens it read."""

    ends: list[float] = field(default_factory=list)
    tokens: list[float] = field(default_factory=list)

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None:
        if tag == "train/tokens":
            self.ends.append(time.perf_counter())
            self.tokens.append(scalar_value)

    def seconds_per_token(self) -> float:
        return (self.ends[-1] - self.ends[0]) / sum(self.tokens[1:])


@dataclass
class Probe:
    """Amounts times measured rates. What was measured once is not measured again."""

    config: RunConfig
    sample: Sample
    shape: Shape
    model: Any
    """That decodes."""
    trained: Any
    """What training works on: the same, or one with adapters, which are no longer there when a generator decodes."""
    taken: dict[Any, tuple[float, float]] = field(default_factory=dict)
    """By kind of work: seconds for one unit of it, and bytes at the peak."""

    def seconds(self, work: Work) -> float:
        """Units times the rate of one; the first of a kind is tried at once, which takes its time."""
        units, rate = self._measured(work)
        return units * rate[0]

    def memory(self, work: Work) -> float:
        """Bytes that this process had at the peak while the kind of work was tried."""
        return self._measured(work)[1][1]

    def _measured(self, work: Work) -> tuple[float, tuple[float, float]]:
        """Units of the work, and what was measured of one."""
        kind, units, measure = MEASURES[type(work)](self, work)
        return units, self._once(kind, measure)

    def _once(self, kind: Any, measure: Callable[[], float]) -> tuple[float, float]:
        if kind not in self.taken:
            reset_peak()
            seconds = measure()
            self.taken[kind] = (seconds, float(peak()))
        return self.taken[kind]

    def train(self, work: Training) -> float:
        """Seconds for a token: a few steps of the very loop, on batches that are not too long."""
        config = self._objective(work.stage)
        rows = _affordable(config.batch_size, costs.training(self.shape, work) / (work.steps * work.rows))
        few = {"steps": STEPS, "evaluate_every": 0, "checkpoint_every": STEPS, "batch_size": rows, "accumulate": 1}
        clock, corpus = _Clock(), _first(self.sample.corpus, rows * STEPS)
        with TemporaryDirectory() as place, console.spinner(f"trying {work.stage}"):
            training.train(
                self.trained,
                corpus,
                config.resolved(),
                config.model_copy(update=few),
                self.config.seed,
                Path(place),
                log=clock,
                patching=self.config.text.patching if corpus.patched else None,
            )
        return clock.seconds_per_token()

    def _objective(self, stage: str) -> ObjectiveConfig:
        return self.config.stage_1 if stage == "stage-1" else self.config.stage_2

    def decode(self, work: Decoding) -> float:
        """Seconds for a prompt. END is suppressed, as what is learnt decides when it comes: lengths are given."""
        operations = costs.reading(self.shape, work.tokens + work.written, work.tokens)
        rows = _affordable(min(work.how.batch_size, len(self.sample.inputs)), operations)
        how = work.how.model_copy(update={"max_labels": _whole(work), "fixed_budget": True})
        inputs, words = self.sample.inputs, self.sample.vocabulary
        prompts = [inputs[row] for row in range(rows)]
        with console.spinner("trying to decode"):
            begin = time.perf_counter()
            decoding.decode(
                self.model, prompts, self.sample.trie, words.sep, words.end, how, windows=windows_of(inputs)
            )
            return (time.perf_counter() - begin) / rows

    def fit(self) -> float:
        """Seconds for a step, on random states: what they say does not change how long it takes."""
        run, sample = self.config.propensity, self.sample
        size = min(run.fit.batch_size, len(sample.history) // BATCHES)
        known = _known(sample, run.model.labels, self.shape.width)
        corpus = sample.corpus
        hits = np.zeros(len(corpus.gold.values), np.int32)
        sampler = make_sampler(corpus.gold, hits, corpus.mined, corpus.mined_counts, sample.live, run.negatives)
        model = make_model(run.model, self.shape.width, sample.vectors.shape[1], sample.live, seed=0, words=0)
        once = run.fit.model_copy(update={"epochs": 1, "batch_size": size})
        fitting.fit(model, known.part(0, size), sampler, sample.vectors, once, seed=0)  # the first pays for starting
        begin = time.perf_counter()
        fitting.fit(model, known.part(0, BATCHES * size), sampler, sample.vectors, once, seed=0)
        return (time.perf_counter() - begin) / BATCHES * run.fit.batch_size / size

    def relate(self) -> float:
        """Seconds for an example, of training the product."""
        run, sample = self.config.propensity, self.sample
        known = _known(sample, run.model.labels, self.shape.width)
        model = make_model(run.model, self.shape.width, sample.vectors.shape[1], sample.live, seed=0, words=0)
        rows, labels = np.arange(min(run.factors.batch_size, len(known))), np.flatnonzero(sample.live)
        met = SampledLabels(labels[: run.factors.labels], np.ones(min(run.factors.labels, len(labels)), np.float32))
        begin = time.perf_counter()
        factors_loss(model, known, sample.corpus.gold, sample.vectors, rows, met).backward()  # type: ignore[no-untyped-call]
        return (time.perf_counter() - begin) / len(rows)

    def score(self) -> float:
        """Seconds for a pair, in blocks as large as those of the stage."""
        run, sample = self.config.propensity, self.sample
        model = make_model(run.model, self.shape.width, sample.vectors.shape[1], sample.live, seed=0, words=0).eval()
        labels = torch.zeros(len(sample.vectors), run.model.hidden + run.model.own)
        users = torch.zeros(max(1, GRID // labels.numel()), 1, labels.shape[1])
        with torch.inference_mode():
            model.pair_score(users, labels)
            begin = time.perf_counter()
            model.pair_score(users, labels)
        return (time.perf_counter() - begin) / (len(users) * len(labels))

    def encode(self) -> float:
        """Seconds for a label; one is encoded before, which pays for loading the encoder."""
        encoder = encoders.make(self.config.labels.encoder)
        texts = [f"an interest in number {number}" for number in range(TEXTS)]
        encoder.encode(texts[:1])
        begin = time.perf_counter()
        encoder.encode(texts)
        return (time.perf_counter() - begin) / TEXTS

    def read(self) -> float:
        """One pass over the interactions, which is short beside any training."""
        begin = time.perf_counter()
        good = validate.validate(sources.open_source(self.config.source))
        validate.collect(good, good.interactions.group_by("user_id").len("events"))
        return time.perf_counter() - begin


# By work: what is measured only once, how many units of it there are, and the seconds of one.
MEASURES: dict[type, Callable[[Probe, Any], tuple[Any, float, Callable[[], float]]]] = {
    Training: lambda probe, work: (work.stage, work.total, partial(probe.train, work)),
    Decoding: lambda probe, work: ((work.how, _whole(work)), work.prompts, partial(probe.decode, work)),
    Loading: lambda probe, work: (work, 1, lambda: probe.sample.once + work.prompts * probe.sample.each),
    Fitting: lambda probe, work: (Fitting, work.steps, probe.fit),
    Relating: lambda probe, work: (Relating, work.examples, probe.relate if work.examples else lambda: 0.0),
    Scoring: lambda probe, work: (Scoring, work.pairs, probe.score),
    Encoding: lambda probe, work: (Encoding, work.labels, probe.encode),
    Passing: lambda probe, work: (Passing, work.passes, probe.read),
    Tabulating: lambda probe, work: (Tabulating, work.seconds, lambda: 1.0),
}


def make_probe(config: RunConfig, sample: Sample, shape: Shape, free: float) -> Probe:
    """With the configured backbone, if there is room for its training."""
    rows = _affordable(config.stage_2.batch_size, 3 * costs.reading(shape, config.text.prompt.budget, 1))
    needed = sum(costs.training_memory(shape, "fp32", config.devices, rows, config.text.prompt.budget).values())
    if needed > free:
        raise ConfigError(
            f"Training {config.backbone.name} on {rows} example{'s' * (rows > 1)} at a time takes "
            f"{needed / 2**30:,.0f} GiB, and {free / 2**30:,.0f} GiB are free here. Plan for a device instead: "
            "--device A100-80GB --devices 8."
        )
    arguments = (config.backbone, sample.vocabulary, config.seed)
    model = backbone.make(*arguments)
    other = backbone.make(*arguments) if config.backbone.lora_rank else model
    return Probe(config, sample, shape, model, backbone.adapt(other, *arguments))


def _whole(work: Decoding) -> int:
    return max(1, round(work.labels))


def _affordable(rows: int, operations: float) -> int:
    """As many rows as can be tried in a few seconds."""
    return max(1, min(rows, int(OPERATIONS / max(operations, 1.0))))


def _first(corpus: Corpus, rows: int) -> Corpus:
    """The first examples of a corpus."""
    count = min(rows, len(corpus))
    some = np.arange(count)
    return Corpus(
        prompts=corpus.prompts.gather(some),
        gold=corpus.gold.gather(some),
        mined=corpus.mined.gather(some),
        mined_counts=corpus.mined_counts[: int(corpus.mined.offsets[count])],
        paths=corpus.paths,
        sep=corpus.sep,
        end=corpus.end,
        patched=corpus.patched.gather(some) if corpus.patched else None,
    )


def _known(sample: Sample, labels: int, width: int) -> UserFeatures:
    rows = len(sample.history)
    values = np.random.default_rng(0).standard_normal((rows, labels, width)).astype(np.float16)
    return UserFeatures(States(values, np.full(rows, labels, np.int32)), sample.history, sample.times)
