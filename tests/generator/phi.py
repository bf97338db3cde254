"""A backbone of the paper's class, a thousandth of a thousandth of its size."""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Tokenizer
from transformers import Phi3Config, Phi3ForCausalLM

from tests.generator.small import backbone_folder


def phi_folder(folder: Path) -> Path:
    """Phi-3 with some 2,600 parameters a layer and random weights, in the words of the other small backbone."""
    words = Tokenizer.from_file(str(backbone_folder(folder) / "tokenizer.json"))
    shape = Phi3Config(
        vocab_size=words.get_vocab_size(),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        tie_word_embeddings=False,
        pad_token_id=0,
        bos_token_id=None,
        eos_token_id=0,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        Phi3ForCausalLM(shape).save_pretrained(folder)
    return folder
