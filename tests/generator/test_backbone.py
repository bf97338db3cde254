from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from merit.errors import ConfigError, MissingArtifact
from merit.generator import backbone, tokenizer
from merit.generator.backbone import BackboneConfig

WORDS = tokenizer.train(["red green blue"] * 10, ["red", "green", "blue"], 300)
SMALL = BackboneConfig(width=32, layers=1, heads=2, vocabulary=300)


def test_the_seed_decides_the_weights_and_leaves_torchs_own_stream_alone() -> None:
    before = torch.get_rng_state()
    one, two, other = (backbone.make(SMALL, WORDS, seed) for seed in (7, 7, 8))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(backbone.head(one), backbone.head(two))
    assert not torch.equal(backbone.head(one), backbone.head(other))


def test_states_times_head_are_the_models_logits() -> None:
    model = backbone.make(SMALL, WORDS, 7)
    ids = torch.tensor([[1, 5, 9, 3]])
    assert torch.allclose(backbone.states(model, ids) @ backbone.head(model).T, model(input_ids=ids).logits, atol=1e-5)


def test_a_saved_model_comes_back(tmp_path: Path) -> None:
    model = backbone.make(SMALL, WORDS, 7)
    model.save_pretrained(tmp_path)
    again = backbone.make(SMALL.model_copy(update={"name": str(tmp_path)}), WORDS, 0)
    assert torch.equal(backbone.head(again), backbone.head(model))


def test_lora_trains_a_small_part(tmp_path: Path) -> None:
    backbone.make(SMALL, WORDS, 7).save_pretrained(tmp_path)
    adapted = backbone.make(SMALL.model_copy(update={"name": str(tmp_path), "lora_rank": 2}), WORDS, 0)
    sizes = [(value.numel(), value.requires_grad) for value in adapted.parameters()]
    assert 0 < sum(size for size, trained in sizes if trained) < 0.2 * sum(size for size, _ in sizes)
    assert backbone.states(adapted, torch.tensor([[1, 2]])).shape == (1, 2, 32)


def test_an_unknown_folder_says_what_to_do() -> None:
    with pytest.raises(MissingArtifact, match=r"Set backbone\.name to `tiny`"):
        backbone.make(SMALL.model_copy(update={"name": "no/such/model"}), WORDS, 0)


def test_a_folder_with_pickled_weights_is_refused(tmp_path: Path) -> None:
    backbone.make(SMALL, WORDS, 7).save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'touch hacked'\ntR.")
    with pytest.raises(MissingArtifact, match="cannot be loaded"):
        backbone.make(SMALL.model_copy(update={"name": str(tmp_path)}), WORDS, 0)


def test_heads_must_divide_the_width() -> None:
    with pytest.raises(ConfigError, match="cannot be shared among 3 heads"):
        backbone.make(SMALL.model_copy(update={"heads": 3}), WORDS, 0)


def test_label_vectors_give_like_labels_like_embeddings() -> None:
    model = backbone.make(SMALL, WORDS, 7)
    rows = {WORDS.encode([text])[0][0]: place for place, text in enumerate(["red", "green", "blue"])}
    vectors = np.array([[1, 0.1, 0, 0], [1, -0.1, 0, 0], [-1, 0, 0.5, 0]], dtype=np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    backbone.start_from_vectors(model, rows, vectors)
    red, green, blue = (model.get_input_embeddings().weight[token].detach()[:3] for token in rows)
    assert torch.dist(red, green) < torch.dist(red, blue)
