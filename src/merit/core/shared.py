"""The settings that every run has, whatever trains its model. Nothing here imports torch.

`RunConfig` adds the sections of the generator; the quick preset has none of them, and runs on these alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from merit.core.config import Frozen
from merit.data import sources
from merit.data.corpus import CorpusConfig, CorpusRun
from merit.data.prepare import PrepareConfig, PrepareRun
from merit.data.report.build import DataReportConfig
from merit.engine.job import EngineConfig
from merit.evaluation.classification import EvaluationConfig
from merit.labels.build import LabelsConfig
from merit.labels.tagging.build import TagsRun
from merit.labels.tagging.finding import TagsConfig
from merit.propensity.quick import QuickRun
from merit.retrieval.build import ModelConfig
from merit.retrieval.ranking import RankingConfig

Preset = Literal["standard", "quick"]


class SharedRun(Frozen):
    """What a run of either preset is told."""

    preset: Preset = "standard"
    """standard: the whole of MERIT. quick: the factor model in closed form, calibrated; no generator, and no torch."""
    seed: int = 7
    out: Path = Path("runs/merit")
    """The folder that gets one artifact folder per stage."""
    cache: Path = Path(".cache/merit")
    """Label vectors by content, shared between runs."""
    engine: EngineConfig = EngineConfig()
    """Who builds examples, mines, predicts and computes states: docs/cluster.md."""
    source: sources.Source
    tags: TagsConfig = TagsConfig()
    """Tags of items that have none, from titles: docs/tags.md."""
    prepare: PrepareConfig = PrepareConfig()
    labels: LabelsConfig = LabelsConfig()
    data_report: DataReportConfig = DataReportConfig()
    corpus: CorpusConfig = CorpusConfig()
    quick: QuickRun = QuickRun()
    """The model of the quick preset; the standard one does not read it."""
    ranking: RankingConfig = RankingConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    model: ModelConfig = ModelConfig()

    @property
    def examples(self) -> PrepareRun:
        """The settings of the examples."""
        return PrepareRun(source=self.source, prepare=self.prepare)

    @property
    def tagging(self) -> TagsRun:
        """The settings of the tags. Their encoder is the one without torch, which has the vectors of the default."""
        return TagsRun(source=self.source, tags=self.tags, labels=self.quick_labels)

    @property
    def quick_labels(self) -> LabelsConfig:
        """The settings of the label space of the quick preset: the default encoder is the one without torch."""
        same = self.labels.encoder != "minilm"
        return self.labels if same else self.labels.model_copy(update={"encoder": "minilm-numpy"})

    @property
    def quick_corpus(self) -> CorpusRun:
        """The settings of the corpus of the quick preset: without tokens, prompts and title words."""
        return CorpusRun(corpus=self.corpus.model_copy(update={"title_words": 0}), tokenizer=None)
