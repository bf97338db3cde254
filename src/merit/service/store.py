"""The model that is being served, and how the next one takes its place.

A request takes the model that is current when it begins and keeps it to its end; a new one is opened beside it and then
becomes current. Nothing waits, and nothing is dropped. What a refresh puts in place of the model is noticed by the next
request and opened beside it; any other folder is served after a reload.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from threading import Lock, Thread

import merit
from merit.core import artifacts, console, files
from merit.core.artifacts import Artifact
from merit.core.errors import DataError, MeritError
from merit.core.provenance import now
from merit.retrieval.model import Model
from merit.retrieval.opening import find
from merit.retrieval.query import Interest
from merit.service.explainer import Explainer
from merit.service.score_cache import ScoreCache


@dataclass(frozen=True)
class Served:
    """An open model and what lives as long as it is served; requests keep the one they began with."""

    model: Model
    name: str
    opened: str
    explainer: Explainer
    run: Path
    """The folder that is served: beside the model, it may hold the run's other artifacts."""
    _encoding: Lock = field(default_factory=Lock)

    @property
    def version(self) -> str:
        """Changes whenever an answer could; the third number counts erasures."""
        manifest, erased = self.model.artifact.manifest, len(self.model.artifact.manifest.erased)
        return f"{manifest.hash[:16]}-{self.model.labels.version}" + (f"-{erased}" if erased else "")

    @cached_property
    def scores(self) -> ScoreCache:
        """The scores of all users for an interest; the last ones are kept as long as this model is served."""
        return ScoreCache(self.model.audience_scores)

    @contextmanager
    def reading(self, texts: Iterable[str]) -> Iterator[Model]:
        """The model, for a request with these interests: one thread at a time may encode phrases.

        The encoder's tokenizer is shared, and refuses to be used by two threads at once.
        """
        if self.model.are_labels(list(texts)):
            yield self.model
        else:
            with self._encoding:
                yield self.model

    def interest(self, text: str) -> Interest:
        """How the model understands a text; one thread at a time for a phrase that is no label."""
        with self.reading([text]) as model:
            return model.interest(text)

    def beside(self, name: str, kind: str, wanted: str) -> Artifact | None:
        """An artifact of the same run, if it is in the folder that is served and has this hash."""
        folder = self.run / name
        if not (folder / artifacts.MANIFEST).exists():
            return None
        artifact = artifacts.load(folder, kind, verify=False)
        return artifact if artifact.manifest.hash == wanted else None


class Store:
    """Opens the model at once, so that a folder without a valid one keeps the service from starting."""

    def __init__(self, folder: Path, labels: Path | None, verify: bool, seconds_to_explain: float) -> None:
        self.folder, self.labels, self._verify = folder, labels, verify
        self._seconds = seconds_to_explain
        self._reloading = Lock()
        self._seen = files.version(find(folder.resolve()) / artifacts.MANIFEST)  # before it is opened
        self._current = self._open(verify)

    @property
    def current(self) -> Served:
        """The model that is served. Where users were erased from it since, it is opened again first."""
        if self._current.model.outdated:
            with self._reloading:
                if self._current.model.outdated:
                    self._replace(verify=False)  # what the purge wrote, it has hashed
        elif (version := files.version(self._manifest)) and version != self._seen:
            self._seen = version  # first: one request starts the thread
            Thread(target=self._swap_in, daemon=True).start()
        return self._current

    @property
    def _manifest(self) -> Path:
        return self._current.model.artifact.path / artifacts.MANIFEST

    def _swap_in(self) -> None:
        """Serve the model that a refresh has put in the place of this one; until it is open, this one answers."""
        with self._reloading:
            model = self._current.model.artifact
            try:
                if artifacts.load(model.path, "model", verify=False).manifest.hash != model.manifest.hash:
                    self._replace(self._verify)
            except MeritError as error:
                console.warn(f"The model that was put in place is not served: {error}")

    @property
    def run(self) -> Path:
        """The folder that is served, with its links resolved."""
        return self._current.run

    def reload(self) -> Served:
        """Serve what is now in the folder (or behind the link). If it cannot be opened, the old one stays."""
        if not self._reloading.acquire(blocking=False):
            raise DataError("The model is being reloaded already. Wait for it.")
        try:
            self._replace(self._verify)
            return self._current
        finally:
            self._reloading.release()

    def _replace(self, verify: bool) -> None:
        old, self._current = self._current, self._open(verify)
        Thread(target=old.explainer.close, daemon=True).start()

    def _open(self, verify: bool) -> Served:
        run = self.folder.resolve()  # links are followed once: the next version does not change this one's files
        labels = self.labels.resolve() if self.labels else None
        model = merit.load(run, labels, verify)
        return Served(
            model=model,
            name=self.folder.name,
            opened=now(),
            explainer=Explainer(model.artifact.path, labels, model.artifact.manifest.hash, self._seconds),
            run=run,
        )
