"""A model folder that somebody changed: refused with one sentence, or because it is not signed."""

from __future__ import annotations

import json
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from safetensors.numpy import load_file, save_file

import merit
from merit.core import artifacts, signing
from merit.core.artifacts import MANIFEST, FileRecord, Manifest
from merit.core.errors import ConfigError, DamagedArtifact
from merit.privacy.erasure import erase


@pytest.fixture
def place(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made / "model", tmp_path / "run/model"))


def accept(place: Path) -> None:
    """Write the manifest that whoever swapped files would write: records, hash and seal fit."""
    files = {
        str(file.relative_to(place)): FileRecord(sha256=artifacts.hash_file(file), bytes=file.stat().st_size)
        for file in sorted(place.rglob("*"))
        if file.is_file() and file != place / MANIFEST and file.name != signing.SIGNATURE
    }
    values = json.loads((place / MANIFEST).read_text())
    values.pop("seal")
    made = Manifest.model_validate(values | {"files": files})
    (place / MANIFEST).write_text(made.model_copy(update={"hash": artifacts.identity(made)}).model_dump_json())


def without(file: Path, name: str) -> None:
    arrays = load_file(file)
    arrays.pop(name if name else min(arrays))
    save_file(arrays, file)


STRANGE: dict[str, tuple[str, Callable[[Path], object]]] = {
    "weights that are none": ("mlp.safetensors", lambda file: file.write_bytes(b"\xff" * 99)),
    "weights cut short": ("mlp.safetensors", lambda file: file.write_bytes(file.read_bytes()[:-9])),
    "an array less": ("mlp.safetensors", lambda file: without(file, "")),
    "arrays of other shapes": ("mlp.safetensors", lambda file: save_file({"a": np.zeros(3, np.float32)}, file)),
    "deep JSON": ("propensity/calibration.json", lambda file: file.write_text("[" * 100_000)),
    "another JSON": ("propensity/calibration.json", lambda file: file.write_text("[]")),
    "a table that is none": ("users.parquet", lambda file: file.write_bytes(b"PAR1")),
    "a column less": ("users.parquet", lambda file: pl.read_parquet(file).drop("user_id").write_parquet(file)),
    "labels of another kind": ("labels/labels.parquet", lambda file: pl.DataFrame({"a": [1]}).write_parquet(file)),
    "changes without a bottom": ("labels/changes.json", lambda file: file.write_text("[" * 100_000)),
}


@pytest.mark.parametrize("how", STRANGE)
def test_strange_files_under_right_hashes_are_one_sentence(how: str, place: Path) -> None:
    name, change = STRANGE[how]
    change(place / name)
    accept(place)
    artifacts.load(place, "model")
    with pytest.raises(DamagedArtifact) as told:
        merit.load(place.parent)
    assert "\n" not in str(told.value) and ("scorer has no array" in str(told.value) or str(place) in str(told.value))


def test_labels_with_strange_vectors_are_one_sentence(place: Path, model: Any) -> None:
    save_file({"a": np.zeros(3, np.float32)}, place / "labels/vectors.safetensors")
    for folder in (place / "labels", place):
        accept(folder)
    opened = merit.load(place.parent)
    with pytest.raises(DamagedArtifact, match="merit did not write"):
        opened.interest("something that is no label")


# --- signed ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def key(tmp_path: Path) -> Iterator[Path]:
    signing.create(tmp_path / "keys/release")
    yield tmp_path / "keys/release"
    signing.require(None)


def test_only_what_the_key_signed_is_opened(place: Path, key: Path) -> None:
    merit.load(place)
    signing.require(key)
    with pytest.raises(DamagedArtifact, match=r"not signed as it is now .* `merit model sign"):
        merit.load(place)
    signing.sign(place, key)
    assert len(merit.load(place).users)
    (place / "README.md").write_text("another card")
    accept(place)  # all hashes fit, and the signature does not
    with pytest.raises(DamagedArtifact, match="not signed as it is now"):
        merit.load(place)


def test_bytes_are_checked_where_a_key_is_required(place: Path, key: Path) -> None:
    signing.sign(place, key)
    signing.require(key)
    file = place / "mlp.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    with pytest.raises(DamagedArtifact, match="not the bytes its manifest names"):
        merit.load(place, verify=False)


@pytest.mark.parametrize("content", ["", "{}", "[" * 100_000, '{"hmac_sha256": "\u00e9"}', '{"hmac_sha256": "0"}'])
def test_a_strange_signature_is_none(content: str, place: Path, key: Path) -> None:
    (place / signing.SIGNATURE).write_text(content)
    signing.require(key)
    with pytest.raises(DamagedArtifact, match="not signed"):
        merit.load(place)


def test_an_erasure_signs_what_was_signed(made: Path, place: Path, key: Path) -> None:
    signing.sign(place, key)
    signing.require(key)
    user = merit.load(place).users["user_id"][0]
    erase.erase([place.parent], [user])
    assert user not in merit.load(place).users["user_id"]


def test_keys_are_private_and_outside(place: Path, key: Path) -> None:
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    with pytest.raises(ConfigError, match="lies in the folder of an artifact"):
        signing.create(place / "key")
    with pytest.raises(ConfigError, match="is there already"):
        signing.create(key)
    key.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        signing.require(key)


def test_from_the_command_line(place: Path, tmp_path: Path, command: Callable[..., tuple[int, str, str]]) -> None:
    key = tmp_path / "keys/cli"
    assert command("model", "signing-key", key)[0] == 0
    asked = ("--signing-key", key, "model", "labels", place.parent, "-k", "1")
    code, _, err = command(*asked)
    assert code == DamagedArtifact.exit_code and "not signed" in err
    assert command("model", "sign", place.parent, "--key", key)[0] == 0
    assert command(*asked)[0] == 0
    assert "There is no key" in command("--signing-key", tmp_path / "none", "model", "card", place)[2]
    signing.require(None)
