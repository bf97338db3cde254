"""merit labels: change a label space, every change a new version in a new folder; and judge what its vectors say."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from merit.cli.options import DEFAULT_CACHE, AsJson, Cache, LabelsFolder, Out, Reason, Texts, group
from merit.cli.output import show, show_frame
from merit.core import artifacts, console
from merit.evaluation import judging
from merit.labels import encoders
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


@labels_app.command()
def judge(
    sheets: Annotated[list[Path], typer.Argument(help="CSV files of judged pairs; with --run the one to write")],
    run: Annotated[Path | None, typer.Option(help="write a new sheet with pairs of labels of this run")] = None,
    pairs: Annotated[int, typer.Option(min=1, help="of labels, in a new sheet")] = 100,
    seed: Annotated[int, typer.Option(help="of the pairs, and of the intervals")] = 7,
    encoder: Annotated[str, typer.Option(help="whose cosines are compared with the judgements")] = "minilm",
    cache: Cache = DEFAULT_CACHE,
    as_json: AsJson = False,
) -> None:
    """Judge which labels mean the same, and compare the thresholds of soft matching with the judgements."""
    if run:
        number = judging.write_sheet(run, sheets[0], pairs, seed)
        console.tell(f"{number} pairs in {sheets[0]}: judge each as same, related or different", pairs=number)
        return
    judged = judging.read_sheets(sheets)
    cosine = judging.cosines(judged, encoders.Cached(encoders.make(encoder), cache))
    agreements = judging.agreements(judged, cosine, seed)
    if as_json:
        console.show_json(agreements.to_dicts())
        return
    show_frame(f"Agreement with {len(judged)} judged pairs", agreements, lines=False)
    show_frame("Judgements by cosine", judging.by_bin(judged, cosine), lines=False)
