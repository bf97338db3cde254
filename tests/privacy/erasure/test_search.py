"""The search finds what it is there for, wherever it hides, and nothing else."""

from __future__ import annotations

import base64
import bz2
import gzip
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from merit.core.errors import DamagedArtifact
from merit.core.seeds import USER_SALT, stable_hash
from merit.privacy.erasure import search

WHO = "user-ü42"
CROWD = [*(f"user-{'éý'[n % 2]}{n:05}" for n in range(9_999)), WHO]  # neither first nor last, and compressed away
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
    "UTF-16": lambda file: file.write_bytes(f"a,{WHO}\n".encode("utf-16")),
    "UTF-16, big-endian": lambda file: file.write_bytes(f"a,{WHO}\n".encode("utf-16-be")),
    "a NumPy array of texts": lambda file: np.save(file.with_suffix(".npy"), np.array(["x", WHO])),
    "another way to write JSON": lambda file: file.write_text(r'{"who": "user-\u00FC42"}'),
    "an address": lambda file: file.write_text("GET /v1/users/user-%C3%BC42/interests"),
    "an address in small letters": lambda file: file.write_text("GET /v1/users/user-%c3%bc42/interests"),
    "an id in base64": lambda file: file.write_text(
        json.dumps({"who": base64.urlsafe_b64encode(WHO.encode()).decode()})
    ),
    "an id in hexadecimal digits": lambda file: file.write_text(f"0x{WHO.encode().hex()}".replace("0x", "x'") + "'"),
    "SHA-256 in capitals": lambda file: file.write_text(hashlib.sha256(WHO.encode()).hexdigest().upper()),
    "MD5": lambda file: file.write_text(hashlib.md5(WHO.encode()).hexdigest()),
    "a shortened hash": lambda file: file.write_text(hashlib.sha256(WHO.encode()).hexdigest()[:16]),
    "base64": lambda file: file.write_bytes(base64.b64encode(hashlib.sha256(WHO.encode()).digest())),
    "packed text": lambda file: file.with_suffix(".csv.gz").write_bytes(gzip.compress(WHO.encode())),
    "packed text without a suffix": lambda file: file.write_bytes(bz2.compress(WHO.encode())),
    "an archive": lambda file: np.savez_compressed(file.with_suffix(".npz"), np.array([WHO])),
    "a table by another name": lambda file: pl.DataFrame({"a": CROWD}).write_parquet(file.with_suffix(".pq")),
    "Feather": lambda file: pl.DataFrame({"a": CROWD}).write_ipc(file.with_suffix(".arrow"), compression="zstd"),
    "binary cells": lambda file: pl.DataFrame({"a": [who.encode() for who in CROWD]}).write_parquet(
        file.with_suffix(".parquet")
    ),
    "hashes as cells": lambda file: pl.DataFrame(
        {"a": [hashlib.sha256(who.encode()).hexdigest() for who in CROWD]}
    ).write_parquet(file.with_suffix(".parquet")),
    "lists of a fixed size": lambda file: pl.DataFrame(
        {"a": [["x", who] for who in CROWD]}, schema={"a": pl.Array(pl.String, 2)}
    ).write_parquet(file.with_suffix(".parquet")),
    "a map": lambda file: pq.write_table(
        pa.table({"a": pa.array([[("key", WHO)]], pa.map_(pa.string(), pa.string()))}), file.with_suffix(".parquet")
    ),
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


@pytest.mark.parametrize("kind", [pl.Int64, pl.UInt32, pl.Int16, pl.Float64, pl.Decimal(10, 2)])
@pytest.mark.parametrize("written", ["1042", "01042"])
def test_ids_are_found_as_numbers(tmp_path: Path, kind: pl.DataType, written: str) -> None:
    place = tmp_path / "table.parquet"
    pl.DataFrame({"customer": [7, 1042, 1042]}, schema={"customer": kind}).write_parquet(place)
    told = search.search([tmp_path], search.patterns([written]), home=tmp_path)
    assert [(each.how, each.times) for each in told.held] == [("an id in the column customer", 2)]
    pl.DataFrame({"price": [7, 1042]}, schema={"price": kind}).write_parquet(place)
    told = search.search([tmp_path], search.patterns([written]))
    assert not told.held and [each.how for each in told.alike] == ["an id in the column price"]
    (tmp_path / "manifest.json").touch()  # a table of merit, whose columns are known: `user` numbers rows
    pl.DataFrame({"price": [1042], "user": [1042]}, schema=dict.fromkeys(("price", "user"), kind)).write_parquet(place)
    told = search.search([tmp_path], search.patterns([written]))
    assert not told.held and not told.alike


def test_numbers_beyond_a_sign_and_beyond_a_float_are_told_apart(tmp_path: Path) -> None:
    for column in ([-(2**63)], [2**53 + 1]):
        pl.DataFrame({"user_id": column}).write_parquet(tmp_path / "table.parquet", compression="zstd")
        told = search.search([tmp_path], search.patterns([str(column[0] + 1 if column[0] > 0 else 2**63 - 1)]))
        assert not told.held


def test_wide_letters_are_whole_words_too(tmp_path: Path) -> None:
    for encoding in search.ENCODINGS:
        (tmp_path / "a.txt").write_bytes("u0000012,xu000001,u000001x,".encode(encoding))
        assert not search.search([tmp_path], search.patterns(["u000001"])).held, encoding
        (tmp_path / "a.txt").write_bytes("u0000012,u000001".encode(encoding))
        assert search.search([tmp_path], search.patterns(["u000001"])).held, encoding


def test_an_id_in_a_name_is_found_and_not_repeated(tmp_path: Path) -> None:
    (tmp_path / "sent/of-u000001").mkdir(parents=True)
    (tmp_path / "sent/of-u000001/u000001.csv").write_text("u000001")
    found = search.search([tmp_path], search.patterns(["u000001"]), home=tmp_path).held
    assert [(each.file, each.how, each.times) for each in found] == [
        ("sent", "an id in the name of a file or folder", 1),
        ("sent/…", "an id in the name of a file or folder", 1),
        ("sent/…/…", "an id", 1),
    ]


def test_what_cannot_be_read_is_listed(tmp_path: Path) -> None:
    (tmp_path / "a.csv.zst").write_bytes(b"\x28\xb5\x2f\xfd and more")
    (tmp_path / "b.parquet").write_bytes(b"PARE and more")
    (tmp_path / "c.gz").write_bytes(gzip.compress(gzip.compress(b"more")))
    os.mkfifo(tmp_path / "d")
    told = search.search([tmp_path], search.patterns([WHO]), home=tmp_path)
    assert told.files == 3 and told.unsearched == (
        "a.csv.zst (zstandard)",
        "b.parquet (encrypted Parquet)",
        "c.gz (packed twice)",
        "d (no file but a device, pipe or socket)",
    )


def test_lists_that_must_name_the_users_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "journal").write_text(WHO)
    assert not search.search([tmp_path], search.patterns([WHO]), [tmp_path / "journal"]).held


def test_a_torn_table_is_no_clean_table(tmp_path: Path) -> None:
    pl.DataFrame({"user_id": ["somebody"] * 99}).write_parquet(tmp_path / "a.parquet")
    (tmp_path / "a.parquet").write_bytes((tmp_path / "a.parquet").read_bytes()[:-9])
    with pytest.raises(DamagedArtifact, match=r"a\.parquet cannot be read"):
        search.search([tmp_path], search.patterns([WHO]))
    (tmp_path / "a.parquet").write_bytes(gzip.compress(b"somebody" * 99)[:-9])
    with pytest.raises(DamagedArtifact, match=r"a\.parquet cannot be read"):
        search.search([tmp_path], search.patterns([WHO]))


@given(st.text("ab1 -", max_size=60), st.integers(1, 9))
@settings(max_examples=200, deadline=None)
def test_blocks_find_what_one_look_finds(tmp_path_factory: pytest.TempPathFactory, text: str, block: int) -> None:
    """However a file is cut into blocks, a whole word counts once."""
    file = tmp_path_factory.mktemp("blocks") / "a.txt"
    file.write_text(text)
    words = dict.fromkeys((b"ab1", b"b"), "utf-8")
    wanted = search.Patterns(words, frozenset([b"ab1"]), (b"1ab",), frozenset())
    whole = search.search([file.parent], wanted)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(search, "BLOCK", block)
        assert search.search([file.parent], wanted) == whole
    times = sum(1 for word in _words(text) if word == "ab1")
    assert sum(each.times for each in whole.held if each.how == search.ID) == times


def _words(text: str) -> list[str]:
    return text.replace("-", " ").split()
