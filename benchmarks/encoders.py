"""MiniLM by numpy, onnxruntime and torch: core milliseconds of a phrase, texts a second, and how far apart they are.

    pip install --target onnx onnx onnxruntime          # not among our dependencies: docs/decisions/0019
    PYTHONPATH=onnx OMP_NUM_THREADS=1 python -m benchmarks.encoders --data runs/demo/labels/labels.parquet

The data is a table with a column `text`; without it, phrases are made of the words of a planted shop.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl

from benchmarks import harness
from merit.core import weights
from merit.core.errors import MissingDependency
from merit.core.types import Floats
from merit.data import planted
from merit.labels.encoders import SentenceEncoder
from merit.labels.minilm import NumpyMiniLM

PHRASES = ("trail running", "home organisation", "gluten free baking for children", "a gift for a friend who has all")
ROUNDS, NEAREST = 60, 20
Encode = Callable[[Sequence[str]], Floats]


def exported(folder: Path, tokenizer: Any) -> Encode:
    """The same weights in ONNX, read by onnxruntime on one thread, batches of like length."""
    try:
        import onnxruntime
    except ImportError:
        raise MissingDependency("onnxruntime is not installed: the first lines of this file say how.") from None
    import torch
    from transformers import BertModel

    class Encoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bert = BertModel.from_pretrained(folder, attn_implementation="eager").eval()

        def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            hidden = self.bert(input_ids=ids, attention_mask=mask).last_hidden_state
            means = (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
            return torch.nn.functional.normalize(means, dim=1)

    axes = {"ids": {0: "b", 1: "t"}, "mask": {0: "b", 1: "t"}, "vectors": {0: "b"}}
    ones = torch.ones(2, 5, dtype=torch.long)
    with TemporaryDirectory() as name:
        file, names = f"{name}/minilm.onnx", {"input_names": ["ids", "mask"], "output_names": ["vectors"]}
        torch.onnx.export(Encoder(), (ones, ones), file, dynamic_axes=axes, dynamo=False, opset_version=17, **names)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(file, options)

    def encode(texts: Sequence[str]) -> Floats:
        ids = [found.ids for found in tokenizer.encode_batch(list(texts))]
        order, vectors = sorted(range(len(ids)), key=lambda row: len(ids[row])), np.empty((len(ids), 384), np.float32)
        for at in range(0, len(order), 64):
            rows = order[at : at + 64]
            batch = np.zeros((len(rows), max(len(ids[row]) for row in rows)), np.int64)
            mask = np.zeros_like(batch)
            for place, row in enumerate(rows):
                batch[place, : len(ids[row])], mask[place, : len(ids[row])] = ids[row], 1
            [vectors[rows]] = session.run(None, {"ids": batch, "mask": mask})
        return vectors

    return encode


def measured(encode: Encode, texts: Sequence[str]) -> tuple[float, float, Floats]:
    """Core milliseconds of one phrase (median), texts a second of core time, and the vectors of the texts."""
    times = []
    for phrase in PHRASES * ROUNDS:
        begin = time.process_time()
        encode([phrase])
        times.append(1000 * (time.process_time() - begin))
    begin = time.process_time()
    vectors = encode(texts)
    return round(float(np.median(times)), 2), round(len(texts) / (time.process_time() - begin)), vectors


def main() -> None:
    given = harness.parser(__doc__).parse_args()
    if given.data:
        texts = pl.read_parquet(given.data)["text"].to_list()
    else:
        tags = planted.shop(planted.PlantedConfig(users=100), given.seed).items["tags"]
        texts = sorted(set(tags.explode().drop_nulls()))
    folder = weights.folder("minilm")
    ours, torch_one = NumpyMiniLM(folder), SentenceEncoder(folder)
    figures: dict[str, Any] = {"texts": len(texts)}
    judge, near = torch_one.encode(texts), torch_one.encode(PHRASES)
    nearest = np.argsort(-(near @ judge.T), axis=1, kind="stable")[:, :NEAREST]
    ways = {"numpy": ours.encode, "onnx": exported(folder, ours._tokenizer), "torch": torch_one.encode}
    for name, encode in ways.items():
        phrase, rate, vectors = measured(encode, texts)
        ranked = np.argsort(-(encode(PHRASES) @ vectors.T), axis=1, kind="stable")[:, :NEAREST]
        cosine = float((1 - (vectors * judge).sum(1)).max())
        figures |= {f"{name}_phrase_ms": phrase, f"{name}_texts_a_second": rate}
        figures |= {f"{name}_cosine_error": cosine, f"{name}_same_nearest": bool((ranked == nearest).all())}
    harness.finish("encoders", figures, given.seed)


if __name__ == "__main__":
    harness.run(main)
