from __future__ import annotations

import numpy as np
import polars as pl
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from merit.labels.encoders import HashedNgrams
from merit.labels.tagging.complete import CompleteConfig, chosen, complete, tag_matrix
from merit.labels.tagging.evidence import TitleFeatures, _Linear, nearest, title_features, top_mask
from tests.labels.tagging.shop import items


def hidden_third() -> tuple[pl.DataFrame, sp.csr_matrix, sp.csr_matrix, np.ndarray]:
    table = items()
    pairs = table.with_row_index("row").select("row", tag="tags").explode("tag")
    names = pairs["tag"].unique().sort()
    rows, labels = (
        pairs["row"].to_numpy().astype(np.int64),
        names.search_sorted(pairs["tag"]).to_numpy().astype(np.int64),
    )
    wanted = np.arange(0, len(table), 3)
    kept = ~np.isin(rows, wanted)
    whole, left = (tag_matrix(rows[keep], labels[keep], len(table), len(names)) for keep in (rows >= 0, kept))
    return table, whole, left, wanted


def test_hidden_tags_are_found_with_honest_probabilities() -> None:
    table, whole, left, wanted = hidden_third()
    verticals = pl.Series(["all"] * len(table))
    scored = complete(table["title"], verticals, left, CompleteConfig(), HashedNgrams(), 7)
    assert sorted(scored["row"].unique()) == wanted.tolist()
    best = chosen(scored, 8, 0.1)
    right = np.asarray(whole[best["row"].to_numpy(), best["label"].to_numpy()]).ravel()
    assert right.mean() > 0.95 and right.sum() > 0.95 * whole[wanted].sum()
    assert complete(table["title"], verticals, left, CompleteConfig(), HashedNgrams(), 7).equals(scored)


def test_too_few_tagged_items_complete_nothing() -> None:
    table, _, left, _ = hidden_third()
    few = CompleteConfig(enough=10_000)
    assert complete(table["title"], table["brand"], left, few, HashedNgrams(), 7).is_empty()


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 12), st.integers(1, 15), st.integers(1, 5), st.integers(0, 999))
def test_neighbours_are_those_of_all_pairs(queries: int, count: int, most: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    one, two = (rng.integers(0, 3, (rows, 6)).astype(np.float32) for rows in (queries, count))
    ours, dense = nearest(sp.csr_matrix(one), sp.csr_matrix(two), most).toarray(), one @ two.T
    for row in range(queries):
        order = np.argsort(-dense[row], kind="stable")[:most]
        slow = np.zeros(count)
        slow[order] = dense[row, order]
        assert (ours[row] == slow).all()


def test_the_linear_model_is_the_ridge_regression_of_the_textbook() -> None:
    table, _, left, _ = hidden_third()
    features = title_features(table["title"], pl.Series(["all"] * len(table)), HashedNgrams(16))
    known = np.flatnonzero(np.diff(left.indptr))
    model = _Linear(features, left, known, words=10, decay=2.0)
    full = np.hstack([model.words.toarray(), model.meaning])
    known_rows = full[known].astype(np.float64)
    weights = np.linalg.solve(
        known_rows.T @ known_rows + 2 * np.eye(full.shape[1]), known_rows.T @ left[known].toarray()
    )
    assert np.abs(model.scores(np.arange(20)) - full[:20] @ weights).max() < 1e-3


def test_titles_without_words_have_features_too() -> None:
    features = title_features(pl.Series(["", "", ""]), pl.Series(["a", "a", "a"]), HashedNgrams(8))
    assert features.counts.shape == (3, 0) and not features.meaning.any()
    assert isinstance(features, TitleFeatures)


def test_the_expected_f1_decides_how_many() -> None:
    scored = pl.DataFrame({"row": [0, 0, 0, 1, 1], "label": [4, 5, 6, 1, 2], "score": [0.9, 0.8, 0.1, 0.05, 0.01]})
    assert chosen(scored, 8, 0.03).select("row", "label").rows() == [(0, 4), (0, 5), (1, 1)]
    assert chosen(scored, 1, 0.1)["label"].to_list() == [4]


def test_top_mask_has_ties() -> None:
    scores = np.array([[0.5, 0.5, 0.1, 0.0]], np.float32)
    assert top_mask(scores, 1).tolist() == [[True, True, False, False]]
