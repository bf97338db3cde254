"""What a benchmark compares: data sets, methods with their seeds, and the time each may train for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from merit.baselines.methods import METHODS
from merit.core.config import Frozen, build
from merit.core.errors import ConfigError
from merit.core.settings import FirstStage, RunConfig, SecondStage, scorer_of_states
from merit.data import sources
from merit.data.corpus import CorpusConfig
from merit.data.prepare import PrepareConfig
from merit.data.texts import TextConfig
from merit.evaluation.classification import EvaluationConfig
from merit.generator.backbone import BackboneConfig
from merit.generator.items.model import NAMES, ItemsConfig
from merit.generator.mining import MiningConfig
from merit.generator.predict import PredictConfig
from merit.labels.build import LabelsConfig
from merit.objective.collate import OBJECTIVES
from merit.propensity.lengths import LengthConfig
from merit.propensity.states import StatesConfig
from merit.propensity.train import PropensityRun

MERIT = "MERIT"
TEMPERED = re.compile(r"(?P<objective>.+) \(β = (?P<beta>[0-9.]+)\)")


class Dataset(Frozen):
    """Where the tables come from, and how examples and prompts are made of them."""

    source: sources.Source
    prepare: PrepareConfig = PrepareConfig()
    text: TextConfig = TextConfig()
    withheld: float = Field(0.0, ge=0, lt=1)
    """This share of the labels is in no training target, and test targets are of these alone."""


class MethodGroup(Frozen):
    """Methods that are run with the same seeds."""

    methods: tuple[str, ...] = Field(min_length=1)
    """Names of baselines.methods; a generator that reads items; one that reads text, by its objective, with its temper
    as in "self-correction (β = 0)"; MERIT; a variant."""
    seeds: tuple[int, ...] = Field((1,), min_length=1)
    datasets: tuple[str, ...] = ()
    """On these data sets only; empty for all."""


class Shares(Frozen):
    """How much of the budget each generator of our chain gets.

    With less than 1 for stage 1 the chain has a first generator of its own; with 1 it is the one that is a method.
    """

    stage_1: float = Field(1.0, gt=0, le=1)
    stage_2: float = Field(1.0, gt=0, le=1)


class BenchConfig(Frozen):
    """One file for the whole grid."""

    seed: int = 7
    """Of the split of users and of the bootstrap. Methods have seeds of their own."""
    out: Path = Path("runs/bench")
    """Artifacts: a folder for each data set, in it one for each seed."""
    results: Path = Path("results")
    """NAME.json for every data set: small, for version control."""
    cache: Path = Path(".cache/merit")
    data: Path = Path()
    """The folder from which paths of tables count."""
    datasets: dict[str, Dataset] = Field(min_length=1)
    groups: tuple[MethodGroup, ...] = Field(min_length=1)
    variants: dict[str, tuple[str, ...]] = {}
    """MERIT with other settings, by name: overrides of this file, such as "propensity.model.labels=3"."""
    seconds: float = Field(300.0, gt=0)
    """Of training for every network, on this machine."""
    steps: int | None = Field(None, ge=2)
    """Steps of our generators, instead of as many as fit into the time: the same run on another machine."""
    probe: int = Field(40, ge=10)
    """Steps that are timed to see how many fit."""
    shares: Shares = Shares()
    reference: str = "trivial"
    """What differences of lists are counted from. It is always part of the grid."""
    ranking_reference: str = "DEXML-STk"
    """What differences of Hit@k are counted from, where it is part of the grid."""
    labels: LabelsConfig = LabelsConfig()
    backbone: BackboneConfig = BackboneConfig()
    reads: Literal["items", "text"] = "items"
    """What MERIT's generator reads."""
    item_generator: ItemsConfig = ItemsConfig()
    stage_1: FirstStage = FirstStage()
    """How generators of text without mined labels are trained; steps come from the budget."""
    stage_2: SecondStage = SecondStage()
    """How self-correction is trained. Its temper is that of MERIT's generator."""
    mining: MiningConfig = MiningConfig()
    predict: PredictConfig = PredictConfig()
    corpus: CorpusConfig = CorpusConfig()
    """The same for all methods and variants of a data set."""
    states: StatesConfig = StatesConfig()
    propensity: PropensityRun = PropensityRun()
    length: LengthConfig = LengthConfig()
    """How long MERIT's lists are where nobody says how many are wanted."""
    evaluation: EvaluationConfig = EvaluationConfig()

    @model_validator(mode="before")
    @classmethod
    def _scorer(cls, given: Any) -> Any:
        return scorer_of_states(given)

    @model_validator(mode="after")
    def _known(self) -> Self:
        for name in self.seeds_of():
            if not (name in (*METHODS, MERIT, *self.variants, *NAMES.values()) or objective_of(name)):
                known = [MERIT, *self.variants, *NAMES.values(), *OBJECTIVES, *METHODS]
                near = get_close_matches(name, known, n=1)
                hint = f"did you mean '{near[0]}'?" if near else f"known: {'; '.join(known)}"
                raise ValueError(f"there is no method '{name}'; {hint}; with a temper: {tempered('…', 0.5)}")
        return self

    @model_validator(mode="after")
    def _has_reference(self) -> Self:
        for name in self.datasets:
            if self.reference not in self.seeds_of(name):
                raise ValueError(f"the reference '{self.reference}' is in no group; add it to one")
        for name in (name for group in self.groups for name in group.datasets):
            if name not in self.datasets:
                raise ValueError(f"a group names the data set '{name}'; there are {', '.join(self.datasets)}")
        return self

    @property
    def generator(self) -> str:
        """The method that is MERIT's generator alone."""
        return self.item_generator.name if self.reads == "items" else self.stage_2.name

    def seeds_of(self, dataset: str = "") -> dict[str, tuple[int, ...]]:
        """Seeds by method, in the order of the groups; of one data set, or of all."""
        seeds: dict[str, tuple[int, ...]] = {}
        for group in self.groups:
            if dataset and group.datasets and dataset not in group.datasets:
                continue
            for name in group.methods:
                seeds[name] = tuple(dict.fromkeys(seeds.get(name, ()) + group.seeds))
        return seeds

    def variant(self, name: str) -> Self:
        """The settings under which a variant is MERIT."""
        varied = build(
            type(self), self.model_dump(mode="json", exclude_unset=True), self.variants[name], f"variant '{name}'"
        )
        for section in ("datasets", "labels", "backbone", "corpus"):
            if getattr(varied, section) != getattr(self, section):
                raise ConfigError(f"The variant '{name}' changes {section}, which all methods of a data set share.")
        return varied

    def run_config(self, dataset: str) -> RunConfig:
        """Examples, labels and corpus of a data set, as `merit run` makes them; some methods read the prompts."""
        given = self.datasets[dataset]
        source = given.source
        if isinstance(source, sources.TablesSource):
            places = {name: getattr(source, name) for name in ("interactions", "items")}
            inside = {name: self.data / place for name, place in places.items() if isinstance(place, Path)}
            source = source.model_copy(update=inside)
        return RunConfig(
            reads="text",
            seed=self.seed,
            out=self.out / dataset,
            cache=self.cache,
            source=source,
            prepare=given.prepare,
            labels=self.labels,
            backbone=self.backbone,
            text=given.text,
            corpus=self.corpus,
        )


class BenchCell(NamedTuple):
    """One method on one data set with one seed."""

    dataset: str
    method: str
    seed: int

    @property
    def name(self) -> str:
        """As progress and the list of failures call it."""
        return f"{self.dataset}/{self.method}/seed {self.seed}"


def cells(config: BenchConfig, dataset: str, only: Sequence[str] = ()) -> Iterator[BenchCell]:
    """The cells of a data set, those of one method together; the reference in any case."""
    for method, seeds in config.seeds_of(dataset).items():
        if not only or method in only or method == config.reference:
            yield from (BenchCell(dataset, method, seed) for seed in seeds)


def chosen(config: BenchConfig, begins: Sequence[str]) -> list[str]:
    """The methods whose names begin like one of these, whatever the case."""
    methods: list[str] = []
    for word in begins:
        names = [name for name in config.seeds_of() if name.casefold().startswith(word.casefold())]
        if not names:
            raise ConfigError(f"No method begins with '{word}'. Methods: {', '.join(config.seeds_of())}.")
        methods += names
    return list(dict.fromkeys(methods))


def chosen_datasets(config: BenchConfig, names: Sequence[str]) -> list[str]:
    """These data sets, or all."""
    for name in names:
        if name not in config.datasets:
            raise ConfigError(f"There is no data set '{name}'. Data sets: {', '.join(config.datasets)}.")
    return [name for name in config.datasets if not names or name in names]


def objective_of(method: str) -> tuple[str, float | None] | None:
    """Objective and temper of a generator of ours, by the name of its method."""
    if method in OBJECTIVES:
        return method, None
    match = TEMPERED.fullmatch(method)
    if match and match["objective"] in OBJECTIVES:
        return match["objective"], float(match["beta"])
    return None


def tempered(objective: str, beta: float) -> str:
    """The name of a method that `objective_of` reads back."""
    return f"{objective} (β = {beta:g})"


def slug(name: str) -> str:
    """A name for a folder."""
    return re.sub(r"[^\w.]+", "-", name).strip("-")
