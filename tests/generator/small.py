"""A pretrained backbone that is not: the folder of a causal LM with random weights and a tokenizer of its own."""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM

TEXTS = ["hair care for men", "trail running shoe", "seed trays and compost bins", "raised beds"] * 20


def backbone_folder(folder: Path, tied: bool = True) -> Path:
    """Words begin with a space, as GPT-2's do, and a text does not."""
    words = Tokenizer(models.BPE())
    words.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    words.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=320, special_tokens=["<|endoftext|>"], initial_alphabet=alphabet)
    words.train_from_iterator(TEXTS, trainer)
    shape = LlamaConfig(
        vocab_size=words.get_vocab_size(),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        tie_word_embeddings=tied,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        LlamaForCausalLM(shape).save_pretrained(folder)
    words.save(str(folder / "tokenizer.json"))
    return folder
