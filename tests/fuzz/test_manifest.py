"""A manifest says what was written, or it is refused: nothing in between."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from merit.core import artifacts
from merit.core.artifacts import MANIFEST, FileRecord, Manifest, Parent
from merit.core.config import Frozen
from merit.core.errors import DamagedArtifact, MissingArtifact
from tests.fuzz.words import TEXT, VALUES, cases, edited


class Settings(Frozen):
    size: int = 3


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> artifacts.Artifact:
    folder = tmp_path_factory.mktemp("made") / "toy"
    with artifacts.writing(folder, "toy", config=Settings(), seed=7, inputs={"raw.csv": [5, 1]}) as draft:
        (draft.path / "a.txt").write_text("hello")
        draft.summary |= {"letters": 5, "share": 0.1, "none": float("nan")}
    return artifacts.load(folder)


@cases(100)
@given(data=st.data())
def test_an_edited_manifest_is_refused_or_says_the_same(made: artifacts.Artifact, data: st.DataObject) -> None:
    file = made.path / MANIFEST
    right = file.read_text()
    try:
        file.write_text(data.draw(edited(right)), encoding="utf-8", errors="surrogatepass")
        try:
            found = artifacts.load(made.path)
        except (DamagedArtifact, MissingArtifact):
            return
        assert found.manifest == made.manifest
    finally:
        file.write_text(right)


@cases(100)
@given(data=st.data())
def test_no_value_can_be_changed_by_hand(made: artifacts.Artifact, data: st.DataObject) -> None:
    told = json.loads((made.path / MANIFEST).read_text())
    name = data.draw(st.sampled_from(sorted(told)))
    value = data.draw(VALUES)
    assume(json.dumps(value, default=str) != json.dumps(told[name]))
    with pytest.raises(ValueError):
        Manifest.model_validate(told | {name: value})


@cases(100)
@given(content=st.binary(max_size=80) | VALUES.map(lambda value: json.dumps(value).encode()))
def test_any_file_in_its_place_is_refused(content: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.getbasetemp() / "strange"
    folder.mkdir(exist_ok=True)
    (folder / MANIFEST).write_bytes(content)
    with pytest.raises((DamagedArtifact, MissingArtifact)) as told:
        artifacts.load(folder)
    assert str(folder) in str(told.value)


records = st.builds(FileRecord, sha256=TEXT, bytes=st.integers(0, 2**60))
parents = st.builds(Parent, kind=TEXT, hash=TEXT, path=TEXT)
manifests = st.builds(
    Manifest,
    kind=TEXT,
    created=TEXT,
    hash=TEXT,
    seed=st.none() | st.integers(-(2**63), 2**63 - 1),
    config=st.dictionaries(TEXT, VALUES, max_size=3),
    parents=st.dictionaries(TEXT, parents, max_size=2),
    summary=st.dictionaries(TEXT, VALUES, max_size=3),
    files=st.dictionaries(TEXT, records, max_size=3),
)


@cases(100)
@given(manifests)
def test_what_was_sealed_is_read_as_it_was_written(manifest: Manifest) -> None:
    try:
        text = manifest.model_dump_json()
    except ValueError:  # half of a character, which is no text
        return
    plain: dict[str, Any] = json.loads(text)
    assert Manifest.model_validate_json(text).model_dump_json() == text
    assert Manifest.model_validate(plain).model_dump_json() == text


def _changed(made: artifacts.Artifact, folder: Path, change: Callable[[dict[str, Any]], object], sealed: bool) -> Path:
    """The artifact with another manifest, sealed anew or not at all."""
    (folder / "a.txt").write_text("hello")
    values = json.loads((made.path / MANIFEST).read_text())
    values.pop("seal")
    change(values)
    text = Manifest.model_validate(values).model_dump_json() if sealed else json.dumps(values)
    (folder / MANIFEST).write_text(text)
    return folder


TAMPERED: dict[str, tuple[Callable[[dict[str, Any]], object], bool, str]] = {
    "no seal": (lambda values: None, False, "is damaged"),
    "a file with a record of its own": (
        lambda values: values["files"].update({"b.txt": {"sha256": "0", "bytes": 0}}),
        True,
        "was changed: its hash is not that of its files",
    ),
    "other settings": (lambda values: values.update(seed=8), True, "was changed: its hash"),
    "a name that leads out": (
        lambda values: values["files"].update({"../../b.txt": {"sha256": "0", "bytes": 0}}),
        True,
        "names a file outside its folder",
    ),
    "a name from the root": (
        lambda values: values["files"].update({"/etc/passwd": {"sha256": "0", "bytes": 0}}),
        True,
        "names a file outside its folder",
    ),
}


@pytest.mark.parametrize("how", TAMPERED)
def test_a_changed_manifest_is_refused(how: str, made: artifacts.Artifact, tmp_path: Path) -> None:
    change, sealed, fault = TAMPERED[how]
    with pytest.raises(DamagedArtifact, match=fault):
        artifacts.load(_changed(made, tmp_path, change, sealed))


def test_json_without_a_bottom_is_damaged(tmp_path: Path) -> None:
    (tmp_path / MANIFEST).write_text("[" * 100_000)
    with pytest.raises(DamagedArtifact, match="is damaged"):
        artifacts.load(tmp_path)
