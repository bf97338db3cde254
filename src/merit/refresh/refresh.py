"""`merit refresh RUN`: the events, items, users and labels that came since go into a model. All of its weights stay.

    refresh("runs/shop")                                        # the log of the run, which has grown
    refresh("runs/shop", source={"interactions": "week.csv"})   # or its new part alone

Users whose history has changed are encoded again, and so is everyone where what the generator reads besides has moved:
the age of items, and how popular they are. The trends of labels move for all at once, with the label vectors. The new
version takes the model's place in one step: whatever is killed, there is the old one or the new one.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from safetensors.numpy import save

from merit.core import artifacts, config, console, files, signing, timings
from merit.core.artifacts import Artifact, Draft
from merit.core.config import Frozen
from merit.core.errors import DataError, StorageError
from merit.core.timings import Timing
from merit.data import sources
from merit.data.corpus import UNKNOWN, vertical_counts
from merit.labels import space
from merit.labels.build import change_labels, load_vectors
from merit.labels.names import normalise
from merit.privacy import hidden
from merit.privacy.erasure.erase import LOCK
from merit.propensity.factor_scorer import FactorScorer
from merit.refresh import page, watch
from merit.refresh.drift import WatchConfig
from merit.refresh.events import NewEvents, RefreshConfig, read_new
from merit.refresh.known import EVENT, KnownRun, open_run
from merit.refresh.moved import Moved, move
from merit.refresh.users import write_users
from merit.retrieval.build import SINCE, STANDARD, ModelParts, factor_parts, standard_parts, write_side
from merit.retrieval.encode import HistoryEncoder, ItemsEncoder, QuickEncoder, open_encoder
from merit.retrieval.exact import Exact
from merit.retrieval.model import Model
from merit.retrieval.opening import LATER, find, later_labels
from merit.retrieval.verticals import shares_of

ITEM_TRENDS = "generator/trends.npy"  # of a generator that reads items
KEPT = ("labels", "propensity", "generator", "mlp.safetensors", "windows.json")
BUSY = "An erasure or another refresh is at work in {}. Give the same command again when it has ended."


class RefreshRun(Frozen):
    """The settings of a refresh."""

    source: sources.Source
    """By default that of the run; what is given here replaces its settings."""
    refresh: RefreshConfig = RefreshConfig()
    watch: WatchConfig = WatchConfig()
    cache: Path = Path(".cache/merit")
    """Vectors of new labels."""


def refresh(run: Path | str, **settings: Any) -> Artifact:
    """The next version of a run's model, over what came since the last one. `settings` are those of `RefreshRun`."""
    folder = find(Path(run)).parent
    begin = time.perf_counter()
    timings.reset_peak()
    with files.locked(folder / LOCK, BUSY.format(folder), fleeting=True):
        if (folder / hidden.FILE).exists():
            raise StorageError(f"An erasure has not come to its end. Finish it first: `merit erase --folder {folder}`.")
        known = open_run(Path(run))
        signing.check(known.model.path)
        given = _settings(known, settings)
        with console.spinner("reading what is new"):
            new = read_new(known, given.source, given.refresh)
        model = _written(known, new, move(known, new), given)
        seconds = round(time.perf_counter() - begin, 2)
        timings.note(folder, Timing(stage="refresh", hash=model.manifest.hash, seconds=seconds, peak=timings.peak()))
    return model


def _settings(known: KnownRun, given: dict[str, Any]) -> RefreshRun:
    source, theirs = known.prepared.source.model_dump(mode="json"), given.get("source", {})
    if theirs.get("kind", source["kind"]) != source["kind"]:
        source = {}
    return config.build(RefreshRun, given | {"source": source | theirs}, origin="merit refresh")


def _written(known: KnownRun, new: NewEvents, moved: Moved, given: RefreshRun) -> Artifact:
    """The next version, in the place of the model."""
    model = known.model
    parents = {
        name: artifacts.load(known.folder / parent.path, parent.kind, verify=False)
        for name, parent in model.manifest.parents.items()
    }
    with artifacts.writing(
        model.path,
        "model",
        config=known.layout,
        seed=model.manifest.seed,
        parents=parents,
        sealed=lambda draft: signing.renew(model.path, draft),
    ) as draft:
        _keep(model, KEPT, draft.path)
        popular = _move_items(model, moved, draft.path)
        new.items.select(known.items.columns).write_parquet(draft.path / "items.parquet")
        _write_since(known, new, draft)
        _write_verticals(known, new, moved, draft.path)
        encoder = open_encoder(Artifact(draft.path, model.manifest), known.labels)
        parts = _parts(encoder, known.labels)
        reads_all = not isinstance(encoder, QuickEncoder) and (popular or bool(len(new.changed)))
        encoded = write_users(model, moved.users, encoder, reads_all, draft.path)
        labels = parts.labels_of_week(moved.trends)
        write_side(draft.path / "interests", len(labels), [labels], Exact.of(parts.weights).labels)
        _write_later(known, new, given.cache, draft.path)
        draft.summary |= model.manifest.summary | {"last": moved.last, "users": len(moved.users)}
        draft.summary |= {"erased": known.erased, "since": len(known.since) + len(new.events)}
        after = Artifact(draft.path, model.manifest.model_copy(update={"summary": draft.summary}))
        record = watch.observe(known, new, moved, _opened(model), _opened(after), encoded, given.watch)
        records = watch.append(model, record, draft.path / watch.LOG)
        (draft.path / watch.LOG / watch.PAGE).write_text(page.render_watch(records, known.folder), encoding="utf-8")
        card = page.refreshed_card(model.file("README.md").read_text(encoding="utf-8"), record, draft.summary)
        (draft.path / "README.md").write_text(card, encoding="utf-8")
    return artifacts.load(model.path, "model", verify=False)


def _opened(model: Artifact) -> Model:
    with files.opening(model.path):
        return Model(model, later_labels(model))


def _parts(encoder: HistoryEncoder, labels: Artifact) -> ModelParts:
    """What is stored of labels, by the same weights."""
    if not isinstance(encoder, QuickEncoder | ItemsEncoder):
        return standard_parts(encoder.scorer)  # type: ignore[attr-defined]
    scorer = FactorScorer(encoder.weights, load_vectors(labels), space.load(labels.path).live_mask())
    if isinstance(encoder, QuickEncoder):
        return factor_parts(scorer)
    return factor_parts(scorer, STANDARD, encoder.likely_weight)


def _keep(model: Artifact, names: Iterable[str], out: Path) -> None:
    """Give files and folders that stay as they are a second name."""
    for name in model.manifest.files:
        if name.split("/")[0] in names:
            files.link(model.file(name), out / name)


def _move_items(model: Artifact, moved: Moved, out: Path) -> bool:
    """Move the popularity of items to the last week; whether anything in it is other than before."""
    if ITEM_TRENDS not in model.manifest.files:
        return False
    before: NDArray[np.float16] = np.load(model.file(ITEM_TRENDS), allow_pickle=False)
    if np.array_equal(before, moved.item_trends):
        return False
    file = out / ITEM_TRENDS
    file.unlink()  # it is a second name of the old one
    np.save(file, moved.item_trends)
    generator = artifacts.load(model.file("generator"), "generator", verify=False)
    artifacts.reseal(file.parent, generator.manifest, [file.name])
    return True


def _write_since(known: KnownRun, new: NewEvents, draft: Draft) -> None:
    since = pl.concat([known.since, new.events])
    if len(since):
        since.sort(EVENT).write_parquet(draft.path / SINCE)


def _write_verticals(known: KnownRun, new: NewEvents, moved: Moved, out: Path) -> None:
    verticals = [table["vertical"].fill_null(UNKNOWN) for table in (space.load(known.labels.path).table, new.items)]
    names = sorted({*verticals[0], *verticals[1]})
    counts = vertical_counts(new.items["vertical"], moved.sold, moved.item_labels)
    shares = shares_of(counts, names, len(moved.trends))
    (out / "verticals.safetensors").write_bytes(save({"shares": shares}))
    (out / "verticals.json").write_text(json.dumps(names, ensure_ascii=False), encoding="utf-8")


def _write_later(known: KnownRun, new: NewEvents, cache: Path, out: Path) -> None:
    """The next version of the label space, where new or changed items carry labels that it does not have."""
    current = later_labels(known.model) or known.labels
    labels = space.load(current.path)
    touched = np.concatenate([new.changed, np.arange(len(known.items), len(new.items))])
    tags = new.items[touched].select(text="tags", vertical="vertical").explode("text").drop_nulls("text")
    tags = tags.unique("text", keep="first", maintain_order=True)
    fresh = tags.filter(pl.Series(labels.find(tags["text"].to_list()) < 0, dtype=pl.Boolean))
    fresh = fresh.filter(pl.Series([bool(normalise(text)) for text in fresh["text"]], dtype=pl.Boolean))
    _keep(known.model, [LATER], out)
    if fresh.is_empty():
        return
    with TemporaryDirectory(prefix=f"{out.name}-", dir=out.parent) as place:
        texts, verticals = fresh["text"].to_list(), fresh["vertical"].fill_null("").to_list()
        try:
            added = change_labels(
                current, Path(place) / LATER, "add", texts, reason="refresh", cache=cache, verticals=verticals
            )
        except DataError as nothing:  # the encoder cannot tell any of them from a label
            console.tell(str(nothing))
            return
        if (out / LATER).exists():
            (out / LATER).rename(Path(place) / "before")
        added.path.rename(out / LATER)
