"""What a text stands for in a model: one of its labels, a phrase that is none, or something the policy blocks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl
from safetensors.numpy import load_file

from merit.core import console, files
from merit.core.artifacts import Artifact
from merit.core.errors import DataError, PolicyError
from merit.core.ragged import Ragged
from merit.core.seeds import stream
from merit.core.types import Floats, LabelEncoder
from merit.labels import encoders, policy, space
from merit.labels.mentions import Mentioned, Mentions
from merit.labels.space import LabelSpace
from merit.propensity import unseen_labels
from merit.propensity.unseen_labels import Catalogue
from merit.retrieval.store import Rows
from merit.retrieval.users import sales

LONGEST = 200  # characters of a phrase: an interest is a few words, and an encoder cuts what is longer
NEAR_PERCENTILE = 5  # percent of labels have no nearer neighbour than a phrase may be distant before we warn
SAMPLED = 256  # labels whose neighbours are looked up to learn what near is: encoders differ
MOST = 0.5  # of a phrase's weight in a title, from which the product counts as one that names it


@dataclass(frozen=True)
class Interest:
    """A label or phrase, its vector, and how well the model knows it."""

    text: str
    label: int
    """Its number in the label space; -1 for a phrase that is no label."""
    vector: Floats
    nearest: str
    """The most similar label: the label itself where it is one."""
    similarity: float
    far: bool
    """Whether the model has seen nothing similar, so that its scores are hardly more than a guess."""
    named: Mentioned | None = None
    """The products that name a phrase, or a label that is newer than the model."""

    @property
    def products(self) -> int:
        """How many products have most of it in their titles; 0 for a label that training saw."""
        return 0 if self.named is None else int((self.named.weights >= MOST).sum())


class QueryResolver:
    """Resolves texts. Encoder, policy, vectors and catalogue are read when a text first needs them."""

    def __init__(self, model: Artifact, labels: LabelSpace, label_artifact: Artifact) -> None:
        """`labels` and their artifact may be a later version of the model's label space."""
        self.labels, self.trained = labels, int(model.manifest.summary["labels"])
        self._model, self._artifact = model, label_artifact
        if len(labels) < self.trained:
            raise DataError(
                f"{label_artifact.path} has {len(labels):,} labels, the model {self.trained:,}. A later version of "
                "the label space only adds labels: choose one that descends from the model's."
            )

    def resolve(self, text: str, vectors: Rows) -> Interest:
        """What a text stands for; `vectors` are the label vectors. Blocked ones and paraphrases of them are refused."""
        if not isinstance(text, str) or not text.strip():
            raise DataError("An interest is a label or a phrase of a few words; this one is empty.")
        if len(text) > LONGEST:
            raise DataError(f"An interest has at most {LONGEST} characters; this one has {len(text):,}. Shorten it.")
        [number] = self.labels.find([text]).tolist()
        return self._label(number, vectors) if number >= 0 else self._phrase(text, vectors)

    @cached_property
    def text_vectors(self) -> Floats:
        """By label."""
        with files.opening(self._artifact.path):
            return np.asarray(load_file(self._artifact.file("vectors.safetensors"))["vectors"], np.float32)

    @cached_property
    def catalogue(self) -> Catalogue:
        """The items of the model, with their labels in this space."""
        items = pl.read_parquet(self._model.file("items.parquet"), columns=["item", "title", "tags"])
        labels = Ragged(*space.item_labels(self.labels, items))
        return Catalogue(Mentions.of(items["title"]), labels, sales(self._model.file("users.parquet"), len(labels)))

    @cached_property
    def named_later(self) -> list[Mentioned]:
        """The products that name or carry each of the labels that are newer than the model."""
        later = range(self.trained, len(self.labels))
        return [self.catalogue.naming(self.labels.texts[label], label) for label in later]

    def grown(self, vectors: Rows) -> Floats:
        """(labels, text + R): the stored label vectors, and those of labels that a later version has added.

        A label that was renamed is scored by its new text, without factors.
        """
        grown, texts = vectors.take(np.arange(self.trained)), self.text_vectors
        width = texts.shape[1]
        padding = ((0, 0), (0, grown.shape[1] - width))
        changed = (grown[:, :width] != texts[: self.trained]).any(axis=1)
        grown[changed] = np.pad(texts[: self.trained][changed], padding)
        added = np.pad(texts[self.trained :], padding)
        for row, named in zip(added, self.named_later, strict=True):
            row[width:] = self._factors(named, Rows(grown), width)
        return np.concatenate([grown, added])

    def _factors(self, named: Mentioned, vectors: Rows, width: int) -> Floats:
        """(R,): the factors of what these products name, from those of their labels behind `width` numbers of text."""
        labels, weights = self.catalogue.labels_of(named)
        seen = labels < self.trained
        return unseen_labels.mean_factors(weights[seen], vectors.take(labels[seen])[:, width:])

    def _label(self, number: int, vectors: Rows) -> Interest:
        row = self.labels.table.row(number, named=True)
        if row["status"] == "blocked":
            raise PolicyError(f"'{row['text']}' is blocked by the sensitive-interest policy (docs/policy.md).")
        if row["status"] == "retired":
            raise DataError(f"'{row['text']}' is retired. Choose a live interest, or add it under another name.")
        named = self.named_later[number - self.trained] if number >= self.trained else None
        vector = vectors.take(np.array([number]))[0]
        return Interest(row["text"], number, vector, row["text"], 1.0, far=False, named=named)

    def _phrase(self, text: str, vectors: Rows) -> Interest:
        vector = self._encoder.encode([text])[0]
        [reason] = policy.judge([text], vector[None], self._anchors)
        if reason:
            raise PolicyError(
                f"'{text}' is blocked by the sensitive-interest policy: {reason.category}, like '{reason.matched}'. "
                "See docs/policy.md."
            )
        live = np.flatnonzero(self.labels.live_mask())
        cosines = self.text_vectors[live] @ vector
        best = int(cosines.argmax())
        nearest, similarity = self.labels.table["text"][int(live[best])], float(cosines[best])
        named = self.catalogue.naming(text)
        extended = np.concatenate([vector, self._factors(named, vectors, len(vector))])
        far = similarity < self._near
        if far:
            console.warn(
                f"'{text}' is far from every interest the model knows (nearest: '{nearest}', similarity "
                f"{similarity:.2f}): take its scores as a guess.",
                interest=text,
            )
        return Interest(text, -1, extended, nearest, similarity, far, named)

    @cached_property
    def _encoder(self) -> LabelEncoder:
        return encoders.make_light(self._artifact.manifest.config["encoder"])

    @cached_property
    def _anchors(self) -> policy.Anchors:
        return policy.anchor(policy.load(self._artifact.file("policy.toml")), self._encoder)

    @cached_property
    def _near(self) -> float:
        """How similar a phrase must be to some label: as similar as most labels are to their nearest neighbour."""
        live = np.flatnonzero(self.labels.live_mask())
        sample = stream(0, "neighbours").permutation(live)[:SAMPLED]
        cosines = self.text_vectors[sample] @ self.text_vectors[live].T
        cosines[sample[:, None] == live] = -1
        return float(np.percentile(cosines.max(axis=1), NEAR_PERCENTILE))
