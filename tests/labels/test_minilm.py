"""The encoder in numpy against sentence-transformers, which is the judge."""

from __future__ import annotations

import subprocess
import sys

import numpy as np

from merit.core import weights
from merit.labels import encoders
from merit.labels.minilm import NumpyMiniLM

TEXTS = ["trail running", "Café", "cafe", "", "home organisation", "緑茶", "x" * 3000, "word " * 600, "a"]


def test_it_gives_the_vectors_of_sentence_transformers() -> None:
    judge = encoders.SentenceEncoder(weights.folder("minilm"))
    ours = NumpyMiniLM(weights.folder("minilm"))
    vectors = ours.encode(TEXTS)
    assert vectors.dtype == np.float32 and vectors.shape == (len(TEXTS), judge.dimension) == (9, ours.dimension)
    np.testing.assert_allclose(vectors, judge.encode(TEXTS), atol=2e-6)
    assert ours.same(TEXTS) == judge.same(TEXTS)
    assert (vectors[1] == vectors[2]).all()


def test_it_needs_no_torch_and_nothing_encoded_is_an_empty_table() -> None:
    code = """
import sys
sys.modules["torch"] = None
from merit.labels import encoders
encoder = encoders.make("minilm-numpy")
print(encoder.encode(["tea", "green tea"]).shape, encoder.encode([]).shape)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "(2, 384) (0, 384)"


def test_its_name_is_not_that_of_the_other() -> None:
    folder = weights.folder("minilm")
    assert NumpyMiniLM(folder).fingerprint != encoders.SentenceEncoder(folder).fingerprint
