from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaForCausalLM
from transformers.utils import logging

from merit.core import weights
from merit.core.errors import ConfigError, MissingArtifact, MissingDependency
from merit.data import tokenizer
from merit.generator import backbone
from merit.generator.backbone import BackboneConfig
from merit.labels.token_paths import linearise
from tests.generator.small import backbone_folder

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


def test_an_untrained_model_says_what_it_has_read() -> None:
    config = SMALL.model_copy(update={"width": 128, "layers": 3})
    logits = backbone.make(config, WORDS, 7)(input_ids=torch.arange(20, 50)[None]).logits[0, -1]
    read = torch.arange(20, 49)  # without the last, which every position sees best
    assert logits[read].mean() > logits.mean() + logits.std()


def test_a_saved_model_comes_back(tmp_path: Path) -> None:
    model = backbone.make(SMALL, WORDS, 7)
    model.save_pretrained(tmp_path)
    again = backbone.make(SMALL.model_copy(update={"name": str(tmp_path)}), WORDS, 0)
    assert torch.equal(backbone.head(again), backbone.head(model))


@pytest.mark.parametrize("wanted", [True, False])
def test_saving_and_loading_show_no_bars_and_leave_the_callers_setting(
    tmp_path: Path, wanted: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    before = logging.is_progress_bar_enabled()
    (logging.enable_progress_bar if wanted else logging.disable_progress_bar)()
    try:
        backbone.save(backbone.make(SMALL, WORDS, 7), tmp_path)
        backbone.make(SMALL.model_copy(update={"name": str(tmp_path)}), WORDS, 0)
        assert logging.is_progress_bar_enabled() == wanted
        assert capsys.readouterr().err == ""
    finally:
        (logging.enable_progress_bar if before else logging.disable_progress_bar)()


def test_a_pretrained_backbone_gets_rows_for_our_tokens_and_keeps_its_own(tmp_path: Path) -> None:
    config, words = BackboneConfig(name=str(backbone_folder(tmp_path))), tokenizer.pretrained(tmp_path)
    one, two, other = (backbone.make(config, words, seed) for seed in (7, 7, 8))
    before = backbone.head(LlamaForCausalLM.from_pretrained(tmp_path))
    assert len(backbone.head(one)) == len(words) == len(before) + len(tokenizer.SPECIALS)
    assert torch.equal(backbone.head(one)[: len(before)], before)
    assert torch.equal(backbone.head(one), backbone.head(two))
    assert not torch.equal(backbone.head(one), backbone.head(other))


@pytest.mark.parametrize("tied", [True, False])
def test_tokens_of_clusters_start_from_their_members(tmp_path: Path, tied: bool) -> None:
    config = BackboneConfig(name=str(backbone_folder(tmp_path, tied)))
    words = tokenizer.of(tokenizer.pretrained(tmp_path).tokenizer, clusters=3)
    texts, assignment = (
        ["trail running shoe", "raised beds", "hair care for men", "seed trays"],
        np.array([2, 0, 2, -1]),
    )
    paths = linearise(
        texts,
        words.encode,
        form="token",
        vocabulary=len(words),
        assignment=assignment,
        cluster_tokens=words.clusters,
        forbidden=words.special_ids(),
    )
    plain, model = backbone.make(config, words, 7), backbone.make(config, words, 7, paths)
    for part in ("get_input_embeddings", "get_output_embeddings"):
        before, after = (getattr(each, part)().weight.detach() for each in (plain, model))
        expected = before.clone()
        for cluster in (0, 2):  # the other one has no member, and stays as it was
            members = [texts[label] for label in np.flatnonzero(assignment == cluster)]
            means = torch.stack([before[ids].mean(0) for ids in words.encode(members)])
            expected[words.clusters[cluster]] = means.mean(0)
        assert torch.allclose(after, expected, atol=1e-6) and not torch.allclose(after, before, atol=1e-6)


@pytest.mark.parametrize("tied", [True, False])
def test_lora_trains_a_small_part_and_the_rows_of_our_tokens(tmp_path: Path, tied: bool) -> None:
    model, words = adapted(tmp_path, tied)
    sizes = [(value.numel(), value.requires_grad) for value in model.parameters()]
    assert 0 < sum(size for size, trained in sizes if trained) < 0.2 * sum(size for size, _ in sizes)
    before = backbone.head(model).detach().clone()
    learn(model)
    moved = (backbone.head(model).detach() != before).any(1).nonzero().flatten().tolist()
    assert set(moved) == words.special_ids()


@pytest.mark.parametrize("tied", [True, False])
def test_what_lora_learnt_is_saved_with_the_weights(tmp_path: Path, tied: bool) -> None:
    model, words = adapted(tmp_path, tied)
    ids = torch.tensor([[words.controls.profile, 5, 9, words.sep]])
    untrained = backbone.states(model, ids).detach()
    learn(model)
    learnt, head = backbone.states(model, ids).detach(), backbone.head(model).detach().clone()
    assert not torch.allclose(learnt, untrained, atol=1e-3)
    backbone.save(model, tmp_path / "trained")
    again = backbone.make(BackboneConfig(name=str(tmp_path / "trained"), lora_rank=2), words, 0)
    assert torch.allclose(backbone.states(again, ids), learnt, atol=1e-5)
    assert torch.equal(backbone.head(again), head)


def adapted(folder: Path, tied: bool) -> tuple[Any, tokenizer.Vocabulary]:
    config = BackboneConfig(name=str(backbone_folder(folder, tied)), lora_rank=2)
    words = tokenizer.of(tokenizer.pretrained(folder).tokenizer, clusters=3)
    return backbone.adapt(backbone.make(config, words, 7), config, words, 7), words


def learn(model: Any) -> None:
    """A few large steps towards anything at all."""
    optimizer = torch.optim.SGD([value for value in model.parameters() if value.requires_grad], lr=1.0)
    for _ in range(3):
        optimizer.zero_grad()
        (backbone.states(model, torch.tensor([[1, 2, 3]])) @ backbone.head(model).T).logsumexp(-1).sum().backward()
        optimizer.step()


def test_all_of_a_tiny_backbone_is_trained_whatever_the_rank() -> None:
    model, config = backbone.make(SMALL, WORDS, 7), SMALL.model_copy(update={"lora_rank": 2})
    assert backbone.adapt(model, config, WORDS, 7) is model


def test_known_weights_that_are_not_installed_name_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "UNPACKED", tmp_path)
    with pytest.raises(MissingDependency, match="merit weights install smollm2"):
        backbone.make(SMALL.model_copy(update={"name": "smollm2"}), WORDS, 0)


def test_a_label_encoder_is_no_backbone() -> None:
    with pytest.raises(MissingArtifact, match=r"Set backbone\.name to `tiny`"):
        backbone.make(SMALL.model_copy(update={"name": "minilm"}), WORDS, 0)


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
