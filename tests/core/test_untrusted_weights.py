"""A pickle that calls itself model.safetensors is refused wherever weights are read, and never runs."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

import merit
from merit.core import artifacts, weights
from merit.core.artifacts import MANIFEST
from merit.core.errors import DamagedArtifact, MeritError
from merit.data import tokenizer
from merit.generator import backbone
from merit.generator.backbone import BackboneConfig
from merit.labels import encoders

WORDS = tokenizer.train(["red green blue"] * 10, ["red", "green", "blue"], 300)
SMALL = BackboneConfig(width=32, layers=1, heads=2, vocabulary=300)
Trap = Callable[[Path], Path]


class Bomb:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return Path.touch, (self.mark,)


@pytest.fixture
def trap(tmp_path: Path) -> Trap:
    """Puts a pickle in a file's place, as long as what was there; returns the file that is made if it ever runs."""
    mark = tmp_path / "it ran"

    def put(file: Path) -> Path:
        size = file.stat().st_size
        file.unlink()  # it may be a link to the real one
        content = pickle.dumps(Bomb(mark))
        file.write_bytes(content + b"\0" * (size - len(content)))
        return mark

    return put


def test_the_trap_works(trap: Trap, tmp_path: Path) -> None:
    """Or the tests below would show nothing."""
    file = tmp_path / "model.safetensors"
    save_file({"weight": np.zeros(99, np.float32)}, file)
    mark = trap(file)
    with pytest.raises(SafetensorError):
        load_file(file)
    assert not mark.exists()
    pickle.loads(file.read_bytes())
    assert mark.exists()


def test_as_a_backbone(trap: Trap, tmp_path: Path) -> None:
    place = tmp_path / "model"
    backbone.make(SMALL, WORDS, 7).save_pretrained(place)
    mark = trap(place / "model.safetensors")
    with pytest.raises((MeritError, SafetensorError)):
        backbone.make(SMALL.model_copy(update={"name": str(place)}), WORDS, 0)
    assert not mark.exists()


def test_as_the_label_encoder_of_the_package(trap: Trap, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its bytes are compared with the hash we know, before anything reads them."""
    wanted = weights.CATALOG["minilm"]
    place = _links(weights.folder("minilm"), tmp_path / wanted.package / wanted.folder)
    mark = trap(place / wanted.file)
    monkeypatch.setattr(weights, "_locate", lambda _: place / wanted.file)
    with pytest.raises(DamagedArtifact, match="does not hold the bytes"):
        encoders.make("minilm")
    assert not mark.exists()


def test_as_a_label_encoder_of_ones_own(trap: Trap, tmp_path: Path) -> None:
    place = _links(weights.folder("minilm"), tmp_path / "encoder")
    mark = trap(place / "model.safetensors")
    with pytest.raises((MeritError, SafetensorError)):
        encoders.make(str(place)).encode(["tea"])
    assert not mark.exists()


@pytest.mark.parametrize("verify", [True, False])
def test_inside_a_model(made: Path, trap: Trap, tmp_path: Path, verify: bool) -> None:
    place = tmp_path / "model"
    shutil.copytree(made / "model", place)
    mark = trap(place / "mlp.safetensors")
    with pytest.raises(DamagedArtifact):
        merit.load(place, verify=verify)
    assert not mark.exists()


def test_every_kind_of_artifact_is_checked_before_it_is_read(made: Path, trap: Trap, tmp_path: Path) -> None:
    """Whatever the weights are of: a run's artifacts with safetensors are each refused by their manifest."""
    kinds = {path.parents[len(path.relative_to(made).parts) - 2] for path in made.rglob("*.safetensors")}
    assert len(kinds) >= 3
    for kind in sorted(kinds):
        place = tmp_path / kind.name
        shutil.copytree(kind, place)
        mark = trap(next(place.rglob("*.safetensors")))
        with pytest.raises(DamagedArtifact, match="not the bytes its manifest names"):
            artifacts.load(place)
        assert (place / MANIFEST).exists() and not mark.exists()


def _links(folder: Path, place: Path) -> Path:
    """A copy of a folder that takes no room."""
    for file in folder.rglob("*"):
        if file.is_file():
            (place / file.relative_to(folder)).parent.mkdir(parents=True, exist_ok=True)
            (place / file.relative_to(folder)).symlink_to(file)
    return place
