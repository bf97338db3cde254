from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from merit.core.errors import DamagedArtifact, DataError
from merit.core.ragged import Ragged
from merit.retrieval import shortlist
from tests.retrieval.worlds import KINDS, labels_of, naive_best, naive_scores, users_of, world

lists = st.lists(st.lists(st.integers(0, 29), max_size=25), min_size=1, max_size=12)


@settings(max_examples=50, deadline=None)
@given(
    lists,
    st.integers(0, 2**32),
    st.sampled_from(KINDS),
    st.integers(1, 12),
    st.integers(1, 40),
    st.booleans(),
    st.sampled_from([0, 4]),
)
def test_candidates_are_ranked_as_one_by_one(
    wanted: list[list[int]], seed: int, kind: str, k: int, block: int, masked: bool, factors: int
) -> None:
    scorer = world(seed, kind=kind, threads=2, block=block, factors=factors)
    rng = np.random.default_rng(seed)
    users, live = rng.integers(0, 40, len(wanted)), rng.random(30) < 0.6
    slow = naive_scores(scorer, users_of(scorer), labels_of(scorer))
    found = [
        (lists.labels[row].tolist(), lists.scores[lists.labels.offsets[row] : lists.labels.offsets[row + 1]])
        for lists in shortlist.interests(scorer, users, Ragged.of(wanted), k, live if masked else None)
        for row in range(len(lists.users))
    ]
    for user, own, (labels, scores) in zip(users, wanted, found, strict=True):
        mask = np.isin(np.arange(30), own) & (live if masked else True)
        assert labels == naive_best(slow[user], k, mask)
        assert scores == pytest.approx(slow[user, labels], rel=1e-9, abs=1e-9)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.lists(st.integers(0, 9)), st.lists(st.integers(0, 9))), min_size=1))
def test_the_union_is_that_of_sets(rows: list[tuple[list[int], list[int]]]) -> None:
    parts = [Ragged.of([row[part] for row in rows]) for part in (0, 1)]
    made = shortlist.union([parts[0], parts[1].part(0, len(rows))])
    assert [made[at].tolist() for at in range(len(rows))] == [sorted({*one, *two}) for one, two in rows]
    tail = shortlist.union([part.part(1, len(rows)) for part in parts])
    assert [tail[at].tolist() for at in range(len(tail))] == [made[at].tolist() for at in range(1, len(rows))]


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 9), st.integers(1, 6))
def test_regions_are_those_whose_first_live_label_scores_best(seed: int, clusters: int, regions: int) -> None:
    scorer = world(seed)
    rng = np.random.default_rng(seed)
    of_label, live = rng.integers(0, clusters, 30), rng.random(30) < 0.8
    live[0] = True
    users = rng.permutation(40)[:7]
    slow = naive_scores(scorer, users_of(scorer), labels_of(scorer))
    made = shortlist.of_regions(scorer, users, of_label, regions, live)
    speakers = {cluster: np.flatnonzero(live & (of_label == cluster))[0] for cluster in set(of_label[live].tolist())}
    for at, user in enumerate(users):
        by_score = sorted((-slow[user, speaker], speaker, cluster) for cluster, speaker in speakers.items())
        best = [cluster for _, _, cluster in by_score[:regions]]
        assert sorted(made[at].tolist()) == np.flatnonzero(live & np.isin(of_label, best)).tolist()


def test_recall_is_the_share_of_the_exact_list_that_was_offered() -> None:
    scorer = world(6)
    users = np.arange(40)
    best = [scorer.interests(users_of(scorer)[user], 4).rows.tolist() for user in users]
    offered = [labels[: user % 5] for user, labels in enumerate(best)]
    assert shortlist.recall(scorer, users, Ragged.of(offered), 4).tolist() == [user % 5 / 4 for user in range(40)]
    nothing = np.zeros(30, bool)
    assert shortlist.recall(scorer, users, Ragged.of(offered), 4, nothing).tolist() == [1.0] * 40


def test_shortlists_that_do_not_fit_are_refused() -> None:
    scorer = world(6)
    users = np.arange(3)
    with pytest.raises(DataError, match="Give one list to each"):
        shortlist.interests(scorer, users, Ragged.of([[1]]), 2)
    with pytest.raises(DataError, match="0 labels"):
        shortlist.interests(scorer, users, Ragged.of([[1], [2], [3]]), 0)
    for wrong in (30, -1):
        with pytest.raises(DataError, match="not among the 30 labels"):
            next(shortlist.interests(scorer, users, Ragged.of([[1], [wrong], [3]]), 2))
    with pytest.raises(DataError, match="no row 40"):
        next(shortlist.interests(scorer, np.array([40]), Ragged.of([[1]]), 2))
    with pytest.raises(DataError, match="mask over labels is 30"):
        next(shortlist.interests(scorer, users, Ragged.of([[1], [2], [3]]), 2, np.ones(29, bool)))
    scorer.labels.halves.codes[2] = np.nan
    with pytest.raises(DamagedArtifact, match="Row 2 of labels"):
        next(shortlist.interests(scorer, users, Ragged.of([[1], [2], [3]]), 2))
