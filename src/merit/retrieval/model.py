"""A trained model in the hands of a person: interests for a user, users for an interest, and why.

    model = merit.load("runs/demo/model")
    model.interests("1042", k=10)                  # user_id, rank, interest, probability, vertical
    model.audience("trail running", n=500)         # user_id, rank, probability: a label, or any phrase
    model.score(["1042", "7"], ["trail running"])  # every pair
    model.explain("1042", "trail running")         # which purchases carry that probability

Answers are polars frames (`.to_pandas()` makes the other kind). Users and interests may come as lists, numpy arrays,
pandas or polars columns. Nothing here trains; torch is loaded only for a phrase that is no label, and to explain.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from safetensors.numpy import load_file

from merit.core import artifacts
from merit.core.artifacts import Artifact
from merit.core.errors import DamagedArtifact, DataError, MissingArtifact
from merit.core.ragged import Ragged
from merit.core.seeds import stream
from merit.core.types import Floats, Ints
from merit.evaluation.predictions import select
from merit.labels import space
from merit.labels.mentions import Mentions
from merit.labels.space import LabelSpace
from merit.privacy.hidden import Hidden, Purged
from merit.propensity import unseen_labels
from merit.propensity.calibration import CalibrationCurve
from merit.retrieval import additions, diversity, mlp, shortlist, store, topk, verticals
from merit.retrieval.exact import Doubles, Exact
from merit.retrieval.over_index import Histories
from merit.retrieval.query import Interest, Meanings
from merit.retrieval.repeats import Repeats
from merit.retrieval.scorer import Lists, Scorer
from merit.retrieval.store import Side
from merit.retrieval.threads import each, spans
from merit.retrieval.topk import Ranked
from merit.retrieval.users import People, Visible, sold

PEOPLE = 2_048  # users whose lists are told together
PART = 65_536  # scores made probabilities by one thread
AHEAD = 10  # times k labels are ranked before a list is spread over regions


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
    Without `users` it knows nobody, and takes no memory for them: `Model.for_users` brings those who are asked about.
    """
    place = Path(folder)
    if not (place / artifacts.MANIFEST).exists() and (place / "model" / artifacts.MANIFEST).exists():
        place = place / "model"
    if not place.exists():
        raise MissingArtifact(f"There is no folder {place}. Make a model with `merit run CONFIG`.")
    artifact = artifacts.load(place, "model", verify=verify)
    newer = artifacts.load(Path(labels), "labels", verify=verify) if labels else None
    return Model(artifact, newer, threads, users)


class Model:
    """A trained model and the users it knows; `merit.load` opens one."""

    def __init__(
        self, artifact: Artifact, newer: Artifact | None = None, threads: int | None = None, users: bool = True
    ) -> None:
        self.artifact = artifact
        self._labels = newer or artifacts.load(artifact.file("labels"), "labels", verify=False)
        self.labels: LabelSpace = space.load(self._labels.path)
        self._trained: int = artifact.manifest.summary["labels"]
        self._require_descendant()
        self._hidden, self._purged = Hidden(artifact.path.parent), Purged(artifact)
        arrays = load_file(artifact.file("mlp.safetensors"))
        if missing := {"repeat", "repeat_labels"} - set(arrays):
            raise DamagedArtifact(
                f"{artifact.path} has no {', '.join(sorted(missing))}: another version of merit made it. Make it again "
                "with `merit run CONFIG`."
            )
        first, often, share = arrays["repeat"].astype(np.float64).tolist()
        of_label = arrays["repeat_labels"].astype(np.float64)
        of_label = np.pad(of_label, (0, len(self.labels) - len(of_label)))  # zero for labels added later
        self._again = (first, often, share), of_label
        self._meanings = Meanings(
            self.labels,
            self._labels,
            self._trained,
            lambda: self._catalogue,
            self.label_vectors,
        )
        weights = mlp.load(arrays)
        exact = Exact.of(weights)
        people, interests = (store.read(artifact.file(name), layer) for name, layer in _sides(exact))
        self._scorer = Scorer(weights, people, self._grown(interests, exact) if newer else interests, threads)
        curve = artifact.file("propensity") / "calibration.json"
        self._calibration = CalibrationCurve(**json.loads(curve.read_text(encoding="utf-8")))
        self._know(People.of(pl.read_parquet(artifact.file("users.parquet"), n_rows=None if users else 0)))

    def _know(self, people: People) -> None:
        self._people, self._visible = people, people.without(frozenset())
        self._repeats = self._with_added(Repeats.of(people.had, people.times, *self._again))
        self._histories = Histories(people.had, len(self.labels))

    def for_users(self, users: pl.DataFrame) -> Model:
        """The same model of some of its users, rows of `stored_users`: what it takes is theirs, and not everybody's."""
        part = copy(self)
        part._scorer = self._scorer.of_users(users["row"].to_numpy())
        part._know(People.of(users.drop("row")))
        return part

    def stored_users(self) -> pl.DataFrame:
        """`users`, and `row`, where each is stored: what another process needs to make a model `for_users`."""
        visible = self.visible()
        return visible.users.with_columns(row=pl.Series(visible.rows))

    def __repr__(self) -> str:
        return f"<merit model: {len(self._people):,} users, {self.live:,} interests, {self.artifact.path}>"

    @property
    def hashes(self) -> tuple[str, str]:
        """Of the model and of its label space: together they decide every answer."""
        return self.artifact.manifest.hash, self._labels.manifest.hash

    @property
    def users(self) -> pl.DataFrame:
        """user_id, history, counts, items of everyone who may be told of."""
        return self.visible().users

    def visible(self) -> Visible:
        """Who may be told of at this moment: an erasure counts from the next question on, in every process."""
        hidden = self._hidden.users()  # before the look at the folder: the list goes only when that has changed
        if self.outdated:
            raise DataError(f"Users were erased from {self.artifact.path} since it was opened. Open it again.")
        if hidden != self._visible.hidden:
            self._visible = self._people.without(hidden)
        return self._visible

    def has_user(self, user: str) -> bool:
        """Whether it may tell of this user."""
        return bool(self._places([user])[0] >= 0)

    @property
    def outdated(self) -> bool:
        """Whether users were erased since it was opened, so that it must be opened again."""
        return self._purged.since()

    def interests(self, users: Any, k: int = 10, diverse_regions: bool = False) -> pl.DataFrame:
        """The k most likely interests of each user; with `diverse_regions`, of as many regions as there are."""
        rows, live = self._rows(users), self.live_labels(k)
        clusters = self.labels.table["cluster"].to_numpy()
        found = self._lists(rows, min(k * AHEAD, self.live) if diverse_regions else k, live)
        ranked = [one for lists in found for one in _one_by_one(lists)]
        return self._told(rows, [diversity.spread(one, clusters, k) for one in ranked] if diverse_regions else ranked)

    def all_interests(self, k: int = 10, regions: int | None = None) -> Iterator[pl.DataFrame]:
        """The same for all users, some thousands at a time, so that a list of millions never stands in memory.

        With `regions`, only labels of so many clusters are scored for each user, those whose first label suits them
        best: far fewer products where labels are many. `shortlist_recall` measures what that loses.
        """
        users = self.users["user_id"]
        for span in spans(len(users), PEOPLE):
            yield self.ranked(users[span.start : span.stop], k, regions)

    def ranked(self, users: Any, k: int, regions: int | None = None) -> pl.DataFrame:
        """The k most likely interests of each user, of all labels or, as in `all_interests`, of some regions."""
        rows = self._rows(users)
        found = self._lists(rows, k, self.live_labels(k), regions)
        return self._told(rows, [one for lists in found for one in _one_by_one(lists)])

    def shortlist_recall(self, k: int, regions: int, users: int = 500) -> float:
        """The share of the k best interests of some users that a search in so many regions finds."""
        rows, live = np.sort(stream(0, "shortlist").permutation(self.visible().rows)[:users]), self.live_labels(k)
        exact, short = (
            np.concatenate([_pairs(lists, len(self.labels)) for lists in self._lists(rows, k, live, how)])
            for how in (None, regions)
        )
        return float(np.isin(exact, short).mean())

    def live_labels(self, k: int) -> NDArray[np.bool_]:
        """The live labels, of which there must be k."""
        topk.require_count(k, "labels")
        if k > self.live:
            raise DataError(f"There are {self.live:,} live interests; ask for no more than that (k = {k:,}).")
        return self._live

    @cached_property
    def live(self) -> int:
        """How many interests can be told of."""
        return int(self._live.sum())

    @cached_property
    def _live(self) -> NDArray[np.bool_]:
        return self.labels.live_mask()

    def _told(self, rows: Ints, found: list[Ranked]) -> pl.DataFrame:
        """Ranked labels of these users, in words."""
        labels = np.concatenate([each.rows for each in found]) if found else np.zeros(0, np.int64)
        scores = np.concatenate([each.scores for each in found]) if found else np.zeros(0)
        owner = np.repeat(np.arange(len(rows)), [len(each.rows) for each in found])
        table = self.labels.table.select(interest="text", vertical="vertical")[labels]
        return pl.DataFrame(
            {
                "user_id": self._people.table["user_id"].gather(rows[owner]),
                "rank": np.concatenate([np.arange(1, len(each.rows) + 1) for each in found]) if found else [],
                "interest": table["interest"],
                "probability": self._calibration.probability(scores),
                "vertical": table["vertical"],
            }
        )

    def audience(self, interest: str | Interest, n: int = 100, among: Any = None) -> pl.DataFrame:
        """The n users most likely to want an interest, of all or `among` some."""
        topk.require_count(n, "users")
        wanted = self.interest(interest)
        everybody = self.visible().rows
        eligible = None
        if among is not None or len(everybody) < len(self._people):
            eligible = np.zeros(len(self._people), dtype=bool)
            eligible[everybody if among is None else self._rows(among)] = True
        if n > len(everybody):
            raise DataError(f"There are {len(everybody):,} users; ask for no more than that (n = {n:,}).")
        found = self._best_users(wanted, n, eligible)
        return self.probabilities(*found).insert_column(1, pl.Series("rank", np.arange(1, len(found.rows) + 1)))

    def audiences(self, labels: Ints, users: Any, n: int) -> Iterator[Ranked]:
        """For each label of the space in turn, the n most likely of these users: `probabilities` names them.

        Many labels share every pass over the users. Where there are fewer than n users, all of them are ranked.
        """
        topk.require_count(n, "users")
        rows = np.sort(self._rows(users))
        had, vectors = self._repeats.among(rows), self.label_vectors(labels)
        counts = [n + additions.ahead(had.users_with(label)[1]) for label in labels.tolist()]
        ranked = self._scorer.audiences(vectors, counts, rows)
        for label, vector, dense in zip(labels.tolist(), vectors, ranked, strict=True):
            yield self._merged(dense, vector, *had.users_with(label), n)

    def probabilities(self, rows: Ints, scores: Doubles) -> pl.DataFrame:
        """user_id and probability: stored users and their scores in words."""
        return pl.DataFrame(
            {
                "user_id": self._people.table["user_id"].gather(rows),
                "probability": self._calibration.probability(scores),
            }
        )

    def audience_scores(self, interest: str | Interest, exact: bool = False) -> Doubles:
        """The probability of all users, those who are hidden included: `visible().rows` are the others.

        From scores in float32, right to about six digits; or `exact`, as all other answers, in ten times the time.
        """
        wanted = self.interest(interest)
        had, added = self._having(wanted)
        scores = self._scorer.user_scores(wanted.vector, exact).astype(np.float64)
        scores[had] += added
        parts = each(
            lambda span: self._calibration.probability(scores[span.start : span.stop]),
            spans(len(scores), PART),
            self._scorer.threads,
        )
        return np.concatenate(parts)

    def score(self, users: Any, interests: Any) -> pl.DataFrame:
        """The probability of every pair."""
        rows, wanted = self._rows(users), [self.interest(each) for each in _texts(interests, "interests")]
        scores = np.stack([self._against(rows, each) for each in wanted], axis=1)
        texts = pl.Series("interest", [each.text for _ in rows for each in wanted])
        return self.probabilities(np.repeat(rows, len(wanted)), scores.ravel()).insert_column(1, texts)

    def score_pairs(self, users: Any, interests: Any) -> pl.DataFrame:
        """The probability of the first user for the first interest, of the second for the second, and so on."""
        rows, texts = self._rows(users), _texts(interests, "interests")
        if len(rows) != len(texts):
            raise DataError(f"{len(rows):,} users and {len(texts):,} interests are not pairs. Give as many of each.")
        scores = np.empty(len(rows))
        for text in dict.fromkeys(texts):
            own = np.array([each == text for each in texts])
            scores[own] = self._against(rows[own], self.interest(text))
        return self.probabilities(rows, scores).insert_column(1, pl.Series("interest", texts))

    def card(self) -> str:
        """The model card: what the model was made from, how good it is, and what not to use it for."""
        return self.artifact.file("README.md").read_text(encoding="utf-8")

    def verticals(self, users: Any) -> pl.DataFrame:
        """How many interests of each vertical a user is expected to have, from scores in float32."""
        rows = self._rows(users)
        live = np.flatnonzero(self._live)
        shares = load_file(self.artifact.file("verticals.safetensors"))["shares"]
        known = live[live < len(shares)]  # where the items of a label added later are is not known yet
        scores = self._scorer.label_scores(rows)[:, known].astype(np.float64)
        had, added = self._repeats.had.gather(rows), self._repeats.of_users(rows)
        place = np.full(len(self.labels), -1)
        place[known] = np.arange(len(known))
        owner, column = np.repeat(np.arange(len(rows)), had.lengths()), place[had.values]
        scores[owner[column >= 0], column[column >= 0]] += added[column >= 0]
        likely = self._calibration.probability(scores)
        totals = verticals.roll_up(likely, shares[known].astype(np.float64))
        names = json.loads(self.artifact.file("verticals.json").read_text(encoding="utf-8"))
        return pl.DataFrame(
            {
                "user_id": self._people.table["user_id"].gather(np.repeat(rows, len(names))),
                "vertical": names * len(rows),
                "expected": totals.ravel(),
            }
        ).sort("user_id", "expected", descending=[False, True])

    def over_indexed(self, users: Any, k: int = 20, at_least: int = 1) -> pl.DataFrame:
        """What these users, `at_least` so many of them, had more often than all users.

        The share who had a label here, there, and the ratio.
        """
        return self.over_indexed_rows(np.unique(self._rows(users)), k, at_least)

    def over_indexed_rows(self, rows: Ints, k: int = 20, at_least: int = 1) -> pl.DataFrame:
        """The same for different users told by where they are stored, as `visible().rows` tells."""
        found = self._histories.over_indexed(rows, self._live, k, at_least)
        texts = self.labels.table["text"].gather(found.labels)
        return pl.DataFrame({"interest": texts, "share": found.share, "base": found.base, "index": found.index})

    def explain(self, user: str, interest: str, k: int = 10) -> pl.DataFrame:
        """Which events of a user carry the probability of an interest: it is computed again without each of them.

        `probability` is what is left without the item, `effect` what it adds in log-odds.
        """
        from merit.retrieval.explain import leave_one_out

        row = int(self._rows([user])[0])
        wanted = self.interest(interest)
        items = self._people.bought[row]
        vectors, distinct, times, totals = leave_one_out(self.artifact, self._labels, items, wanted.label)
        exact = self._scorer.exact
        scores = exact.scores(exact.users.halves(vectors), exact.labels.halves(wanted.vector[None])[0])
        if (named := wanted.named) is not None:
            says = np.zeros(len(self._catalogue.labels))
            says[named.items] = named.weights
            times = np.array([says[items].sum(), *(says[items[items != item]].sum() for item in distinct)])
        of_label = self._repeats.of_label[wanted.label] if wanted.label >= 0 else 0.0
        scores = scores + self._repeats.added(times, np.maximum(totals, 1), of_label)
        names = pl.read_parquet(self.artifact.file("items.parquet"), columns=["item_id", "title"])
        table = pl.DataFrame(
            {
                "item_id": names["item_id"].gather(distinct),
                "title": names["title"].gather(distinct),
                "times": np.array([int((items == item).sum()) for item in distinct.tolist()]),
                "effect": scores[0] - scores[1:],
                "probability": self._calibration.probability(scores[1:]),
            }
        )
        return table.sort("effect", "item_id", descending=[True, False]).head(k)

    def interest(self, text: str | Interest) -> Interest:
        """What a text means to this model. Blocked interests, and paraphrases of them, are refused."""
        return text if isinstance(text, Interest) else self._meanings.of(text)

    def are_labels(self, texts: Sequence[str]) -> bool:
        """Whether all of them are labels, so that none has to be encoded."""
        return bool((self._meanings.find(texts) >= 0).all())

    def label_vectors(self, numbers: Ints) -> Floats:
        """(n, text + own): what the model knows of these labels of its space."""
        return self._scorer.labels.vectors.take(numbers)

    def _having(self, wanted: Interest) -> tuple[Ints, Doubles]:
        """The users who had it, or products that name it, and what that adds to their scores."""
        if wanted.label >= 0:
            return self._repeats.users_with(wanted.label)
        assert wanted.named is not None
        found = unseen_labels.count_mentions(self._people.bought, [wanted.named], len(self._catalogue.labels))
        return found.users, self._repeats.added(found.times, self._repeats.totals[found.users], 0.0)

    def _with_added(self, repeats: Repeats) -> Repeats:
        """Labels that are newer than the model were had by those who had products that name them."""
        if not self._meanings.named_later:
            return repeats
        found = unseen_labels.count_mentions(
            self._people.bought, self._meanings.named_later, len(self._catalogue.labels)
        )
        return repeats.also(found.users, found.labels + self._trained, found.times)

    @cached_property
    def _catalogue(self) -> unseen_labels.Catalogue:
        items = pl.read_parquet(self.artifact.file("items.parquet"), columns=["item", "title", "tags"])
        labels = Ragged(*space.item_labels(self.labels, items))
        bought = sold(self.artifact.file("users.parquet"), len(labels))
        return unseen_labels.Catalogue(Mentions.of(items["title"]), labels, bought)

    def _against(self, rows: Ints, wanted: Interest) -> Doubles:
        """The scores of some users for one interest."""
        added = np.zeros(len(self._people))
        had, adds = self._having(wanted)
        added[had] = adds
        return self._scorer.against(rows, wanted.vector) + added[rows]

    def _best_users(self, wanted: Interest, n: int, eligible: NDArray[np.bool_] | None) -> Ranked:
        had, added = self._having(wanted)
        if eligible is not None:
            had, added = had[eligible[had]], added[eligible[had]]
        dense = self._scorer.audience(wanted.vector, min(n + additions.ahead(added), len(self._people)), eligible)
        return self._merged(dense, wanted.vector, had, added, n)

    def _merged(self, dense: Ranked, vector: Floats, had: Ints, added: Doubles, n: int) -> Ranked:
        """The n best users once those who had the label of this vector have their additions."""
        return additions.merged(dense, had, self._scorer.against(had, vector), added, n)

    def _lists(self, rows: Ints, k: int, live: NDArray[np.bool_], regions: int | None = None) -> Iterator[Lists]:
        most = int(live.sum())
        more = additions.ahead(self._repeats.of_users(rows)) and int(self._repeats.had.lengths()[rows].max())
        for dense in self._dense(rows, min(k + more, most), live, regions):
            had, added = self._repeats.had.gather(dense.users), self._repeats.of_users(dense.users)
            alive = live[had.values]
            kept = select(had, alive)
            pairs = np.repeat(dense.users, kept.lengths()), kept.values.astype(np.int64)
            scores = self._scorer.score(*pairs)
            yield additions.merged_lists(dense, kept, scores, added[alive], k, len(self.labels))

    def _dense(self, rows: Ints, k: int, live: NDArray[np.bool_], regions: int | None) -> Iterator[Lists]:
        """What the network alone ranks first, of all labels or of those in each user's regions."""
        if regions is None:
            return self._scorer.all_interests(k, rows, live)
        clusters = self.labels.table["cluster"].to_numpy()
        candidates = shortlist.of_regions(self._scorer, rows, clusters, regions, live)
        return shortlist.interests(self._scorer, rows, candidates, k, live)

    def _grown(self, old: Side, exact: Exact) -> Side:
        """The stored interests, and those that a later version of the label space has behind them."""
        trained, texts = self._trained, self._meanings.text_vectors
        kept = old.vectors.take(slice(0, trained))
        width = texts.shape[1]
        changed = (kept[:, :width] != texts[:trained]).any(axis=1)  # renamed: the new name speaks, with no own numbers
        kept[changed] = np.pad(texts[:trained][changed], ((0, 0), (0, kept.shape[1] - width)))
        added = np.pad(texts[trained:], ((0, 0), (0, kept.shape[1] - width)))
        for row, named in zip(added, self._meanings.named_later, strict=True):
            labels, weights = self._catalogue.labels_of(named)
            row[width:] = unseen_labels.mean_factors(weights[labels < trained], kept[labels[labels < trained], width:])
        return store.hold("interests", np.concatenate([kept, added]), exact.labels)

    def _require_descendant(self) -> None:
        if len(self.labels) < self._trained:
            raise DataError(
                f"{self._labels.path} has {len(self.labels):,} labels, the model {self._trained:,}. A later version of "
                "the label space only adds labels: choose one that descends from the model's."
            )

    def _rows(self, users: Any) -> Ints:
        wanted = _texts(users, "users")
        rows = self._places(wanted)
        if len(missing := np.flatnonzero(rows < 0)):
            raise DataError(
                f"{len(missing):,} users are unknown to this model, such as '{wanted[missing[0]]}'. It knows users "
                "with enough history at the end of its data; see users.parquet."
            )
        return rows

    def _places(self, users: list[str]) -> Ints:
        """Where these users are stored; -1 for those who may not be told of."""
        known, rows = self.visible(), self._people.names.find(pl.Series(users, dtype=pl.String))
        return rows if not known.hidden else np.where(np.isin(rows, known.rows), rows, -1)


def _one_by_one(lists: Lists) -> Iterator[Ranked]:
    for at in range(len(lists.users)):
        part = slice(lists.labels.offsets[at], lists.labels.offsets[at + 1])
        yield Ranked(lists.labels.values[part].astype(np.int64), lists.scores[part])


def _pairs(lists: Lists, n_labels: int) -> Ints:
    return np.repeat(lists.users, lists.labels.lengths()) * n_labels + lists.labels.values


def _sides(exact: Exact) -> list[tuple[str, Any]]:
    return [("users", exact.users), ("interests", exact.labels)]


def _texts(values: Any, what: str) -> list[str]:
    """A text, or any column of texts."""
    if isinstance(values, str):
        return [values]
    if hasattr(values, "to_list"):  # pandas and polars
        values = values.to_list()
    elif hasattr(values, "tolist"):  # numpy
        values = values.tolist()
    if not isinstance(values, Iterable):
        raise DataError(f"Give {what} as a text or as a list of texts, not as {type(values).__name__}.")
    found = [str(value) for value in values]
    if not found:
        raise DataError(f"The list of {what} is empty.")
    return found
