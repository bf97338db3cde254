"""`merit.load`: the folder of a model, or of a run that has one, as a `Model`."""

from __future__ import annotations

from pathlib import Path

from merit.core import artifacts, files, signing
from merit.core.artifacts import Artifact
from merit.core.errors import MeritError, MissingArtifact
from merit.retrieval.model import Model

LATER = "later"  # the folder of labels that came after the training


def load(
    folder: Path | str,
    labels: Path | str | None = None,
    verify: bool = True,
    threads: int | None = None,
    users: bool = True,
) -> Model:
    """Open a model folder, or the folder of a run that has one.

    `labels` is a later version of the label space: labels added there can be scored at once, from their text, and the
    scores of all others stay the same to the last bit. `threads` is all cores by default, and changes no answer.
    Without `users` none are loaded, and none take memory: `Model.for_users` makes a model of some of them.
    """
    manifest = find(Path(folder)) / artifacts.MANIFEST
    while True:  # a refresh may take the model's place while it is opened: then the next one is
        version = files.version(manifest)
        try:
            model = _open(manifest.parent, labels, verify or signing.required(), threads, users)
        except MeritError:
            if files.version(manifest) == version:
                raise
            continue
        if files.version(manifest) == version:
            return model


def _open(folder: Path, labels: Path | str | None, verify: bool, threads: int | None, users: bool) -> Model:
    artifact = artifacts.load(folder, "model", verify=verify)
    newer = artifacts.load(Path(labels), "labels", verify=verify) if labels else later_labels(artifact)
    signing.check(artifact.path)
    if labels and newer:
        signing.check(newer.path)
    with files.opening(artifact.path):
        return Model(artifact, newer, threads, users)


def later_labels(model: Artifact) -> Artifact | None:
    """The version of the label space that refreshes have added labels to, if there were any."""
    folder = model.file(LATER)
    return artifacts.load(folder, "labels", verify=False) if folder.exists() else None


def find(folder: Path) -> Path:
    """The folder of the model: this one, or `model` in the folder of a run."""
    if not folder.exists():
        raise MissingArtifact(f"There is no folder {folder}. Make a model with `merit run CONFIG`.")
    inside = folder / "model"
    return inside if not (folder / artifacts.MANIFEST).exists() and (inside / artifacts.MANIFEST).exists() else folder
