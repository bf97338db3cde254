"""What a text means to a model: one of its labels, a phrase that is none, or something that may not be asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl
from safetensors.numpy import load_file

from merit.core import console
from merit.core.artifacts import Artifact
from merit.core.errors import DataError, PolicyError
from merit.core.seeds import stream
from merit.core.types import Floats, Ints, LabelEncoder
from merit.labels import encoders, policy
from merit.labels.mentions import Mentioned
from merit.labels.names import normalise
from merit.labels.space import LabelSpace
from merit.propensity import unseen_labels
from merit.retrieval.names import Names

LONGEST = 200  # characters of a phrase: an interest is a few words, and an encoder cuts what is longer
LONELY = 5  # percent of labels have no nearer neighbour than a phrase may be distant before we warn
ASKED = 256  # labels whose neighbours are looked up to learn what near is: encoders differ
MOST = 0.5  # of a phrase's weight in a title, from which the product counts as one that names it


@dataclass(frozen=True)
class Interest:
    """What was asked for, and how well the model knows it."""

    text: str
    label: int
    """Its number in the label space; -1 for a phrase that is no label."""
    vector: Floats
    nearest: str
    """The known label closest in meaning: the label itself where it is one."""
    similarity: float
    far: bool
    """Whether the model has seen nothing like it, so that its scores are hardly more than a guess."""
    named: Mentioned | None = None
    """The products that name a phrase, or a label that is newer than the model."""

    @property
    def products(self) -> int:
        """How many products have most of it in their titles; 0 for a label that training saw."""
        return 0 if self.named is None else int((self.named.weights >= MOST).sum())


class Meanings:
    """Tells what texts mean. Encoder, policy and vectors are read when a text first needs them."""

    def __init__(
        self,
        labels: LabelSpace,
        folder: Artifact,
        trained: int,
        catalogue: Callable[[], unseen_labels.Catalogue],
        vectors: Callable[[Ints], Floats],
    ) -> None:
        """`folder` is that of the labels, of which the first so many were `trained`.

        `vectors` are (n, text + own) of labels. The catalogue is asked for only by what it must speak for.
        """
        self.labels, self._folder, self._trained = labels, folder, trained
        self._catalogue, self._vectors = catalogue, vectors

    def of(self, text: str) -> Interest:
        """Blocked interests, and paraphrases of them, are refused."""
        if not isinstance(text, str) or not text.strip():
            raise DataError("An interest is a label or a phrase of a few words; this one is empty.")
        if len(text) > LONGEST:
            raise DataError(f"An interest has at most {LONGEST} characters; this one has {len(text):,}. Shorten it.")
        [number] = self.find([text]).tolist()
        return self._listed(number) if number >= 0 else self._phrase(text)

    def find(self, texts: Sequence[str]) -> Ints:
        """As `labels.find`, without reading all labels for it."""
        rows = self._names.find(pl.Series([normalise(text) for text in texts], dtype=pl.String))
        return np.where(rows >= 0, self._numbers[rows], -1)

    @cached_property
    def _names(self) -> Names:
        return Names.of(self.labels.aliases["key"])

    @cached_property
    def _numbers(self) -> Ints:
        """Beside the aliases."""
        return self.labels.aliases["id"].to_numpy().astype(np.int64)

    @cached_property
    def text_vectors(self) -> Floats:
        """By label."""
        return np.asarray(load_file(self._folder.file("vectors.safetensors"))["vectors"], np.float32)

    @cached_property
    def named_later(self) -> list[Mentioned]:
        """The products that name or carry each of the labels that are newer than the model."""
        later = range(self._trained, len(self.labels))
        return [self._catalogue().naming(self.labels.texts[label], label) for label in later]

    def _listed(self, number: int) -> Interest:
        row = self.labels.table.row(number, named=True)
        if row["status"] == "blocked":
            raise PolicyError(f"'{row['text']}' is blocked by the sensitive-interest policy (docs/policy.md).")
        if row["status"] == "retired":
            raise DataError(f"'{row['text']}' is retired. Choose a live interest, or add it under another name.")
        vector = self._vectors(np.array([number]))[0]
        named = self.named_later[number - self._trained] if number >= self._trained else None
        return Interest(row["text"], number, vector, row["text"], 1.0, far=False, named=named)

    def _phrase(self, text: str) -> Interest:
        vector = self._encoder.encode([text])[0]
        self._require_allowed(text, vector)
        known = np.flatnonzero(self.labels.live_mask())
        cosines = self.text_vectors[known] @ vector
        best = int(cosines.argmax())
        nearest, similarity = self.labels.table["text"][int(known[best])], float(cosines[best])
        named = self._catalogue().naming(text)
        labels, weights = self._catalogue().labels_of(named)
        seen = labels < self._trained
        own = unseen_labels.mean_factors(weights[seen], self._vectors(labels[seen])[:, len(vector) :])
        far = similarity < self._near
        if far:
            console.warn(
                f"'{text}' is far from every interest the model knows (nearest: '{nearest}', similarity "
                f"{similarity:.2f}): take its scores as a guess.",
                interest=text,
            )
        return Interest(text, -1, np.concatenate([vector, own]), nearest, similarity, far, named)

    def _require_allowed(self, text: str, vector: Floats) -> None:
        [verdict] = policy.judge([text], self._encoder, self._rules, vector[None], self._anchors)
        if verdict:
            raise PolicyError(
                f"'{text}' is blocked by the sensitive-interest policy: {verdict.category}, like '{verdict.matched}'. "
                "See docs/policy.md."
            )

    @cached_property
    def _encoder(self) -> LabelEncoder:
        return encoders.make(self._folder.manifest.config["encoder"])

    @cached_property
    def _rules(self) -> policy.Policy:
        return policy.load(self._folder.file("policy.toml"))

    @cached_property
    def _anchors(self) -> policy.Anchors:
        return policy.anchor(self._rules, self._encoder)

    @cached_property
    def _near(self) -> float:
        """How similar a phrase must be to some label: as nearly all labels are to their nearest neighbour."""
        live = np.flatnonzero(self.labels.live_mask())
        some = stream(0, "neighbours").permutation(live)[:ASKED]
        cosines = self.text_vectors[some] @ self.text_vectors[live].T
        cosines[some[:, None] == live] = -1
        return float(np.percentile(cosines.max(axis=1), LONELY))
