"""What is known before a run: sizes of the data, parameters, and tokens of each stage.

Parameters are counted on the meta device, by the real classes without weights. Where the examples and labels of the
configuration are not made yet, sizes come from `plan.expected` or from the tables, and prompts fill their budget.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import torch
from tokenizers import Tokenizer, models

from merit.core import artifacts, console, weights
from merit.core.artifacts import Artifact
from merit.core.errors import ConfigError, MissingArtifact
from merit.core.pipeline import STAGES
from merit.core.ragged import column_lists
from merit.core.settings import RunConfig
from merit.data import sources, tokenizer, validate
from merit.data.corpus import read_inputs, read_table, read_words
from merit.data.texts import TOKENS, read_shop
from merit.data.tokenizer import SPECIALS, Vocabulary
from merit.generator import backbone, exposure
from merit.generator.backbone import TINY, BackboneConfig
from merit.generator.items.network import ItemNetwork
from merit.generator.mining import MiningConfig
from merit.generator.model import ObjectiveConfig
from merit.generator.train import CHECKED_BUDGET, CHECKED_USERS
from merit.labels import encoders
from merit.labels.build import PER_CLUSTER, load_vectors
from merit.objective.collate import OBJECTIVES
from merit.plan.config import ExpectedSizes, PlanConfig
from merit.propensity.states_model import Propensity

# Backbones to plan with before their weights are there; all else is transformers' default for the class.
PUBLISHED = {"phi-3.5-mini": {"model_type": "phi3", "max_position_embeddings": 131072}}
LONGER = 2.0  # samples of a generator that has read mistakes are twice as long: union of 4 in docs/results-details.md


class DataSizes(ExpectedSizes):
    """The data of a run in numbers; `origin` is where they are from, `exact` whether counted in artifacts."""

    words: int  # of titles, in the propensity model
    prompt: float = 0  # positions of a prompt
    origin: str
    exact: bool = False
    vocabulary: int | None = None  # tokens
    clusters: int = 0  # tokens among them

    @property
    def states(self) -> int:
        """Prompts of the states: every example, and every user at the end of the data."""
        return self.train + self.validation + self.test + self.users


class BackboneShape(NamedTuple):
    """A backbone in numbers."""

    parameters: int
    trained: int
    layers: int
    width: int
    vocabulary: int
    context: int


class StageTokens(NamedTuple):
    """Positions that a language model is trained on, reads and writes in one stage."""

    trained: float = 0
    read: float = 0
    written: float = 0


def data_sizes(config: RunConfig) -> DataSizes:
    """Counted in the artifacts of this configuration, else as expected, else counted in the tables."""
    if (config.out / "corpus" / artifacts.MANIFEST).exists():
        corpus, labels, examples = (_current(stage, config) for stage in ("corpus", "labels", "examples"))
        if corpus and labels and examples:
            return _artifact_sizes(corpus, labels, examples)
    expected, origin = config.plan.expected, "as the section plan.expected says"
    if expected is None:
        origin = "counted in the tables; examples, prompts and tokens of a label estimated"
        expected = table_sizes(config)
    known = {"words": config.corpus.title_words, "prompt": config.text.prompt.budget, "origin": origin}
    if config.text.cluster_form == "token":
        known["clusters"] = config.labels.clusters or max(1, expected.labels // PER_CLUSTER)
    return DataSizes(**expected.model_dump(), **known)


def _current(name: str, config: RunConfig) -> Artifact | None:
    """The artifact of a stage, if its settings and input files are those of the configuration."""
    settings = STAGES[name].settings(config)
    artifact = artifacts.load(config.out / name, STAGES[name].kind, verify=False)
    expected = json.loads(json.dumps([settings.model_dump(mode="json"), dict(STAGES[name].inputs(settings))]))
    return artifact if [artifact.manifest.config, artifact.manifest.inputs] == expected else None


def _artifact_sizes(corpus: Artifact, labels: Artifact, examples: Artifact) -> DataSizes:
    """All counted in the corpus."""
    gold, summary = column_lists(read_table(corpus, "train", "gold")["gold"]), corpus.manifest.summary
    text: dict[str, Any] = {}
    if TOKENS in corpus.manifest.files:
        shop = read_shop(corpus)
        text["prompt"] = float(read_inputs(corpus, "train").lengths().mean())
        text["label_tokens"] = float(np.diff(shop.paths.offsets)[gold.values].mean())
        text |= {"vocabulary": len(shop.vocabulary), "clusters": len(shop.vocabulary.clusters)}
    return DataSizes(
        **{name: summary[name] for name in ("train", "validation", "test", "users", "events")},
        items=examples.manifest.summary["items"],
        labels=labels.manifest.summary["labels"],
        words=len(read_words(corpus)),
        gold=float(gold.lengths().mean()),
        **text,
        vector_width=load_vectors(labels).shape[1],
        origin=f"counted in {corpus.path.parent}",
        exact=True,
    )


def table_sizes(config: RunConfig) -> ExpectedSizes:
    """Users, events, items and tags counted in the raw tables; examples estimated from them."""
    with console.spinner("counting the tables"):
        good = validate.validate(sources.open_source(config.source))
        bought = (pl.col("event") == "purchase").sum()
        [users], _ = validate.collect(good, good.interactions.group_by("user_id").agg(events=pl.len(), bought=bought))
    prepare, tags = config.prepare, good.items["tags"].list.len()
    buyers = users.filter(pl.col("events") > prepare.min_history)["bought"]
    split = prepare.split

    def examples(share: float, most: int) -> int:
        return max(1, round(share * int(buyers.clip(upper_bound=most).sum())))

    return ExpectedSizes(
        train=examples(1 - split.validation - split.test, prepare.per_train_user),
        validation=examples(split.validation, prepare.per_test_user),
        test=examples(split.test, prepare.per_test_user),
        users=len(users),
        events=int(users["events"].sum()),
        items=len(good.items),
        labels=good.items["tags"].explode().n_unique(),
        gold=float(tags.filter(tags > 0).to_numpy().mean()),
        label_tokens=1.0 if config.backbone.whole_labels and config.backbone.name == TINY else 2.0,
        vector_width=encoders.make(config.labels.encoder).dimension,
    )


def shape_of(
    config: BackboneConfig, plan: PlanConfig, vocabulary: int | None = None, clusters: int = 0
) -> BackboneShape:
    """The backbone as training would make it. `vocabulary`: tokens of the shop, where they are counted; `clusters`:
    those among them that stand for clusters, or are to come."""
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        if config.name == TINY:
            model = backbone.make(config, stand_in(vocabulary or config.vocabulary + clusters), seed=0)
        else:
            facts = _pretrained_config(config, plan)
            facts.vocab_size = max(facts.vocab_size, vocabulary or facts.vocab_size + clusters)
            model = AutoModelForCausalLM.from_config(facts)
        facts, size = model.config, model.get_input_embeddings().num_embeddings
        parameters = sum(value.numel() for value in model.parameters())
        adapted = backbone.adapt(model, config, tokenizer.of(stand_in(len(SPECIALS)).tokenizer, clusters), seed=0)
        trained = sum(value.numel() for value in adapted.parameters() if value.requires_grad)
    layers, width, context = facts.num_hidden_layers, facts.hidden_size, facts.max_position_embeddings
    return BackboneShape(parameters, trained, layers, width, size, context)


def stand_in(size: int) -> Vocabulary:
    """A vocabulary of so many words without a meaning."""
    return tokenizer.of(Tokenizer(models.WordLevel({str(n): n for n in range(size - len(SPECIALS))}, unk_token="0")))


def _pretrained_config(config: BackboneConfig, plan: PlanConfig) -> Any:
    """The settings of a pretrained backbone: those in its folder, or the published ones."""
    from transformers import AutoConfig

    folder = weights.backbone_folder(config.name)
    if (folder / "config.json").exists():
        return AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    if plan.shape in PUBLISHED:
        return AutoConfig.for_model(**PUBLISHED[plan.shape])
    if plan.shape:
        raise ConfigError(f"plan.shape: no sizes are known of '{plan.shape}'; known: {', '.join(PUBLISHED)}.")
    raise MissingArtifact(
        f"{folder} is not a backbone: it has no config.json. Set backbone.name to the folder of a causal LM, or plan "
        f"with published sizes: --set plan.shape={next(iter(PUBLISHED))}."
    )


def scorer_parameters(config: RunConfig, sizes: DataSizes, shape: BackboneShape) -> int:
    """Of the propensity model, the factors of labels and words included."""
    with torch.device("meta"):
        seen = torch.zeros(sizes.labels, dtype=torch.bool)
        model = Propensity(config.propensity.model, shape.width, sizes.vector_width, seen, sizes.words)
    return sum(value.numel() for value in model.parameters())


def item_parameters(config: RunConfig, sizes: DataSizes) -> int:
    """Of a generator that reads items."""
    with torch.device("meta"):
        network = ItemNetwork(config.item_generator.network, sizes.labels, sizes.words, sizes.items)
    return sum(value.numel() for value in network.parameters())


def stage_tokens(config: RunConfig, sizes: DataSizes) -> dict[str, StageTokens]:
    """Tokens by stage, for the stages with a language model. Lists are taken to be as long as gold lists."""
    label, gold = sizes.label_tokens + 1, sizes.gold  # with its terminator
    Decoding = tuple[float, float, int]  # prompts, labels of each list, lists of each prompt

    def work(*decodings: Decoding, trained: float = 0) -> StageTokens:
        read = sum(prompts * sizes.prompt for prompts, _, _ in decodings)
        return StageTokens(trained, read, sum(prompts * labels * lists * label for prompts, labels, lists in decodings))

    def sampled(prompts: float, how: MiningConfig, trained: ObjectiveConfig) -> Decoding:
        longer = LONGER if OBJECTIVES[trained.objective].mined else 1.0
        return prompts, min(longer * gold, how.max_labels), how.samples

    def training(trained: ObjectiveConfig) -> StageTokens:
        mined = trained.mined_per_example if OBJECTIVES[trained.objective].mined else 0
        target = min((gold + mined) * label, trained.max_target)
        tokens = trained.steps * trained.batch_size * trained.accumulate * (sizes.prompt + target - 1)
        looks = trained.steps // trained.evaluate_every if trained.evaluate_every else 0
        users = looks * min(CHECKED_USERS, sizes.validation)
        checks = (users, CHECKED_BUDGET, 1), (2 * users, exposure.BUDGET, 1), sampled(users, MiningConfig(), trained)
        return work(*checks, trained=tokens)

    def predictions(trained: ObjectiveConfig) -> StageTokens:
        how, users = config.predict, sizes.test
        ways = [(users, min(gold, how.budget), 1), (users, how.budget, 1), sampled(users, how.sampling, trained)]
        ways += [(users, 1, how.budget)] if how.likelihood else []
        return work(*ways, *([(2 * users, exposure.BUDGET, 1)] if how.exposure else []))

    mined = min(sizes.train, config.mined.examples or sizes.train)
    return {
        "stage-1": training(config.stage_1),
        "mined-1": work(sampled(mined, config.mining, config.stage_1)),
        "stage-2": training(config.stage_2),
        "predictions-1": predictions(config.stage_1),
        "predictions-2": predictions(config.stage_2),
        "mined-2": work(sampled(mined, config.mining, config.stage_2)),
        "states": work((sizes.states, config.states.labels, 1)),
    }
