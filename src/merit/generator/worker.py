"""What a generator is asked about many users, shard by shard: the part that mine, states and predict share.

    speaker = Speaker(asked)                                       # the shop at once, the weights with the first prompt
    parts = make_parts(job_of("mining", asked, sample), rows_of(found), place, engine, speaker)
    table = in_order(parts, np.arange(len(found)))                 # a row for each example, in their order

A row goes to a worker as the items of its history; the worker writes the prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl
import torch
from pydantic import BaseModel

from merit.core.artifacts import Artifact
from merit.core.errors import ConfigError, DamagedArtifact
from merit.core.ragged import Ragged, column_lists, list_column
from merit.core.types import Floats, Ints
from merit.data.labelled import LabelledExamples
from merit.data.texts import EncodedShop, write_inputs
from merit.engine.job import Device, EngineConfig, ShardJob
from merit.engine.run import Parts
from merit.generator.decoding import DecodeConfig
from merit.generator.model import Generator, GeneratorConfig, load_model, load_shop
from merit.labels.build import load_vectors
from merit.labels.space import LabelSpace


@dataclass(frozen=True)
class Asked:
    """Who is asked, and how. It goes to every worker."""

    generator: Artifact
    examples: Artifact
    labels: Artifact
    config: BaseModel
    """Of the stage."""
    seed: int
    together: int
    """Prompts decoded at a time."""
    device: Device = "cpu"

    def essence(self) -> dict[str, object]:
        """What parts are known by, as JSON: work with other threads or on another device is another job."""
        hashes = [each.manifest.hash for each in (self.generator, self.examples, self.labels)]
        return {
            "parents": hashes,
            "config": self.config.model_dump(mode="json"),
            "seed": self.seed,
            "together": self.together,
            "threads": torch.get_num_threads(),
            "device": self.device,
        }


class Speaker:
    """A generator in one process. Who only hands out work never loads its weights."""

    def __init__(self, asked: Asked) -> None:
        self.asked = asked

    @property
    def shop(self) -> EncodedShop:
        """Items, labels and vocabulary, read at the first look and without the weights."""
        return self._known[0]

    @property
    def settings(self) -> GeneratorConfig:
        """Those that the generator was trained with; the stage's own are in `asked`."""
        return self._known[2]

    @property
    def labels(self) -> int:
        """How many there are in the space."""
        return len(self._known[1])

    @cached_property
    def trained(self) -> Generator:
        """With its weights on the device asked for, loaded at the first look."""
        shop, labels, settings = self._known
        check_device(self.asked.device)
        trained = load_model(self.asked.generator, shop, labels, settings, self.asked.together)
        trained.model.to(self.asked.device)
        return trained

    @cached_property
    def vectors(self) -> Floats:
        """(labels, d): the text vectors of the whole space."""
        return load_vectors(self.asked.labels)

    def prompts(self, rows: pl.DataFrame) -> Ragged:
        """The tokens of each row, with patches where the generator was trained with them."""
        return write_inputs(column_lists(rows["items"]), self.shop, self.settings.text)

    def said(self, rows: pl.DataFrame, prompts: Ragged, how: DecodeConfig) -> Ragged:
        """A row is known by its number, so that its samples are its own."""
        return self.trained.decode(prompts, how, self.asked.seed, keys=rows["row"].to_numpy().astype(np.uint64))

    @cached_property
    def _known(self) -> tuple[EncodedShop, LabelSpace, GeneratorConfig]:
        return load_shop(self.asked.generator, self.asked.examples, self.asked.labels)


def job_of(name: str, asked: Asked, work: Callable[[Speaker, pl.DataFrame], pl.DataFrame]) -> ShardJob:
    """`work` is a function of a module, which other processes find by its name."""
    essence = asked.essence()
    return ShardJob(name, _set_up, (asked, essence["threads"]), work, essence, asked.device)


def check_device(device: Device) -> None:
    """Refuse a device that is not in this machine."""
    if device == "cuda" and not torch.cuda.is_available():
        raise ConfigError(
            "engine.device = cuda, and torch finds no GPU here. Set engine.device=cpu, or install torch for the driver "
            "of this machine (docs/howto/gpu.md)."
        )


def _set_up(settings: tuple[Asked, int]) -> Speaker:
    asked, threads = settings
    torch.set_num_threads(threads)
    speaker = Speaker(asked)
    _ = speaker.trained  # before the first shard: what cannot be loaded is no shard's fault
    return speaker


@contextmanager
def threads_of(engine: EngineConfig) -> Iterator[EngineConfig]:
    """The engine with its number of threads settled, and torch in this process with as many.

    Sums of more threads are added in another order, so that the last bits of a state are others.
    """
    had = torch.get_num_threads()
    torch.set_num_threads(engine.threads or had)
    try:
        yield engine.model_copy(update={"threads": engine.threads or had})
    finally:
        torch.set_num_threads(had)


def rows_of(found: LabelledExamples, **lists: Ragged) -> pl.DataFrame:
    """Examples as rows that workers are sent: whose, which, the items of the history, and further lists."""
    columns = {name: _column(each) for name, each in ({"items": found.items} | lists).items()}
    return pl.DataFrame({"user_id": pl.Series(found.user_ids, dtype=pl.String), **columns}).with_row_index("row")


def lists(rows: pl.DataFrame, **made: Ragged) -> pl.DataFrame:
    """What a worker found, beside the numbers of the rows."""
    return rows.select("row").with_columns(**{name: _column(each) for name, each in made.items()})


def in_order(parts: Parts, rows: Ints) -> pl.DataFrame:
    """All parts as one table in the order of the rows, ascending, each of which is there once."""
    table = pl.concat(parts.tables()).sort("row")
    if not np.array_equal(table["row"].to_numpy(), rows):
        raise DamagedArtifact(f"{parts.folder} has not every row once. Remove it and run the same again.")
    return table


def _column(found: Ragged) -> pl.Series:
    return list_column(found.values[found.offsets[0] : found.offsets[-1]].astype(np.uint32), found.lengths())
