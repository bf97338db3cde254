"""Ids are found where they are, whoever shares their hash."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from merit.retrieval import names
from merit.retrieval.names import Names

ids = st.lists(st.text(max_size=6), unique=True, max_size=40)


def slow(known: list[str], wanted: list[str]) -> list[int]:
    return [known.index(each) if each in known else -1 for each in wanted]


@settings(max_examples=100, deadline=None)
@given(ids, st.lists(st.text(max_size=6), max_size=20), st.sampled_from([1, 2, 3, None]))
def test_each_id_is_where_a_list_has_it(known: list[str], others: list[str], hashes: int | None) -> None:
    wanted = [*others, *known[::2], *known[:1]]
    with pytest.MonkeyPatch.context() as patch:
        if hashes:  # so few that most of the ids share one

            def few(column: pl.Series) -> np.ndarray:
                return column.str.len_chars().to_numpy().astype(np.uint64) % np.uint64(hashes)

            patch.setattr(names, "_hashes", few)
        found = Names.of(pl.Series(known, dtype=pl.String)).find(pl.Series(wanted, dtype=pl.String))
    assert found.tolist() == slow(known, wanted)
