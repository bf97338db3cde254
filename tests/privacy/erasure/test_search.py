"""The search finds what it is there for, wherever it hides, and nothing else."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from merit.core.errors import DamagedArtifact
from merit.core.seeds import USER_SALT, stable_hash
from merit.privacy.erasure import search

WHO = "user-ü42"
Write = Callable[[Path], object]
stable = stable_hash([WHO], USER_SALT)
salted = stable_hash([WHO], "spring-2027")
HIDDEN: dict[str, Write] = {
    "text": lambda file: file.write_text(f"who: {WHO}."),
    "json": lambda file: file.write_text(json.dumps({"who": WHO})),
    "html": lambda file: file.write_text(f"<b>{WHO}</b>"),
    "sha256, in letters": lambda file: file.write_text(hashlib.sha256(WHO.encode()).hexdigest()),
    "sha256, raw": lambda file: file.write_bytes(b"\0" + hashlib.sha256(WHO.encode()).digest()),
    "blake2b": lambda file: file.write_text(hashlib.blake2b(WHO.encode()).hexdigest()),
    "the split's hash, raw": lambda file: np.save(file.with_suffix(".npy"), stable),
    "the split's hash, in digits": lambda file: file.write_text(f'{{"hash": {stable[0]}}}'),
    "an arm's hash": lambda file: np.save(file.with_suffix(".npy"), salted),
    "a cell": lambda file: pl.DataFrame({"a": ["x"] * 999 + [WHO]}).write_parquet(file.with_suffix(".parquet")),
    "a list in a cell": lambda file: pl.DataFrame({"a": [["x", WHO]]}).write_parquet(file.with_suffix(".parquet")),
    "a structure": lambda file: pl.DataFrame({"a": [{"b": WHO}]}).write_parquet(file.with_suffix(".parquet")),
    "a category": lambda file: pl.DataFrame({"a": pl.Series([WHO], dtype=pl.Categorical)}).write_parquet(
        file.with_suffix(".parquet")
    ),
    "a column of hashes": lambda file: pl.DataFrame(
        {"a": [*range(999), int(stable[0])]}, schema={"a": pl.UInt64}
    ).write_parquet(file.with_suffix(".parquet")),
    "a table's notes": lambda file: pl.DataFrame({"a": [1]}).write_parquet(
        file.with_suffix(".parquet"), metadata={"who": WHO}
    ),
}


@pytest.mark.parametrize("how", HIDDEN)
def test_whatever_gives_a_user_away_is_found(tmp_path: Path, how: str) -> None:
    (tmp_path / "deep").mkdir()
    HIDDEN[how](tmp_path / "deep/file.txt")
    told = search.search([tmp_path], search.patterns([WHO], ["spring-2027"]), home=tmp_path)
    assert told.held and told.held[0].file.startswith("deep/file") and told.files == 1
    other = search.search([tmp_path], search.patterns(["user-ü4"], ["spring-2027"]), home=tmp_path)
    assert not other.held and not other.alike


def test_another_whose_id_begins_alike_is_not_found(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('["u0000012", "xu000001", "u000001x"]')
    pl.DataFrame({"user_id": ["u0000012"]}).write_parquet(tmp_path / "a.parquet")
    assert not search.search([tmp_path], search.patterns(["u000001"])).held


def test_a_short_id_is_told_apart_unless_it_is_a_users(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"bytes": 1042}')
    pl.DataFrame({"item_id": ["1042"]}).write_parquet(tmp_path / "items.parquet", compression="uncompressed")
    told = search.search([tmp_path], search.patterns(["1042"]), home=tmp_path)
    assert not told.held and {each.file for each in told.alike} == {"items.parquet", "manifest.json"}
    pl.DataFrame({"user_id": ["1042"]}).write_parquet(tmp_path / "users.parquet")
    told = search.search([tmp_path], search.patterns(["1042"]), home=tmp_path)
    assert [(each.file, each.how) for each in told.held] == [("users.parquet", "an id in the column user_id")]


def test_lists_that_must_name_the_users_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "journal").write_text(WHO)
    assert not search.search([tmp_path], search.patterns([WHO]), [tmp_path / "journal"]).held


def test_a_torn_table_is_no_clean_table(tmp_path: Path) -> None:
    pl.DataFrame({"user_id": ["somebody"] * 99}).write_parquet(tmp_path / "a.parquet")
    (tmp_path / "a.parquet").write_bytes((tmp_path / "a.parquet").read_bytes()[:-9])
    with pytest.raises(DamagedArtifact, match=r"a\.parquet cannot be read"):
        search.search([tmp_path], search.patterns([WHO]))


@given(st.text("ab1 -", max_size=60), st.integers(1, 9))
@settings(max_examples=200, deadline=None)
def test_blocks_find_what_one_look_finds(tmp_path_factory: pytest.TempPathFactory, text: str, block: int) -> None:
    """However a file is cut into blocks, a whole word counts once."""
    file = tmp_path_factory.mktemp("blocks") / "a.txt"
    file.write_text(text)
    wanted = search.Patterns((b"ab1", b"b"), frozenset([b"ab1"]), (b"1ab",), frozenset())
    whole = search.search([file.parent], wanted)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(search, "BLOCK", block)
        assert search.search([file.parent], wanted) == whole
    times = sum(1 for word in _words(text) if word == "ab1")
    assert sum(each.times for each in whole.held if each.how == search.ID) == times


def _words(text: str) -> list[str]:
    return text.replace("-", " ").split()
