"""A trained model: interests for a user, users for an interest, and the purchases that explain a score.

    model = merit.load("runs/demo/model")
    model.interests("1042", k=10)                  # user_id, rank, interest, probability, vertical
    model.audience("trail running", n=500)         # user_id, rank, probability: a label, or any phrase
    model.score(["1042", "7"], ["trail running"])  # every pair
    model.explain("1042", "trail running")         # which purchases carry that probability

Answers are polars frames, or pandas frames where the model was made from pandas or asked about new histories in it.
Users and interests may come as lists, numpy arrays, pandas or polars columns. Nothing here trains; torch is loaded only
for new histories and explanations of a model whose generator reads text, and for phrases of an encoder of your own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from copy import copy
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from safetensors.numpy import load_file

from merit.core import artifacts, files, ragged
from merit.core.artifacts import Artifact
from merit.core.errors import DataError
from merit.core.ragged import Ragged
from merit.core.seeds import stream
from merit.core.types import Floats, Ints
from merit.data import frames
from merit.labels import space
from merit.labels.space import LabelSpace
from merit.privacy.floor import require_enough_named
from merit.privacy.hidden import Hidden, Nobody, Purged
from merit.propensity import unseen_labels
from merit.propensity.calibration import CalibrationCurve
from merit.report.page import Page, Tile, count, summary_html
from merit.retrieval import diversity, repeats, store, topk, verticals
from merit.retrieval.encode import needs_torch, preset_of
from merit.retrieval.exact import Doubles, ScorerWeights, map_threads, spans
from merit.retrieval.histories import HistoryReader, NewUsers, open_reader, parse
from merit.retrieval.query import Interest, QueryResolver
from merit.retrieval.repeats import Added, Additions, Repeats, RepeatScorer
from merit.retrieval.scorer import Mask, Scorer
from merit.retrieval.topk import Ranked, RankedLists
from merit.retrieval.users import StoredUsers, VisibleUsers, texts_of
from merit.retrieval.windows import WindowQuery, WindowScorer, open_windows

USERS = 2_048  # whose lists are made together
PART = 65_536  # scores made probabilities by one thread
AHEAD = 10  # times k labels are ranked before a list is spread over regions


class Model:
    """A trained model and its users; `merit.load` opens one."""

    def __init__(
        self, artifact: Artifact, newer: Artifact | None = None, threads: int | None = None, users: bool = True
    ) -> None:
        self.artifact = artifact
        self.pandas = False
        """Whether answers are pandas frames, as the tables were that the model was made from or asked about."""
        self.folder: Any = None
        """A temporary folder that goes when nobody has the model any more."""
        self.rests_on: Any = None
        """Of new histories: user_id, rests_on (history, titles or popularity), events, known (items), read (titles)."""
        self._labels = newer or artifacts.load(artifact.file("labels"), "labels", verify=False)
        self.labels: LabelSpace = space.load(self._labels.path)
        self._live, self._clusters = self.labels.live_mask(), self.labels.table["cluster"].to_numpy()
        self._named = self.labels.table.select(interest="text", vertical="vertical")
        self._queries = QueryResolver(artifact, self.labels, self._labels)
        self._hidden, self._purged = Hidden(artifact.path.parent), Purged(artifact)
        arrays = load_file(artifact.file("mlp.safetensors"))
        self._repeat_weights = repeats.weights_of(arrays, len(self.labels))
        self._scorer = Scorer.read(
            ScorerWeights.of(arrays), artifact.file("users"), artifact.file("interests"), threads
        )
        if newer:
            vectors = self._queries.grown(self._scorer.labels.vectors)
            self._scorer.labels = store.hold("interests", vectors, self._scorer.exact.labels)
        curve = artifact.file("propensity") / "calibration.json"
        self._calibration = CalibrationCurve(**json.loads(curve.read_text(encoding="utf-8")))
        stored = pl.read_parquet(artifact.file("users.parquet"), n_rows=None if users else 0)
        self._set_users(StoredUsers.of(stored, len(self.labels)))

    def _set_users(self, users: StoredUsers) -> None:
        self.__dict__.pop("windows", None)  # of other users
        self._users, self._visible = users, users.without(frozenset())
        again = Repeats.of(users.history, users.times, *self._repeat_weights)
        if named := self._queries.named_later:  # labels newer than the model count by the products that name them
            counts = unseen_labels.count_mentions(users.items, named, len(self._queries.catalogue.labels))
            again = again.also(counts.users, counts.labels + self._queries.trained, counts.times)
        likely = self._users.likely
        self._ranking = RepeatScorer(
            self._scorer, Additions(again, likely.labels, likely.values.astype(np.float64), len(self.labels))
        )

    def with_histories(self, events: Any, users: Any = None) -> Model:
        """The same model over the users of these events, stored or not: it answers about them and nobody else.

        `events` is a table (polars, pandas, Arrow, DuckDB) of user_id, item_id or title, and timestamp; `users` names
        all who are answered about, those without any event too. `rests_on` tells what each answer rests on.
        """
        table, listed = parse(frames.polars(events)), None if users is None else texts_of(users, "users")
        return self._over(self._histories.read(table, listed), self.pandas or frames.is_pandas(events))

    def _over(self, new: NewUsers, pandas: bool) -> Model:
        part = copy(self)
        part._scorer = self._scorer.over(store.hold("the histories", new.vectors, self._scorer.exact.users))
        part._hidden, part.pandas = Nobody(), pandas
        part.rests_on = part._answer(new.rests_on)
        part._set_users(StoredUsers.of(new.users, len(self.labels)))
        return part

    @cached_property
    def windows(self) -> WindowScorer:
        """The probabilities of its stored users for purchases within a window."""
        if self.rests_on is not None:
            raise DataError("Windows are about the users of the model, and not about new histories.")
        factors = self.label_vectors(np.arange(len(self.labels))) @ self._scorer.weights.P_e.T
        item_labels = Ragged(*space.item_labels(self.labels, self.items))
        vectors, projection = self._scorer.users.vectors, self._scorer.weights.P_u
        return open_windows(self.artifact, self._users.table, vectors, projection, factors, item_labels)

    @cached_property
    def items(self) -> pl.DataFrame:
        """The products: item (its number), item_id, title, tags, vertical."""
        return pl.read_parquet(self.artifact.file("items.parquet"))

    @cached_property
    def needs_torch(self) -> bool:
        """Whether new histories, and explanations, need torch."""
        return needs_torch(self.artifact)

    @cached_property
    def _histories(self) -> HistoryReader:
        """Over the label space of the training, as the stored users were read."""
        trained = artifacts.load(self.artifact.file("labels"), "labels", verify=False)
        same = trained.manifest.hash == self._labels.manifest.hash
        queries = self._queries if same else QueryResolver(self.artifact, space.load(trained.path), trained)
        return open_reader(self.artifact, trained, queries)

    def for_users(self, users: pl.DataFrame) -> Model:
        """The same model of some of its users, rows of `stored_users`; it takes memory for these only."""
        part = copy(self)
        part._scorer = self._scorer.of_users(users["row"].to_numpy())
        part._set_users(StoredUsers.of(users.drop("row"), len(self.labels)))
        return part

    def stored_users(self) -> pl.DataFrame:
        """`users`, and `row`, where each is stored: what another process needs for `for_users`."""
        visible = self.visible()
        return visible.users.with_columns(row=pl.Series(visible.rows))

    def _answer(self, frame: pl.DataFrame) -> pl.DataFrame:
        """As pandas, where the model was made from pandas or asked about it."""
        return frame.to_pandas() if self.pandas else frame

    def _repr_html_(self) -> str:
        summary = self.artifact.manifest.summary
        tiles = [Tile("Users", count(len(self._users))), Tile("Interests", count(self.live))]
        tiles.append(Tile("Preset", preset_of(self.artifact)))
        if "last" in summary:
            tiles.append(Tile("Data until", f"{datetime.fromtimestamp(summary['last'] / 1000, UTC):%Y-%m-%d}"))
        return summary_html(Page("merit model", str(self.artifact.path), (), tiles))

    def __repr__(self) -> str:
        return f"<merit model: {len(self._users):,} users, {self.live:,} interests, {self.artifact.path}>"

    @property
    def hashes(self) -> tuple[str, str]:
        """Of the model and of its label space: together they decide every answer."""
        return self.artifact.manifest.hash, self._labels.manifest.hash

    @property
    def users(self) -> pl.DataFrame:
        """user_id, history, counts, items, days of all visible users."""
        return self.visible().users

    def visible(self) -> VisibleUsers:
        """The users who are not being erased: an erasure takes effect with the next question, in every process."""
        hidden = self._hidden.users()  # before the look at the folder: the list goes only when that has changed
        if self.outdated:
            raise DataError(f"Users were erased from {self.artifact.path} since it was opened. Open it again.")
        if hidden != self._visible.hidden:
            self._visible = self._users.without(hidden)
        return self._visible

    def has_user(self, user: str) -> bool:
        """Whether this user is known and visible."""
        return bool(self._find_users([user])[0] >= 0)

    @property
    def outdated(self) -> bool:
        """Whether users were erased since it was opened, so that it must be opened again."""
        return self._purged.since()

    def interests(
        self, users: Any, k: int = 10, diverse_regions: bool = False, regions: int | None = None
    ) -> pl.DataFrame:
        """The k most likely interests of each user; with `diverse_regions`, of as many regions as possible.

        With `regions`, only labels of so many clusters are scored for each user, those whose first label scores best:
        far fewer products where labels are many. `shortlist_recall` measures what that loses.
        """
        rows, live = self._rows(users), self.live_labels(k)
        parts = list(self._lists(rows, min(k * AHEAD, self.live) if diverse_regions else k, live, regions))
        if diverse_regions:
            parts = [diversity.spread(part, self._clusters, k) for part in parts]
        lists = ragged.stacked([part.labels for part in parts])
        labels = self._named[lists.values]
        table = pl.DataFrame(
            {
                "user_id": self._users.table["user_id"][np.repeat(rows, lists.lengths())],
                "rank": ragged.ranks(lists) + 1,
                "interest": labels["interest"],
                "probability": self._calibration.probability(np.concatenate([part.scores for part in parts])),
                "vertical": labels["vertical"],
            }
        )
        return self._answer(table)

    def all_interests(self, k: int = 10, regions: int | None = None) -> Iterator[pl.DataFrame]:
        """The same for all users, some thousands at a time, so that lists of millions are never in memory at once."""
        users = self.users["user_id"]
        for span in spans(len(users), USERS):
            yield self.interests(users[span.start : span.stop], k, regions=regions)

    def shortlist_recall(self, k: int, regions: int, users: int = 500) -> float:
        """The share of the k best interests of some users that a search in so many regions finds."""
        rows, live = np.sort(stream(0, "shortlist").permutation(self.visible().rows)[:users]), self.live_labels(k)
        exact, short = (
            np.concatenate([lists.pairs(len(live)) for lists in self._lists(rows, k, live, limit)])
            for limit in (None, regions)
        )
        return float(np.isin(exact, short).mean())

    def live_labels(self, k: int) -> Mask:
        """(labels,): which labels are live; fewer than k are refused."""
        topk.require_count(k, "labels")
        if k > self.live:
            raise DataError(f"There are {self.live:,} live interests; ask for no more than that (k = {k:,}).")
        return self._live

    @property
    def live(self) -> int:
        """The number of live interests."""
        return int(self._live.sum())

    def _lists(self, rows: Ints, k: int, live: Mask, regions: int | None = None) -> Iterator[RankedLists]:
        return self._ranking.interests(rows, k, live, self._clusters, regions)

    def audience(self, interest: str | Interest, n: int = 100, among: Any = None) -> pl.DataFrame:
        """The n users most likely to want an interest, of all or `among` some: a hundred or more."""
        topk.require_count(n, "users")
        require_enough_named(n)
        query, visible, rows = self.interest(interest), self.visible().rows, None
        users, added = self._additions(query)
        if among is not None or len(visible) < len(self._users):
            rows = visible if among is None else np.unique(self._rows(among))
            require_enough_named(len(rows))
            eligible = np.isin(users, rows)
            users, added = users[eligible], added[eligible]
        if n > len(visible):
            raise DataError(f"There are {len(visible):,} users; ask for no more than that (n = {n:,}).")
        (ranked,) = self._ranking.audiences(query.vector[None], [(users, added)], n, rows)
        places = pl.Series("rank", np.arange(1, len(ranked.rows) + 1))
        return self._answer(self.probabilities(*ranked).insert_column(1, places))

    def audiences(self, labels: Ints, users: Any, n: int) -> Iterator[Ranked]:
        """For each label of the space in turn, the n most likely of these users: `probabilities` names them.

        Many labels share every pass over the users. Where there are fewer than n users, all of them are ranked.
        """
        topk.require_count(n, "users")
        rows = np.sort(self._rows(users))
        additions = self._ranking.additions.by_label(labels, rows)
        return self._ranking.audiences(self.label_vectors(labels), additions, n, rows)

    def probabilities(self, rows: Ints, scores: Doubles) -> pl.DataFrame:
        """user_id and probability, from rows of stored users and their scores."""
        users = self._users.table["user_id"].gather(rows)
        return pl.DataFrame({"user_id": users, "probability": self._calibration.probability(scores)})

    def audience_scores(self, interest: str | Interest | WindowQuery, exact: bool = False) -> Doubles:
        """(stored users,): the probability of all users, those who are hidden included (see `visible().rows`).

        From scores in float32, right to about six digits; or `exact`, as all other answers, in ten times the time.
        Those of a purchase within a window are the same either way.
        """
        if isinstance(interest, WindowQuery):
            return self.windows.probabilities(interest.wanted, interest.window)
        query = self.interest(interest)
        vector, additions = query.vector, self._additions(query)
        if exact:
            scores = self._ranking.scores(np.arange(len(self._users)), vector, additions)
        else:
            scores = self._ranking.user_scores(vector, additions)
        parts = map_threads(
            lambda span: self._calibration.probability(scores[span.start : span.stop]),
            spans(len(scores), PART),
            self._scorer.threads,
        )
        return np.concatenate(parts)

    def score(self, users: Any, interests: Any) -> pl.DataFrame:
        """The probability of every pair."""
        rows, queries = self._rows(users), [self.interest(text) for text in texts_of(interests, "interests")]
        scores = np.stack([self._ranking.scores(rows, query.vector, self._additions(query)) for query in queries], 1)
        texts = pl.Series("interest", [query.text for _ in rows for query in queries])
        return self._answer(self.probabilities(np.repeat(rows, len(queries)), scores.ravel()).insert_column(1, texts))

    def score_pairs(self, users: Any, interests: Any) -> pl.DataFrame:
        """The probability of the first user for the first interest, of the second for the second, and so on."""
        rows, texts = self._rows(users), texts_of(interests, "interests")
        if len(rows) != len(texts):
            raise DataError(f"{len(rows):,} users and {len(texts):,} interests are not pairs. Give as many of each.")
        scores = np.empty(len(rows))
        for text in dict.fromkeys(texts):
            same, query = np.array([other == text for other in texts]), self.interest(text)
            scores[same] = self._ranking.scores(rows[same], query.vector, self._additions(query))
        return self._answer(self.probabilities(rows, scores).insert_column(1, pl.Series("interest", texts)))

    def grid(self, rows: Ints, labels: Ints) -> Doubles:
        """(users, labels): the probability of every pair of users by row, as in `visible().rows`, from float32."""
        return self._calibration.probability(self._ranking.label_scores(rows, labels))

    def card(self) -> str:
        """The model card: what the model was made from, how good it is, and what not to use it for."""
        return self.artifact.file("README.md").read_text(encoding="utf-8")

    def verticals(self, users: Any) -> pl.DataFrame:
        """How many interests of each vertical a user is expected to have, from scores in float32."""
        rows, live = self._rows(users), np.flatnonzero(self._live)
        with files.opening(self.artifact.path):
            shares = load_file(self.artifact.file("verticals.safetensors"))["shares"]
        labels = live[live < len(shares)]  # the verticals of a label added later are not known yet
        expected = verticals.roll_up(self.grid(rows, labels), shares[labels].astype(np.float64))
        names = json.loads(self.artifact.file("verticals.json").read_text(encoding="utf-8"))
        user_ids = self._users.table["user_id"].gather(np.repeat(rows, len(names)))
        table = pl.DataFrame({"user_id": user_ids, "vertical": names * len(rows), "expected": expected.ravel()})
        return self._answer(table.sort("user_id", "expected", descending=[False, True]))

    def over_indexed(self, users: Any, k: int = 20, at_least: int = 1) -> pl.DataFrame:
        """Labels that these users have in their histories more often than all users, `at_least` so many of them.

        The share of these users (share), of all users (base), and the ratio (index).
        """
        return self._answer(self.over_indexed_rows(np.unique(self._rows(users)), k, at_least))

    def over_indexed_rows(self, rows: Ints, k: int = 20, at_least: int = 1) -> pl.DataFrame:
        """The same for distinct users by row, as in `visible().rows`."""
        table = self._users.over_indexed(rows, self._live, k, at_least)
        texts = self.labels.table["text"].gather(table["label"]).alias("interest")
        return table.select(texts, "share", "base", "index")

    def explain(self, user: str, interest: str, k: int = 10) -> pl.DataFrame:
        """The items of a user's history that carry the probability of an interest: it is computed without each.

        `probability` is what is left without the item, `effect` what the item adds in log-odds.
        """
        from merit.retrieval import explain  # a generator loads torch

        row, query = int(self._rows([user])[0]), self.interest(interest)
        items, exact, again = self._users.items[row], self._scorer.exact, self._ranking.additions.repeats
        vectors, distinct, times, totals, likely = explain.leave_one_out(
            self.artifact, self._labels, items, self._users.days[row], query.label, query.named
        )
        of_label = again.of_label[query.label] if query.label >= 0 else 0.0
        scores = exact.scores(exact.users.of(vectors), exact.labels.of(query.vector[None])[0])
        scores = scores + again.added(times, np.maximum(totals, 1), of_label) + likely
        names = pl.read_parquet(self.artifact.file("items.parquet"), columns=["item_id", "title"])[distinct]
        table = names.with_columns(
            times=np.array([int((items == item).sum()) for item in distinct.tolist()]),
            effect=scores[0] - scores[1:],
            probability=self._calibration.probability(scores[1:]),
        )
        return self._answer(table.sort("effect", "item_id", descending=[True, False]).head(k))

    def interest(self, text: str | Interest) -> Interest:
        """The label or phrase that a text stands for. Blocked interests, and paraphrases of them, are refused."""
        return text if isinstance(text, Interest) else self._queries.resolve(text, self._scorer.labels.vectors)

    def are_labels(self, texts: Sequence[str]) -> bool:
        """Whether all of them are labels, so that none has to be encoded."""
        return bool((self.labels.find(texts) >= 0).all())

    def label_vectors(self, numbers: Ints) -> Floats:
        """(n, text + R): the vectors of these labels."""
        return self._scorer.labels.vectors.take(numbers)

    def _additions(self, query: Interest) -> Added:
        """The users with the label, or with products that name it, in the history or likely next; what that adds."""
        if query.label >= 0:
            return self._ranking.additions.users_with(query.label)
        again = self._ranking.additions.repeats
        assert query.named is not None
        counts = unseen_labels.count_mentions(self._users.items, [query.named], len(self._queries.catalogue.labels))
        return counts.users, again.added(counts.times, again.totals[counts.users], 0.0)

    def _rows(self, users: Any) -> Ints:
        wanted = texts_of(users, "users")
        rows = self._find_users(wanted)
        if len(missing := np.flatnonzero(rows < 0)):
            raise DataError(
                f"{len(missing):,} users are unknown to this model, such as '{wanted[missing[0]]}'. It knows users "
                "with enough history at the end of its data; see users.parquet."
            )
        return rows

    def _find_users(self, users: list[str]) -> Ints:
        """The rows of these users; -1 for those who are unknown or hidden."""
        visible, rows = self.visible(), self._users.index.find(pl.Series(users, dtype=pl.String))
        return rows if not visible.hidden else np.where(np.isin(rows, visible.rows), rows, -1)
