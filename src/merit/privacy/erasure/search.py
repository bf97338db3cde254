"""Whether an id, or a hash of one, is still anywhere: every byte of every file, and every cell of every table.

What is packed is unpacked, and the cells of compressed tables are read. An id is searched as a whole word: `u1`
is not in `u12`. A short id, or one of a few digits, occurs by chance: outside columns of users it is listed apart, for
a person to judge. What cannot be searched is listed as well.
"""

from __future__ import annotations

import html
import json
import os
import re
from base64 import b64encode
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b, md5, sha1, sha256
from pathlib import Path
from typing import IO, NamedTuple
from unicodedata import normalize
from urllib.parse import quote

import numpy as np
import polars as pl

from merit.core.artifacts import MANIFEST
from merit.core.seeds import USER_SALT, stable_hash
from merit.privacy.erasure import contents
from merit.privacy.erasure.certificate import SearchFinding, SearchResult

BLOCK, BEFORE = 1 << 24, 4  # bytes of a file at a time, and those before that tell where a word begins
BATCH = 4_096  # blocks at a time
DISTINCT, DISTINCT_DIGITS = 6, 12  # characters from which on an id does not occur by chance
PREFIX = 8  # bytes of a hash: no chance makes so many alike, and a shortened hash is found too
USERS = re.compile(r"user|customer|member|household|client", re.IGNORECASE)
ROW_NUMBER = "user"  # a column of merit's own tables: the row of a user, not an id
ENCODINGS = ("utf-8", "utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be")  # NumPy writes texts as the fourth
URL_SAFE = str.maketrans("+/", "-_")
ID, HASH = "an id", "a hash of an id"


class Patterns(NamedTuple):
    """Everything that is searched, in bytes and in numbers, for all users together."""

    words: Mapping[bytes, str]
    """Ids as they are written, with their encoding: plain, and as JSON, CSV, HTML and addresses escape them."""
    distinct: frozenset[bytes]
    """Those of them that do not occur by chance."""
    hashes: tuple[bytes, ...]
    """The first bytes of hashes: raw, in small and large hexadecimal digits, and in base64."""
    numbers: frozenset[int]
    """Hashes as tables store them."""
    ids: frozenset[int] = frozenset()
    """Ids that are numbers."""


def patterns(users: Iterable[str], salts: Sequence[str] = ()) -> Patterns:
    """All that would give one of these users away. `salts` are those of holdouts and experiments."""
    words: dict[bytes, str] = {}
    distinct, hashes, numbers, ids = set[bytes](), dict[bytes, None](), set[int](), set[int]()
    for user in users:
        encoded = [(form.encode(encoding), encoding) for form in _forms(user) for encoding in ENCODINGS]
        words |= dict(encoded)
        distinct |= {form for form, _ in encoded} if _is_distinct(user) else set()
        content = user.encode()
        digests = [make(content).digest() for make in (sha256, sha1, md5)]
        digests += [blake2b(content, digest_size=size).digest() for size in (16, 32, 64)]
        stable = [int(stable_hash([user], salt)[0]) for salt in (USER_SALT, *salts)]
        digests += [value.to_bytes(8, order) for value in stable for order in ("little", "big")]
        for start in (digest[:PREFIX] for digest in digests):
            texts = (start.hex(), start.hex().upper(), b64encode(start).decode()[: PREFIX * 4 // 3])
            hashes |= dict.fromkeys([start, *(text.encode() for text in texts)])
        hashes |= dict.fromkeys(str(value).encode() for value in stable)
        numbers |= set(stable)
        if user.isascii() and user.isdigit() and int(user) < 1 << 64:
            ids.add(int(user))
    return Patterns(words, frozenset(distinct), tuple(hashes), frozenset(numbers), frozenset(ids))


def _forms(user: str) -> list[str]:
    """An id as texts write it."""
    escaped = json.dumps(user)[1:-1]
    upper = re.sub(r"\\u[0-9a-f]{4}", lambda code: "\\u" + code[0][2:].upper(), escaped)
    accents = (normalize(form, user) for form in ("NFC", "NFD"))
    small = re.sub("%[0-9A-F]{2}", lambda code: code[0].lower(), quote(user, ""))
    plain = {user, escaped, upper, html.escape(user), quote(user, ""), small, user.replace('"', '""'), *accents}
    return sorted(plain | (_packed(user) if _is_distinct(user) else set()))


def _packed(user: str) -> set[str]:
    """An id in hexadecimal digits and in base64."""
    content = user.encode()
    base64 = b64encode(content).decode().rstrip("=")
    return {content.hex(), content.hex().upper(), base64, base64.translate(URL_SAFE)}


def _is_distinct(user: str) -> bool:
    return len(user) >= (DISTINCT_DIGITS if user.isdigit() else DISTINCT)


def mentioned(text: str, users: Iterable[str]) -> bool:
    """Whether a text names one of them."""
    return any(_whole(user.encode()).search(text.encode()) for user in users)


class Block(NamedTuple):
    """Bytes to be searched, and how what is found in them is called."""

    file: str
    content: bytes
    first: int = 0
    """Bytes in front that only tell where a word begins."""
    length: int | None = None
    """Of what belongs to the block; what begins behind belongs to the next one."""
    where: str = ""
    of_users: bool = False


class Found(NamedTuple):
    """Something found, and whether it is so for certain; None for a format that cannot be read."""

    file: str
    how: str
    certain: bool | None


def search(roots: Iterable[Path], wanted: Patterns, but: Iterable[Path] = (), home: Path = Path()) -> SearchResult:
    """What all files below the folders hold of the users, but for those that must still name them."""
    skipped = set(but)
    files = [file for file in _files(roots) if file not in skipped]
    held, alike, unsearched = Counter[tuple[str, str]](), Counter[tuple[str, str]](), list[str]()
    for found in _in_blocks((piece for file in files for piece in _in_file(file, wanted, home)), wanted):
        if found.certain is None:
            unsearched.append(f"{found.file} ({found.how})")
        else:
            (held if found.certain else alike)[found.file, found.how] += 1
    read = [file.stat().st_size for file in files if file.is_file()]
    results = {"held": _findings(held), "alike": _findings(alike), "unsearched": tuple(sorted(unsearched))}
    return SearchResult(files=len(read), bytes=sum(read), **results)


def _findings(counts: Counter[tuple[str, str]]) -> tuple[SearchFinding, ...]:
    return tuple(SearchFinding(file=name, how=how, times=times) for (name, how), times in sorted(counts.items()))


def _files(roots: Iterable[Path]) -> Iterator[Path]:
    seen = set[tuple[int, int]]()
    for root in roots:
        for file in sorted(path for path in root.resolve().rglob("*") if path.exists() and not path.is_dir()):
            stat = file.stat()
            if (stat.st_dev, stat.st_ino) not in seen:  # else a link to a file that was searched
                seen.add((stat.st_dev, stat.st_ino))
                yield file


def _in_file(file: Path, wanted: Patterns, home: Path) -> Iterator[Block | Found]:
    """What there is to search in a file, and what was found on the way; in no path is an id."""
    name, path = "", Path(os.path.relpath(file, home))
    for part in path.parts:
        certain = _certain(part, wanted)
        if certain is not None:
            yield Found(name or ".", f"{ID} in the name of a file or folder", certain)
        name = os.path.join(name, part if certain is None else "…")  # noqa: PTH118
    if not file.is_file():
        yield Found(name, "no file but a device, pipe or socket", None)
        return
    with contents.reading(file):
        for stream, closed in contents.streams(file):
            yield from _in_stream(name, stream, wanted)
            if closed:
                yield Found(name, closed, None)
        ours = (file.parent / MANIFEST).exists()
        for column, values in contents.columns(file):
            yield from _in_column(name, column, values, wanted, ours)


def _certain(text: str, wanted: Patterns) -> bool | None:
    """Whether an id is in a short text for certain; None if none is."""
    content = os.fsencode(text)
    found = [word in wanted.distinct for word in wanted.words if word in content and _whole(word).search(content)]
    return any(found) if found else None


def _in_stream(name: str, stream: IO[bytes], wanted: Patterns) -> Iterator[Block]:
    overlap = max(map(len, (*wanted.words, *wanted.hashes))) + BEFORE
    window, first = stream.read(BLOCK + overlap), 0
    while window:
        yield Block(name, window, first, BLOCK)
        if len(window) <= first + BLOCK:
            return
        before = min(BEFORE, first + BLOCK)
        window, first = window[first + BLOCK - before :] + stream.read(BLOCK), before


def _in_blocks(pieces: Iterable[Block | Found], wanted: Patterns) -> Iterator[Found]:
    """One pass over many blocks finds out which patterns occur at all: it takes long to prepare, whatever it reads."""
    batch, size = list[Block](), 0
    for piece in pieces:
        if isinstance(piece, Found):
            yield piece
            continue
        batch.append(piece)
        size += len(piece.content)
        if size >= BLOCK or len(batch) >= BATCH:
            yield from _in_batch(batch, wanted)
            batch, size = [], 0
    yield from _in_batch(batch, wanted)


def _in_batch(batch: Sequence[Block], wanted: Patterns) -> Iterator[Found]:
    texts = [pattern.decode("latin-1") for pattern in (*wanted.words, *wanted.hashes)]
    blocks = pl.Series([block.content.decode("latin-1") for block in batch], dtype=pl.String)
    for block, matches in zip(batch, blocks.str.extract_many(texts, overlapping=True), strict=True):
        present = {text.encode("latin-1") for text in matches.unique()}
        words = [(_whole(word, wanted.words[word]), ID, word in wanted.distinct) for word in present & {*wanted.words}]
        hashes = [(re.compile(re.escape(digest)), HASH, True) for digest in present - {*wanted.words}]
        end = len(block.content) if block.length is None else block.first + block.length
        for pattern, how, distinct in (*words, *hashes):
            for match in pattern.finditer(block.content):
                if block.first <= match.start() < end:
                    yield Found(block.file, how + block.where, distinct or block.of_users)


def _whole(word: bytes, encoding: str = "utf-8") -> re.Pattern[bytes]:
    zeros = b"\0" * (len("a".encode(encoding)) - 1)
    letter = zeros + b"[0-9A-Za-z]" if encoding.endswith("be") else b"[0-9A-Za-z]" + zeros
    return re.compile(b"(?<!" + letter + b")" + re.escape(word) + b"(?!" + letter + b")")


def _in_column(file: str, name: str, column: pl.Series, wanted: Patterns, ours: bool) -> Iterator[Block | Found]:
    """What the cells of a column hold; `ours` is a table of merit, where a number is an id in columns of users only."""
    of_users, where = bool(USERS.search(name)) and not (ours and name == ROW_NUMBER), f" in the column {name}"
    if column.dtype.is_numeric():
        for how, number in _in_numbers(column, wanted):
            certain = how == HASH or of_users or _is_distinct(str(number))
            if certain or not ours:
                yield Found(file, how + where, certain)
    elif column.dtype in (pl.String, pl.Categorical, pl.Enum):
        text = column.cast(pl.String).str.join("\n").item() or ""
        yield Block(file, text.encode(), where=where, of_users=of_users)
    elif column.dtype == pl.Binary:
        yield Block(file, b"\n".join(column), where=where, of_users=of_users)


def _in_numbers(column: pl.Series, wanted: Patterns) -> Iterator[tuple[str, int]]:
    """Hashes of 64 bits and ids among numbers. Whole numbers are compared as such, whatever their type and sign."""
    if column.dtype.is_integer():
        kind = pl.Int64 if column.dtype.is_signed_integer() else pl.UInt64
        values = column.cast(kind, strict=False).drop_nulls().to_numpy().view(np.uint64)
    else:
        numbers = column.cast(pl.Float64).to_numpy()
        values = numbers[(numbers >= 0) & (numbers < 2**63) & (numbers % 1 == 0)].astype(np.uint64)
    for how, searched in ((HASH, wanted.numbers), (ID, wanted.ids)):
        if searched:
            yield from [(how, int(value)) for value in values[np.isin(values, np.array([*searched], dtype=np.uint64))]]
