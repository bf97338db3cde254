"""merit labels: change a label space; every change is a new version in a new folder."""

from __future__ import annotations

from typing import Annotated

import typer

from merit.cli.options import DEFAULT_CACHE, Cache, LabelsFolder, Out, Reason, Texts, group
from merit.cli.output import show
from merit.core import artifacts
from merit.labels.build import change_labels

labels_app = group("labels", "Change a label space; every change is a new version in a new folder.")


@labels_app.command()
def add(
    labels: LabelsFolder,
    texts: Texts,
    out: Out,
    vertical: Annotated[str, typer.Option(help="of the new labels")] = "other",
    reason: Reason = "",
    cache: Cache = DEFAULT_CACHE,
) -> None:
    """Add labels. Only their texts are encoded; all other labels keep their vectors bit for bit."""
    space = artifacts.load(labels, "labels")
    verticals = [vertical] * len(texts)
    show(change_labels(space, out, "add", texts, reason=reason, cache=cache, verticals=verticals))


@labels_app.command()
def retire(labels: LabelsFolder, texts: Texts, out: Out, reason: Reason, cache: Cache = DEFAULT_CACHE) -> None:
    """Retire labels: they keep their number, and are never predicted again."""
    show(change_labels(artifacts.load(labels, "labels"), out, "retire", texts, reason=reason, cache=cache))


@labels_app.command()
def block(labels: LabelsFolder, texts: Texts, out: Out, reason: Reason, cache: Cache = DEFAULT_CACHE) -> None:
    """Block labels: they never leave the space."""
    show(change_labels(artifacts.load(labels, "labels"), out, "block", texts, reason=reason, cache=cache))


@labels_app.command()
def rename(
    labels: LabelsFolder, old: str, new: str, out: Out, reason: Reason = "", cache: Cache = DEFAULT_CACHE
) -> None:
    """Rename a label. Its old name still leads to it."""
    show(change_labels(artifacts.load(labels, "labels"), out, "rename", [old], reason=reason, cache=cache, to=new))
