"""The language model: a tiny one from scratch by default, or any causal LM of Hugging Face by its folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from merit.config import Frozen
from merit.errors import ConfigError, MissingArtifact
from merit.generator.tokenizer import Vocabulary
from merit.seeds import stream
from merit.types import Floats

TINY = "tiny"


class BackboneConfig(Frozen):
    name: str = TINY
    """`tiny`, or the folder of a causal LM in the Hugging Face format."""
    width: int = Field(128, ge=8)
    layers: int = Field(3, ge=1)
    heads: int = Field(4, ge=1)
    vocabulary: int = Field(4096, ge=300)
    whole_labels: int = Field(2000, ge=0)
    """So many of the most frequent labels are single tokens (tiny only)."""
    context: int = Field(1024, ge=64)
    lora_rank: int = Field(0, ge=0)
    """0 trains all weights. With a pretrained backbone, 16 is a good start."""


def make(config: BackboneConfig, vocabulary: Vocabulary, seed: int) -> Any:
    """A model ready to be trained: from scratch for `tiny`, from its folder otherwise."""
    if config.name == TINY:
        return _tiny(config, vocabulary, seed)
    model = _pretrained(Path(config.name))
    if len(vocabulary) > model.get_input_embeddings().num_embeddings:
        model.resize_token_embeddings(len(vocabulary))
    return _with_lora(model, config.lora_rank) if config.lora_rank else model


def head(model: Any) -> Tensor:
    """(vocabulary, width): a row per token."""
    weight: Tensor = model.get_output_embeddings().weight
    return weight


def states(model: Any, input_ids: Tensor, **more: Any) -> Tensor:
    """(B, L, width): the last hidden state, after the final norm, of every position."""
    hidden: Tensor = model.get_decoder()(input_ids=input_ids, **more).last_hidden_state
    return hidden


def start_from_vectors(model: Any, rows: dict[int, int], vectors: Floats) -> None:
    """Give tokens that are whole labels the directions of their label vectors (token id → row of `vectors`).

    Principal directions of the vectors are laid onto the embedding's dimensions, at the size random ones have.
    """
    table = model.get_input_embeddings().weight
    centred = vectors[list(rows.values())] - vectors.mean(0)
    _, _, directions = np.linalg.svd(centred, full_matrices=False)
    placed = centred @ directions[: table.shape[1]].T
    placed *= float(table.detach().std()) / max(float(placed.std()), 1e-9)
    with torch.no_grad():
        table[list(rows), : placed.shape[1]] = torch.from_numpy(placed.astype(np.float32))


def _tiny(config: BackboneConfig, vocabulary: Vocabulary, seed: int) -> Any:
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
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(stream(seed, "weights").integers(2**63)))
        return LlamaForCausalLM(shape)


def _pretrained(folder: Path) -> Any:
    from transformers import AutoModelForCausalLM

    if not (folder / "config.json").exists():
        raise MissingArtifact(
            f"{folder} is not a backbone: it has no config.json. Set backbone.name to `tiny` or to the folder of a "
            "causal LM (`merit weights install smollm2` makes one)."
        )
    try:
        return AutoModelForCausalLM.from_pretrained(
            folder, local_files_only=True, use_safetensors=True, trust_remote_code=False, dtype=torch.float32
        )
    except (OSError, ValueError) as error:
        raise MissingArtifact(f"{folder} cannot be loaded as a causal LM: {str(error).splitlines()[0]}") from None


def _with_lora(model: Any, rank: int) -> Any:
    from peft import LoraConfig, get_peft_model

    return get_peft_model(model, LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear"))
