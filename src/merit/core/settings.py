"""The settings of a run: one TOML file, a section for each stage."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from merit.core.processes import DevicesConfig
from merit.core.shared import SharedRun
from merit.core.tracking import Tracker
from merit.data.corpus import CorpusRun, TokenizerConfig
from merit.data.texts import TextConfig
from merit.generator.backbone import BackboneConfig
from merit.generator.items.model import ItemsConfig
from merit.generator.mining import MiningConfig
from merit.generator.model import DECODE_BATCH, GeneratorConfig, ObjectiveConfig
from merit.generator.predict import PredictConfig
from merit.plan.config import PlanConfig
from merit.propensity.linear import FactorsRun
from merit.propensity.states import StatesConfig
from merit.propensity.train import PropensityRun


class FirstStage(ObjectiveConfig):
    """Teacher forcing by default."""

    objective: str = "teacher-forcing"


class SecondStage(ObjectiveConfig):
    """Self-correction with the uniform temper by default, whatever else of the section is set.

    It ranks far better than the paper's pooling, beta = 1: docs/decisions/0006-uniform-temper.md.
    """

    @model_validator(mode="before")
    @classmethod
    def _uniform(cls, given: Any) -> Any:
        if isinstance(given, dict) and given.get("objective", "self-correction") == "self-correction":
            return {"beta": 0.0} | given
        return given


def scorer_of_states(given: Any) -> Any:
    """Settings of a run in which a scorer of states is on by default only where the generator reads text."""
    if not isinstance(given, dict) or given.get("reads", "items") == "text":
        return given
    propensity = given.get("propensity", {})
    if not isinstance(propensity, dict) or not isinstance(model := propensity.get("model", {}), dict):
        return given
    return given | {"propensity": propensity | {"model": {"states": False} | model}}


class RunConfig(SharedRun):
    """One file for the whole run. Every stage has its section."""

    devices: DevicesConfig = DevicesConfig()
    trackers: tuple[Tracker, ...] = ()
    """Where the figures of a training go besides the generator's log/figures.jsonl: tensorboard, mlflow."""
    decode_batch: int = Field(DECODE_BATCH, ge=1)
    """Prompts decoded at a time. Lower it when memory is short; results do not depend on it."""
    backbone: BackboneConfig = BackboneConfig()
    text: TextConfig = TextConfig()
    reads: Literal["items", "text"] = "items"
    """What the generator reads of a history: its items, a position each, with a small network that starts from the
    factor model (`item_generator`). Or text, with a language model (`backbone`, `stage_1`, `stage_2`), as in the
    paper."""
    item_generator: ItemsConfig = ItemsConfig()
    stage_1: FirstStage = FirstStage()
    mining: MiningConfig = MiningConfig()
    stage_2: SecondStage = SecondStage()
    predict: PredictConfig = PredictConfig()
    states: StatesConfig = StatesConfig()
    propensity: PropensityRun = PropensityRun()
    plan: PlanConfig = PlanConfig()
    """What `merit plan` may assume. No artifact depends on it."""

    @model_validator(mode="before")
    @classmethod
    def _scorer(cls, given: Any) -> Any:
        return scorer_of_states(given)

    @property
    def tokens(self) -> CorpusRun:
        """The settings of the corpus. Only where the generator reads text are there tokens and prompts."""
        if self.reads == "items":
            return CorpusRun(corpus=self.corpus, tokenizer=None)
        backbone = self.backbone
        words = TokenizerConfig(backbone=backbone.name, size=backbone.vocabulary, whole_labels=backbone.whole_labels)
        return CorpusRun(corpus=self.corpus, text=self.text, tokenizer=words)

    @property
    def mined(self) -> MiningConfig:
        """The settings of mining: by default as many examples as stage 2 reads."""
        return self.mining.of(self.stage_2.reads)

    @property
    def kept_states(self) -> StatesConfig:
        """The settings of the states: none are kept where no model reads them."""
        return self.states if self.propensity.model.states else self.states.model_copy(update={"labels": 0})

    @property
    def factors(self) -> FactorsRun:
        """The settings of the factor model."""
        folds = 2 if self.reads == "items" else 0
        return FactorsRun(size=self.propensity.model.factors, fit=self.propensity.factors, folds=folds)

    def generator(self, train: ObjectiveConfig) -> GeneratorConfig:
        """The settings of a generator that is trained so; all else is the same in both stages."""
        return GeneratorConfig(backbone=self.backbone, text=self.text, train=train)
