"""What comes out of a GGUF file is the model that went in, with the numbers that its four-bit blocks stand for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType
from gguf.quants import dequantize, quantize
from transformers import AutoModelForCausalLM

from merit.core.weights import unpack_gguf
from merit.data import tokenizer
from merit.generator import backbone
from merit.generator.backbone import BackboneConfig
from tests.generator.small import backbone_folder

LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
FOUR_BITS = GGMLQuantizationType.Q4_1


def interleaved(weight: np.ndarray[Any, Any], heads: int) -> np.ndarray[Any, Any]:
    """The order of rows in which llama.cpp keeps queries and keys: rotated pairs side by side."""
    rows = weight.reshape(heads, 2, weight.shape[0] // heads // 2, weight.shape[1])
    return np.ascontiguousarray(rows.swapaxes(1, 2).reshape(weight.shape))


def pack(model: Any, words: Path, file: Path) -> None:
    """Write a Llama as llama.cpp would: metadata, tokenizer, tensors; the matrices of the feed-forward in four bits."""
    shape, learnt = model.config, json.loads(words.read_text())["model"]
    writer = gguf.GGUFWriter(str(file), "llama")
    writer.add_context_length(shape.max_position_embeddings)
    writer.add_embedding_length(shape.hidden_size)
    writer.add_block_count(shape.num_hidden_layers)
    writer.add_feed_forward_length(shape.intermediate_size)
    writer.add_head_count(shape.num_attention_heads)
    writer.add_head_count_kv(shape.num_key_value_heads)
    writer.add_layer_norm_rms_eps(shape.rms_norm_eps)
    writer.add_vocab_size(shape.vocab_size)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(sorted(learnt["vocab"], key=learnt["vocab"].get))
    writer.add_token_types([gguf.TokenType.CONTROL] + [gguf.TokenType.NORMAL] * (len(learnt["vocab"]) - 1))
    writer.add_token_merges([" ".join(pair) for pair in learnt["merges"]])
    for add in (writer.add_bos_token_id, writer.add_eos_token_id, writer.add_unk_token_id):
        add(0)
    tensors = {name: value.numpy() for name, value in model.state_dict().items()}
    writer.add_tensor("token_embd.weight", tensors["model.embed_tokens.weight"])
    writer.add_tensor("output_norm.weight", tensors["model.norm.weight"])
    for layer in range(shape.num_hidden_layers):
        for ours, theirs in LAYER.items():
            value, name = tensors[f"model.layers.{layer}.{ours}.weight"], f"blk.{layer}.{theirs}.weight"
            if theirs in ("attn_q", "attn_k"):
                heads = shape.num_attention_heads if theirs == "attn_q" else shape.num_key_value_heads
                writer.add_tensor(name, interleaved(value, heads))
            elif theirs in ("ffn_gate", "ffn_up", "ffn_down"):
                writer.add_tensor(name, quantize(value, FOUR_BITS), raw_dtype=FOUR_BITS)
            else:
                writer.add_tensor(name, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture
def unpacked(tmp_path: Path) -> tuple[Any, Path]:
    """The model that went in, its feed-forward rounded to four bits; and the folder that came out."""
    model = AutoModelForCausalLM.from_pretrained(backbone_folder(tmp_path / "before"))
    pack(model, tmp_path / "before" / "tokenizer.json", tmp_path / "model.gguf")
    told = unpack_gguf(tmp_path / "model.gguf", tmp_path / "after")
    assert told == {"parameters": model.num_parameters(), "vocabulary": model.config.vocab_size}
    for name, value in model.state_dict().items():
        if "mlp" in name:
            value.copy_(torch.from_numpy(dequantize(quantize(value.numpy(), FOUR_BITS), FOUR_BITS)))
    return model, tmp_path / "after"


def test_the_model_that_went_in_comes_out(unpacked: tuple[Any, Path]) -> None:
    model, folder = unpacked
    words = tokenizer.pretrained(folder)
    again = backbone.make(BackboneConfig(name=str(folder)), words, seed=7)
    ids = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6]])
    assert torch.allclose(backbone.states(again, ids), backbone.states(model, ids), atol=1e-5)
    assert torch.equal(backbone.head(again)[: model.config.vocab_size], backbone.head(model))
    assert again.dtype == torch.float32


def test_the_words_that_went_in_come_out(unpacked: tuple[Any, Path]) -> None:
    folder = unpacked[1]
    before, after = tokenizer.pretrained(folder.parent / "before"), tokenizer.pretrained(folder)
    texts = ["trail running shoe, 200 ml", "Hair care für Männer 💐"]
    assert after.encode(texts) == before.encode(texts)
    assert after.special_ids() == before.special_ids()
