"""The default encoder without torch: MiniLM, a BERT of six layers, in numpy.

Its vectors are those of sentence-transformers but for rounding (a test compares them), and so are its keys: the quick
preset has the labels, clusters and blocked interests of the standard one, and free phrases are understood.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from itertools import groupby
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from merit.core import console
from merit.core.artifacts import hash_file
from merit.core.layers import attend, gelu, heads_of, layer_norm
from merit.core.types import Floats

BATCH = 64  # texts of the same number of tokens at a time: nothing is padded
LONG = 2_000  # texts from which a person wants to see progress


class NumpyMiniLM:
    """MiniLM read from a local folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @cached_property
    def fingerprint(self) -> str:
        """Of weights and tokenizer, and the version of the arithmetic here."""
        hashes = [hash_file(self.folder / name)[:16] for name in ("model.safetensors", "tokenizer.json")]
        return f"minilm-numpy:2:{'-'.join(hashes)}"

    @property
    def dimension(self) -> int:
        """Numbers of a vector."""
        return int(self._config["hidden_size"])

    def encode(self, texts: Sequence[str]) -> Floats:
        """(texts, dimension), rows of length one."""
        rows: dict[tuple[int, ...], list[int]] = {}
        for at, ids in enumerate(self._ids(texts)):
            rows.setdefault(tuple(ids), []).append(at)  # texts the model cannot tell apart are encoded once
        vectors = np.empty((len(texts), self.dimension), np.float32)
        batches = [
            part[at : at + BATCH]
            for _, group in groupby(sorted(rows, key=lambda ids: (len(ids), ids)), key=len)
            for part in [list(group)]
            for at in range(0, len(part), BATCH)
        ]
        for batch in console.track(batches, "Encoding labels") if len(rows) >= LONG else batches:
            for key, vector in zip(batch, self._encode(np.array(batch)), strict=True):
                vectors[rows[key]] = vector
        return vectors

    def same(self, texts: Sequence[str]) -> list[str]:
        """The token ids as text: an uncased model reads "Café" and "cafe" as one label."""
        return [" ".join(map(str, ids)) for ids in self._ids(texts)]

    def _ids(self, texts: Sequence[str]) -> list[list[int]]:
        return [encoding.ids for encoding in self._tokenizer.encode_batch(list(texts))]

    def _encode(self, ids: NDArray[np.int64]) -> Floats:
        """(B, dimension), of token ids (B, T)."""
        weights, heads = self._weights, int(self._config["num_attention_heads"])
        length = ids.shape[1]
        word, position, kind = (weights[f"embeddings.{name}_embeddings.weight"] for name in _EMBEDDINGS)
        hidden = self._norm(word[ids] + position[:length] + kind[0], "embeddings.LayerNorm")
        for layer in range(int(self._config["num_hidden_layers"])):
            name = f"encoder.layer.{layer}"
            query, key, value = (
                heads_of(self._linear(hidden, f"{name}.attention.self.{part}"), heads)
                for part in ("query", "key", "value")
            )  # (B, heads, T, width of a head)
            read = attend(query, key, value)
            hidden = self._norm(
                hidden + self._linear(read, f"{name}.attention.output.dense"), f"{name}.attention.output.LayerNorm"
            )
            wide = gelu(self._linear(hidden, f"{name}.intermediate.dense"))
            hidden = self._norm(hidden + self._linear(wide, f"{name}.output.dense"), f"{name}.output.LayerNorm")
        mean = hidden.mean(axis=1)
        vectors: Floats = mean / np.maximum(np.linalg.norm(mean, axis=1, keepdims=True), 1e-12)
        return vectors

    def _linear(self, rows: Floats, name: str) -> Floats:
        flat = rows.reshape(-1, rows.shape[-1]) @ self._weights[f"{name}.weight"] + self._weights[f"{name}.bias"]
        return flat.reshape(*rows.shape[:-1], -1)

    def _norm(self, rows: Floats, name: str) -> Floats:
        weight, bias = self._weights[f"{name}.weight"], self._weights[f"{name}.bias"]
        return layer_norm(rows, weight, bias, self._config["layer_norm_eps"])

    @cached_property
    def _weights(self) -> dict[str, Floats]:
        """Matrices of the layers lie the way round in which they are read: a phrase takes half the time."""
        weights = load_file(self.folder / "model.safetensors")
        turned = [name for name, array in weights.items() if name.startswith("encoder.") and array.ndim == 2]
        return weights | {name: np.ascontiguousarray(weights[name].T) for name in turned}

    @cached_property
    def _config(self) -> dict[str, float]:
        values: dict[str, float] = json.loads((self.folder / "config.json").read_text(encoding="utf-8"))
        return values

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        settings = json.loads((self.folder / "sentence_bert_config.json").read_text(encoding="utf-8"))
        tokenizer = Tokenizer.from_file(str(self.folder / "tokenizer.json"))
        tokenizer.no_padding()
        tokenizer.enable_truncation(int(settings["max_seq_length"]))
        return tokenizer


_EMBEDDINGS = ("word", "position", "token_type")
