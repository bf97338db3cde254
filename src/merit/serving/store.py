"""The model that is being served, and how the next one takes its place.

A request takes the model that is current when it begins and keeps it to its end; a new one is opened beside it and then
becomes current. Nothing waits, and nothing is dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock, Thread

import merit
from merit import artifacts
from merit.artifacts import Artifact
from merit.errors import DataError
from merit.model import Interest, Model
from merit.serving.explainer import Explainer


@dataclass(frozen=True)
class Served:
    model: Model
    name: str
    opened: str
    explainer: Explainer
    run: Path
    """The folder that was asked for: beside the model, it may hold the run's other artifacts."""
    _encoding: Lock = field(default_factory=Lock)

    @property
    def version(self) -> str:
        """Changes whenever an answer could."""
        return f"{self.model.artifact.manifest.hash[:16]}-{self.model.labels.version}"

    @contextmanager
    def reading(self, texts: Iterable[str]) -> Iterator[Model]:
        """The model, for a question with these interests: phrases go through the encoder one at a time.

        Its tokenizer is shared, and refuses to be used by two threads at once.
        """
        wanted = list(texts)
        if wanted and (self.model.labels.find(wanted) < 0).any():
            with self._encoding:
                yield self.model
        else:
            yield self.model

    def interest(self, text: str) -> Interest:
        with self.reading([text]) as model:
            return model.interest(text)

    def knows(self, user: str) -> bool:
        return bool((self.model.users["user_id"] == user).any())

    def row(self, user: str) -> int:
        """Where a user that is known stands among all."""
        return int((self.model.users["user_id"] == user).arg_max() or 0)

    def beside(self, kind: str) -> Artifact | None:
        """The artifact of this kind that the model was made from, if the folder that is served still has it."""
        place, parent = self.run / kind, self.model.artifact.manifest.parents[kind]
        if not (place / artifacts.MANIFEST).exists():
            return None
        found = artifacts.load(place, kind, verify=False)
        return found if found.manifest.hash == parent.hash else None


class Store:
    def __init__(self, folder: Path, labels: Path | None, verify: bool, seconds_to_explain: float) -> None:
        self.folder, self.labels, self._verify = folder, labels, verify
        self._seconds = seconds_to_explain
        self._reloading = Lock()
        self.current = self._open()

    def reload(self) -> Served:
        """Open what is now in the folder (or behind the link) and serve it. If it is no good, the old one stays."""
        if not self._reloading.acquire(blocking=False):
            raise DataError("The model is being reloaded already. Wait for it.")
        try:
            old, self.current = self.current, self._open()
            Thread(target=old.explainer.close, daemon=True).start()
            return self.current
        finally:
            self._reloading.release()

    def _open(self) -> Served:
        place = self.folder.resolve()  # links are followed once: the next version does not change this one's files
        labels = self.labels.resolve() if self.labels else None
        model = merit.load(place, labels, self._verify)
        return Served(
            model=model,
            name=self.folder.name,
            opened=datetime.now(UTC).isoformat(timespec="seconds"),
            explainer=Explainer(model.artifact.path, labels, model.artifact.manifest.hash, self._seconds),
            run=place,
        )
