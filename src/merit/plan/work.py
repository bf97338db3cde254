"""What stages have to do, in amounts; how long that takes is another question, and a `Pace` answers it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from merit.generator.decoding import DecodeConfig


@dataclass(frozen=True)
class Training:
    """Steps of a generator. Tokens are positions read, padding included; targets those of them that are judged."""

    stage: str
    steps: int
    rows: int  # examples of a step
    tokens: float  # of an example
    targets: float  # of an example

    @property
    def total(self) -> float:
        """Positions read in all steps."""
        return self.steps * self.rows * self.tokens


@dataclass(frozen=True)
class Decoding:
    """Prompts answered by a generator, all of them in one way."""

    prompts: int
    tokens: float  # positions of a prompt
    how: DecodeConfig
    labels: float  # that a lane writes until its prompt is done
    label_tokens: float

    @property
    def written(self) -> float:
        """Tokens written for a prompt, a terminator for each label included."""
        return self.how.lanes * self.labels * (self.label_tokens + 1)

    @property
    def total(self) -> float:
        """Positions read and written for all prompts."""
        return self.prompts * (self.tokens + self.written)


@dataclass(frozen=True)
class Loading:
    """A generator's shop and prompts, put into tokens."""

    prompts: int


@dataclass(frozen=True)
class Fitting:
    """Steps of the propensity model."""

    steps: int
    users: int  # of a step
    tokens: int  # of a user: states, and the history
    pairs: int  # of user and label, of a user


@dataclass(frozen=True)
class Relating:
    """Examples that the product of the propensity model learns from, in all its epochs together."""

    examples: int
    labels: int  # that each meets
    numbers: int  # of a label


@dataclass(frozen=True)
class Scoring:
    """Pairs of user and label."""

    pairs: int


@dataclass(frozen=True)
class Encoding:
    """Labels put into vectors."""

    labels: int


@dataclass(frozen=True)
class Passing:
    """Passes over the interactions."""

    passes: float


@dataclass(frozen=True)
class Tabulating:
    """What takes about as long on any shop, and a little longer for every user judged."""

    seconds: float


Work = Training | Decoding | Loading | Fitting | Relating | Scoring | Encoding | Passing | Tabulating


class Pace(Protocol):
    """How long work takes: measured on this machine, or from a device's figures."""

    def seconds(self, work: Work) -> float:
        """For all of the work, with every device that takes part in it."""
        ...

    def memory(self, work: Work) -> float:
        """Bytes at the peak, on each device."""
        ...


def tokens_of(work: Work) -> float:
    """Positions that a language model reads or writes; 0 for work without one."""
    return work.total if isinstance(work, Training | Decoding) else 0.0
