"""Models without their weights: the real classes on the meta device, so that every parameter is counted, not estimated.

What training keeps of a token for the way back is counted too: a forward pass over fake tensors, whose saved tensors
have sizes but no contents.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from tokenizers import Tokenizer, models
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.graph import saved_tensors_hooks

from merit.core.errors import ConfigError, MissingArtifact
from merit.data import tokenizer
from merit.data.tokenizer import SPECIALS, Vocabulary
from merit.generator import backbone
from merit.generator.backbone import TINY, BackboneConfig
from merit.plan.config import PlanConfig, Precision
from merit.propensity.states_model import Propensity, PropensityConfig

# What a model's own config.json says, for planning before its weights are there.
PUBLISHED: dict[str, dict[str, Any]] = {
    "phi-3.5-mini": {
        "model_type": "phi3",
        "vocab_size": 32064,
        "hidden_size": 3072,
        "intermediate_size": 8192,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "max_position_embeddings": 131072,
        "tie_word_embeddings": False,
        "pad_token_id": 32000,
    },
}
SHORT, LONG = 64, 128  # tokens of two passes whose difference is what a token costs


@dataclass(frozen=True)
class Shape:
    """A backbone, in numbers."""

    parameters: int
    trained: int
    matrices: int  # parameters that every token is multiplied by: all but the embeddings and the head
    layers: int
    width: int
    cached: int  # numbers of a token that decoding keeps: keys and values of all layers
    vocabulary: int
    context: int
    activations: float  # bytes of a token that training keeps, all layers


def shape_of(config: BackboneConfig, plan: PlanConfig, vocabulary: int | None = None) -> Shape:
    """The backbone as training would make it. `vocabulary`: tokens of the shop, where they are known."""
    with torch.device("meta"):
        model = _model(config, plan, vocabulary)
        facts = model.config
        parameters = sum(value.numel() for value in model.parameters())
        words = {id(part.weight): part.weight for part in (model.get_input_embeddings(), model.get_output_embeddings())}
        outside = sum(value.numel() for value in words.values())
        size = model.get_input_embeddings().num_embeddings
        adapted = backbone.adapt(model, config, stand_in(len(SPECIALS)), seed=0)
        trained = sum(value.numel() for value in adapted.parameters() if value.requires_grad)
    heads = getattr(facts, "num_key_value_heads", None) or facts.num_attention_heads
    head_width = getattr(facts, "head_dim", None) or facts.hidden_size // facts.num_attention_heads
    return Shape(
        parameters=parameters,
        trained=trained,
        matrices=parameters - outside,
        layers=facts.num_hidden_layers,
        width=facts.hidden_size,
        cached=2 * facts.num_hidden_layers * heads * head_width,
        vocabulary=size,
        context=facts.max_position_embeddings,
        activations=saved_bytes(facts, plan.precision),
    )


def propensity_parameters(
    config: PropensityConfig, state_width: int, vector_width: int, labels: int, words: int
) -> int:
    """All of them, the numbers that labels have of their own included."""
    with torch.device("meta"):
        model = Propensity(config, state_width, vector_width, torch.zeros(labels, dtype=torch.bool), words)
    return sum(value.numel() for value in model.parameters())


def saved_bytes(facts: Any, precision: Precision) -> float:
    """Bytes that training keeps of one more token, all layers together: they are alike, so two of them are looked at.

    A mask over pairs of tokens is left out: only fake tensors need one, as they cannot be asked what they contain.
    """
    one, two = (
        (_saved(few, LONG, precision) - _saved(few, SHORT, precision)) / (LONG - SHORT)
        for few in (_with_layers(facts, 1), _with_layers(facts, 2))
    )
    return one + (int(facts.num_hidden_layers) - 1) * (two - one)


def stand_in(size: int) -> Vocabulary:
    """A vocabulary of so many words that mean nothing."""
    return tokenizer.of(Tokenizer(models.WordLevel({str(n): n for n in range(size - len(SPECIALS))}, unk_token="0")))


def facts_of(config: BackboneConfig, plan: PlanConfig) -> Any:
    """The settings of a pretrained backbone: those in its folder, or the published ones."""
    from transformers import AutoConfig

    place = backbone.folder(config.name)
    if (place / "config.json").exists():
        return AutoConfig.from_pretrained(place, local_files_only=True, trust_remote_code=False)
    if plan.shape in PUBLISHED:
        return AutoConfig.for_model(**PUBLISHED[plan.shape])
    if plan.shape:
        raise ConfigError(f"plan.shape: no sizes are known of '{plan.shape}'; known: {', '.join(PUBLISHED)}.")
    raise MissingArtifact(
        f"{place} is not a backbone: it has no config.json. Set backbone.name to the folder of a causal LM, or plan "
        f"with published sizes: --set plan.shape={next(iter(PUBLISHED))}."
    )


def has_words(config: BackboneConfig, plan: PlanConfig) -> bool:
    """Whether prompts can be put into the backbone's own tokens; one that is nowhere at all is refused."""
    if config.name == TINY:
        return True
    facts_of(config, plan)
    return (backbone.folder(config.name) / "tokenizer.json").exists()


def _model(config: BackboneConfig, plan: PlanConfig, vocabulary: int | None) -> Any:
    if config.name == TINY:
        return backbone.make(config, stand_in(vocabulary or config.vocabulary), seed=0)
    from transformers import AutoModelForCausalLM

    facts = facts_of(config, plan)
    facts.vocab_size = max(facts.vocab_size, vocabulary or 0)
    return AutoModelForCausalLM.from_config(facts)


def _with_layers(facts: Any, count: int) -> Any:
    few = deepcopy(facts)
    few.num_hidden_layers = count
    if kinds := getattr(few, "layer_types", None):
        few.layer_types = kinds[:count]
    return few


def _saved(facts: Any, tokens: int, precision: Precision) -> int:
    from transformers import AutoModelForCausalLM

    kept: dict[int, Tensor] = {}

    def keep(value: Tensor) -> Tensor:
        if value.shape[-2:] != (tokens, tokens):
            kept[value.untyped_storage()._cdata] = value
        return value

    with FakeTensorMode(allow_non_fake_inputs=True):
        decoder = AutoModelForCausalLM.from_config(facts).get_decoder().train()
        own = {value.untyped_storage()._cdata for value in decoder.parameters()}
        with _autocast(precision), saved_tensors_hooks(keep, lambda value: value):
            decoder(input_ids=torch.zeros(1, tokens, dtype=torch.long), use_cache=False)
        return sum(value.untyped_storage().nbytes() for place, value in kept.items() if place not in own)


@contextmanager
def _autocast(precision: Precision) -> Iterator[None]:
    how = nullcontext() if precision == "fp32" else torch.autocast("cpu", dtype=torch.bfloat16)  # as large as fp16
    with how:
        yield
