"""Whatever a caller has a table in, it is the same table."""

from __future__ import annotations

import pandas as pd
import polars as pl
import pytest

from merit.core.errors import DataError
from merit.data import frames

TABLE = pl.DataFrame({"user_id": ["1", "2"], "tags": [["a"], []], "n": [1, 2]})


class Relation:
    """As DuckDB's: it converts itself."""

    def pl(self) -> pl.DataFrame:
        return TABLE


class Capsule:
    """As of any library that speaks Arrow."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return TABLE.to_arrow().__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize("given", [TABLE, TABLE.lazy(), TABLE.to_pandas(), TABLE.to_arrow(), Relation(), Capsule()])
def test_all_are_one_table(given: object) -> None:
    assert frames.polars(given).to_dicts() == TABLE.to_dicts()


def test_what_is_no_table_is_refused() -> None:
    with pytest.raises(DataError, match=r"The items: a table of polars.* not dict"):
        frames.polars({"user_id": ["1"]}, "The items")
    assert frames.is_pandas(pd.DataFrame()) and not frames.is_pandas(TABLE)
