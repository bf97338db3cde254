"""The language model: a tiny one from scratch by default, or any causal LM of Hugging Face by its folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import Field
from safetensors import SafetensorError
from scipy.sparse import csr_array
from torch import Tensor

from merit.core import extras, weights
from merit.core.config import Frozen
from merit.core.errors import ConfigError, MissingArtifact
from merit.core.ragged import Ragged, owners, ranks
from merit.core.seeds import torch_stream
from merit.data.patches import Windows
from merit.data.tokenizer import Vocabulary
from merit.generator.patching import embed
from merit.labels.token_paths import Paths

TINY = "tiny"


class BackboneConfig(Frozen):
    """Which language model is trained, how much of it, and for `tiny` its shape."""

    name: str = TINY
    """`tiny`; `smollm2` once it is installed (`merit weights install smollm2`); or the folder of a causal LM in the
    Hugging Face format. All but tiny come with a shape and a tokenizer of their own."""
    width: int = Field(128, ge=8)
    layers: int = Field(3, ge=1)
    heads: int = Field(4, ge=1)
    vocabulary: int = Field(4096, ge=300)
    whole_labels: int = Field(2000, ge=0)
    """So many of the most frequent labels are single tokens (tiny only)."""
    context: int = Field(1024, ge=64)
    lora_rank: int = Field(0, ge=0)
    """0 trains all weights. With a pretrained backbone, 16 is a good start."""


def make(config: BackboneConfig, vocabulary: Vocabulary, seed: int, paths: Paths | None = None) -> Any:
    """The model before training: from scratch for `tiny`, from its folder otherwise.

    With the paths of the labels, tokens of clusters start from their members.
    """
    with torch_stream(seed, "weights"):
        if config.name == TINY:
            model = _tiny(config, vocabulary)
        else:
            model = _pretrained(weights.backbone_folder(config.name))
            if len(vocabulary) > model.get_input_embeddings().num_embeddings:
                model.resize_token_embeddings(len(vocabulary))
    if paths and vocabulary.clusters:
        _start_from_members(model, vocabulary.clusters, Ragged(paths.offsets, paths.tokens))
    return model


def check_room(name: str, context: int, prompt: int, labels: int) -> None:
    """Refuse positions that a backbone was never made for: it would read them, and understand nothing."""
    if prompt + labels > context:
        raise ConfigError(
            f"A history of {prompt:,} positions (text.prompt.budget) and {labels:,} of labels are more than the "
            f"{context:,} that {name} reads. Lower text.prompt.budget to {max(0, context - labels):,}; text.patching "
            "pools what is older."
        )


def adapt(model: Any, config: BackboneConfig, vocabulary: Vocabulary, seed: int) -> Any:
    """What is trained of a model: all of it, or with a rank small matrices beside its own (LoRA).

    The rows of our special tokens are trained in any case: no pretraining has ever seen them.
    """
    if config.name == TINY or not config.lora_rank:
        return model
    with extras.needed_by("backbone.lora_rank"):
        from peft import LoraConfig, get_peft_model

    tables = (model.get_input_embeddings(), model.get_output_embeddings())
    ours = {name: sorted(vocabulary.special_ids()) for name, part in model.named_modules() if part in tables}
    rank = config.lora_rank
    with torch_stream(seed, "adapter"):
        return get_peft_model(
            model, LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear", trainable_token_indices=ours)
        )


def save(model: Any, place: Path) -> None:
    """Write the whole model in the Hugging Face format.

    What was learnt beside the weights becomes part of them: a generator needs no other folder than its own.
    """
    whole = model.merge_and_unload() if hasattr(model, "merge_and_unload") else model
    with weights.without_bars():
        whole.save_pretrained(place)


def head(model: Any) -> Tensor:
    """(vocabulary, width): a row per token."""
    weight: Tensor = model.get_output_embeddings().weight
    return weight


def states(model: Any, input_ids: Tensor, patches: Windows | None = None, **more: Any) -> Tensor:
    """(B, L, width): the last hidden state, after the final norm, of every position."""
    read = {"input_ids": input_ids} if patches is None else {"inputs_embeds": embed(model, input_ids, patches)}
    hidden: Tensor = model.get_decoder()(**read, **more).last_hidden_state
    return hidden


def _start_from_members(model: Any, clusters: Sequence[int], paths: Ragged) -> None:
    """Let the token of each cluster start as the mean of its members, a member being the mean of its own tokens.

    `paths` are those of the labels: the token of a cluster, then the label's own. An empty cluster starts as it is.
    """
    tables = {id(part.weight): part.weight for part in (model.get_input_embeddings(), model.get_output_embeddings())}
    size = len(model.get_input_embeddings().weight)
    numbers = np.full(size, -1)
    numbers[list(clusters)] = np.arange(len(clusters))
    cluster = numbers[paths.values[paths.offsets[:-1]]]  # of each label
    inside = (cluster >= 0)[owners(paths)] & (ranks(paths) > 0)
    owner = owners(paths)[inside]
    members = np.bincount(cluster[cluster >= 0], minlength=len(clusters))
    weights = 1 / ((paths.lengths()[owner] - 1) * members[cluster[owner]])
    shape = (len(clusters), size)
    means = csr_array((weights.astype(np.float32), (cluster[owner], paths.values[inside])), shape=shape)
    filled = np.array(clusters)[members > 0]
    with torch.no_grad():
        for table in tables.values():
            table[filled] = torch.from_numpy((means @ table.detach().numpy())[members > 0])


def _tiny(config: BackboneConfig, vocabulary: Vocabulary) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    if config.width % config.heads:
        raise ConfigError(f"backbone.width {config.width} cannot be shared among {config.heads} heads.")
    shape = LlamaConfig(
        vocab_size=len(vocabulary),
        hidden_size=config.width,
        intermediate_size=3 * config.width,
        num_hidden_layers=config.layers,
        num_attention_heads=config.heads,
        max_position_embeddings=config.context,
        tie_word_embeddings=True,
        pad_token_id=vocabulary.pad,
        bos_token_id=None,
        eos_token_id=vocabulary.end,
    )
    model = LlamaForCausalLM(shape)
    _start_by_copying(model)
    return model


def _start_by_copying(model: Any) -> None:
    """Let an untrained model repeat what it has read: users mostly want again what they wanted before.

    The first attention passes tokens on as they are, to a head that is their own embedding, in rows of length one. Left
    to find this out by itself, a small model spends most of a short training on it (docs/log.md).
    """
    table, attention = model.get_input_embeddings().weight, model.get_decoder().layers[0].self_attn
    with torch.no_grad():
        table.mul_(table.shape[1] ** -0.5 / model.config.initializer_range)
        for part in (attention.v_proj, attention.o_proj):
            part.weight.add_(torch.eye(len(part.weight)))


def _pretrained(place: Path) -> Any:
    from transformers import AutoModelForCausalLM

    if not (place / "config.json").exists():
        raise MissingArtifact(
            f"{place} is not a backbone: it has no config.json. Set backbone.name to `tiny`, to `smollm2` after "
            "`merit weights install smollm2`, or to the folder of a causal LM."
        )
    try:
        with weights.without_bars():
            return AutoModelForCausalLM.from_pretrained(
                place, local_files_only=True, use_safetensors=True, trust_remote_code=False, dtype=torch.float32
            )
    except (OSError, ValueError, SafetensorError) as error:
        raise MissingArtifact(f"{place} cannot be loaded as a causal LM: {str(error).splitlines()[0]}") from None
