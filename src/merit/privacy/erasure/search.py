"""Whether an id, or a hash of one, is still anywhere: every byte of every file, and every cell of every table.

A compressed table does not show its texts as bytes, so its cells are read too. An id is searched as a whole word: `u1`
is not in `u12`. A short id, or one of a few digits, occurs by chance: outside columns of users it is listed apart, for
a person to judge.
"""

from __future__ import annotations

import html
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b, sha256
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from merit.core.errors import DamagedArtifact
from merit.core.seeds import USER_SALT, stable_hash
from merit.privacy.erasure.certificate import SearchFinding, SearchResult

BLOCK, ROWS = 1 << 24, 1 << 18  # bytes of a file, and rows of a table, at a time
DISTINCT, DISTINCT_DIGITS = 6, 12  # characters from which on an id does not occur by chance
USERS = re.compile(r"user|customer|member|household|client", re.IGNORECASE)
ID, HASH = "an id", "a hash of an id"


class Patterns(NamedTuple):
    """Everything that is searched, in bytes and in numbers, for all users together."""

    words: tuple[bytes, ...]
    """Ids as they are written: plain, and as JSON and HTML escape them."""
    distinct: frozenset[bytes]
    """Those of them that do not occur by chance."""
    hashes: tuple[bytes, ...]
    numbers: frozenset[int]
    """Hashes as tables store them."""


def patterns(users: Iterable[str], salts: Sequence[str] = ()) -> Patterns:
    """All that would give one of these users away. `salts` are those of holdouts and experiments."""
    words: dict[bytes, None] = {}
    distinct, hashes, numbers = set[bytes](), list[bytes](), set[int]()
    for user in users:
        forms = {form.encode() for form in (user, json.dumps(user)[1:-1], html.escape(user))}
        words |= dict.fromkeys(sorted(forms))
        distinct |= forms if len(user) >= (DISTINCT_DIGITS if user.isdigit() else DISTINCT) else set()
        raw = [sha256(user.encode()).digest(), *(blake2b(user.encode(), digest_size=n).digest() for n in (16, 32, 64))]
        stable = [int(stable_hash([user], salt)[0]) for salt in (USER_SALT, *salts)]
        raw += [value.to_bytes(8, order) for value in stable for order in ("little", "big")]
        hashes += [form for digest in raw for form in (digest, digest.hex().encode())]
        hashes += [str(value).encode() for value in stable]
        numbers |= set(stable)
    return Patterns(tuple(words), frozenset(distinct), tuple(hashes), frozenset(numbers))


def mentioned(text: str, users: Iterable[str]) -> bool:
    """Whether a text names one of them."""
    return any(_whole(user.encode()).search(text.encode()) for user in users)


def search(roots: Iterable[Path], wanted: Patterns, but: Iterable[Path] = (), home: Path = Path()) -> SearchResult:
    """What all files below the folders hold of the users, but for those that must still name them."""
    held, alike = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    files, size, skipped = 0, 0, set(but)
    for file in _files(roots):
        if file not in skipped:
            name = os.path.relpath(file, home)
            files, size = files + 1, size + file.stat().st_size
            for how, distinct in _in_file(file, wanted):
                (held if distinct else alike)[name, how] += 1
    return SearchResult(files=files, bytes=size, held=_findings(held), alike=_findings(alike))


def _findings(counts: Counter[tuple[str, str]]) -> tuple[SearchFinding, ...]:
    return tuple(SearchFinding(file=name, how=how, times=times) for (name, how), times in sorted(counts.items()))


def _files(roots: Iterable[Path]) -> Iterator[Path]:
    seen = set[tuple[int, int]]()
    for root in roots:
        for file in sorted(path for path in root.resolve().rglob("*") if path.is_file()):
            stat = file.stat()
            if (stat.st_dev, stat.st_ino) not in seen:  # else a link to a file that was searched
                seen.add((stat.st_dev, stat.st_ino))
                yield file


def _in_file(file: Path, wanted: Patterns) -> Iterator[tuple[str, bool]]:
    overlap = max(map(len, (*wanted.words, *wanted.hashes))) + 1
    with file.open("rb") as content:
        for start in range(0, file.stat().st_size, BLOCK):
            before = min(start, 1)  # one byte: what stands before a word belongs to the pattern
            content.seek(start - before)
            yield from _in_block(content.read(before + BLOCK + overlap), before, wanted)
    if file.suffix == ".parquet":
        yield from _in_table(file, wanted)


def _in_block(block: bytes, first: int, wanted: Patterns) -> Iterator[tuple[str, bool]]:
    """What begins in the block, after its `first` bytes. One pass finds out which patterns occur at all."""
    texts = [pattern.decode("latin-1") for pattern in (*wanted.words, *wanted.hashes)]
    matches = pl.Series([block.decode("latin-1")]).str.extract_many(texts, overlapping=True)[0].unique()
    present = {text.encode("latin-1") for text in matches}
    patterns = [(_whole(word), ID, word in wanted.distinct) for word in present.intersection(wanted.words)]
    patterns += [(re.compile(re.escape(digest)), HASH, True) for digest in present.intersection(wanted.hashes)]
    for pattern, how, distinct in patterns:
        starts = [match.start() - first for match in pattern.finditer(block)]
        yield from [(how, distinct) for start in starts if 0 <= start < BLOCK]


def _whole(word: bytes) -> re.Pattern[bytes]:
    return re.compile(rb"(?<![0-9A-Za-z])" + re.escape(word) + rb"(?![0-9A-Za-z])")


def _in_table(file: Path, wanted: Patterns) -> Iterator[tuple[str, bool]]:
    table = pl.scan_parquet(file, hive_partitioning=False)
    try:
        for start in range(0, table.select(pl.len()).collect().item(), ROWS):
            for column in table.slice(start, ROWS).collect():
                for leaf in _leaves(column):
                    yield from _in_column(column.name, leaf, wanted)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise DamagedArtifact(f"{file} cannot be read ({type(error).__name__}). Remove it, or make it again.") from None


def _in_column(name: str, column: pl.Series, wanted: Patterns) -> Iterator[tuple[str, bool]]:
    if column.dtype in (pl.UInt64, pl.Int64):
        numbers = np.array(list(wanted.numbers), dtype=np.uint64)
        values = column.drop_nulls().to_numpy().view(np.uint64)
        yield from [(f"{HASH} in the column {name}", True)] * int(np.isin(values, numbers).sum())
    elif column.dtype in (pl.String, pl.Categorical, pl.Enum):
        cells = column.drop_nulls().cast(pl.String)
        suspect = cells.str.contains_any([word.decode() for word in wanted.words])
        for cell in cells.filter(suspect):
            for word in wanted.words:
                if _whole(word).search(cell.encode()):
                    yield f"{ID} in the column {name}", word in wanted.distinct or bool(USERS.search(name))


def _leaves(column: pl.Series) -> Iterator[pl.Series]:
    """The values inside lists and structures."""
    if column.dtype.is_nested():
        parts = column.struct.unnest() if isinstance(column.dtype, pl.Struct) else [column.explode()]
        for part in parts:
            yield from _leaves(part)
    else:
        yield column
