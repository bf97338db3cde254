"""Documents and their labels, as the Extreme Classification Repository and the tools around it store them.

    raw text    trn.json, tst.json   a line a document: {"uid", "title", "content", "target_ind", "target_rel"}
                lbl.json             a line a label: {"uid", "title"}; target_ind counts these lines from 0
    plain text  trn_X.txt, tst_X.txt a line a document
                trn_X_Y.txt, …       `rows labels`, then a line a document: `label:value label:value …`; or, in the
                                     bag-of-words format, `rows features labels`, then `label,label feature:value …`
                Y.txt                a line a label

Every file may be .gz. Who is tested is as given. `filter_labels_train.txt` and `filter_labels_test.txt` (`document
label`, counted from 0) name pairs that say nothing, mostly a document that is its own label.

Files are read line by line. A line that cannot be used is given back with its problem; files that do not fit each
other are refused, for then no line means what it says.
"""

from __future__ import annotations

import gzip
import json
import math
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal

from merit.core.errors import DataError
from merit.data.sources.files import unpacked

Part = Literal["train", "test"]
PARTS: dict[Part, tuple[str, str]] = {"train": ("trn", "train"), "test": ("tst", "test")}
TEXTS = ("{0}_X.txt", "X.{0}.txt", "{1}_raw_texts.txt")
TARGETS = ("{0}_X_Y.txt", "{0}_Y.txt", "Y.{0}.txt", "{1}_labels.txt", "{1}.txt")
LABELS = ("Y.txt", "lbl_Y.txt", "label_texts.txt", "output-items.txt")
FILTER = "filter_labels_{1}.txt"
LONGEST = 1 << 26  # bytes of a line; a longer one is no document but a file without line breaks


@dataclass(frozen=True, slots=True)
class Document:
    """A line of a file of documents."""

    file: Path
    line: int
    name: str = ""
    text: str = ""
    labels: tuple[int, ...] = ()
    """Each once, ascending; lines of the label file, counted from 0."""
    problem: str | None = None
    """Why it cannot be used."""


@dataclass(frozen=True, slots=True)
class Label:
    """A line of the file of labels."""

    file: Path
    line: int
    text: str = ""
    problem: str | None = None


@dataclass(frozen=True)
class Folder:
    """Which files hold what."""

    labels: Path
    documents: Mapping[Part, tuple[Path, Path | None]]
    """A file with everything in it (raw text), or a file of texts and one of labels."""
    filters: dict[Part, Path] = field(default_factory=dict)

    def files(self) -> list[Path]:
        """All of them, each once and sorted, for the fingerprint of the source."""
        parts = [file for pair in self.documents.values() for file in pair if file]
        return sorted({self.labels, *parts, *self.filters.values()})


def find(folder: Path) -> Folder:
    """The files of a data set, in either layout."""
    if not folder.is_dir():
        raise DataError(f"{folder} is no folder. Name the one that holds trn.json, tst.json and lbl.json.")
    filters = {part: file for part in PARTS if (file := _named(folder, (FILTER,), part))}
    if labels := _named(folder, ("lbl.json",)):
        documents = {part: (_needed(folder, ("{0}.json",), part, "documents"), None) for part in PARTS}
        return Folder(labels, documents, filters)
    labels = _needed(folder, LABELS, "train", "label texts (or lbl.json)")
    pairs = {
        part: (_needed(folder, TEXTS, part, "document texts"), _needed(folder, TARGETS, part, "documents' labels"))
        for part in PARTS
    }
    return Folder(labels, pairs, filters)


def labels(folder: Folder) -> Iterator[Label]:
    """All labels in the order that documents count them by, unusable ones among them."""
    raw = ".json" in folder.labels.suffixes
    for line, content in lines(folder.labels):
        try:
            text = _text(_object(content), "title") if raw else _decoded(content)
            yield Label(folder.labels, line, text, None if text.strip() else "the label has no text")
        except ValueError as error:
            yield Label(folder.labels, line, problem=str(error))


def count(folder: Folder) -> int:
    """How many labels there are."""
    return sum(1 for _ in lines(folder.labels))


def documents(folder: Folder, part: Part, n_labels: int, content: bool = True) -> Iterator[Document]:
    """The documents of a part in order, unusable ones among them. `content`: whether more than titles is read."""
    texts, targets = folder.documents[part]
    nothing = filtered(folder, part, n_labels)
    found = _raw(texts, n_labels, content) if targets is None else _plain(texts, targets, n_labels)
    for each in found:
        idle = nothing.get(each.line - 1)
        yield replace(each, labels=tuple(label for label in each.labels if label not in idle)) if idle else each


def filtered(folder: Folder, part: Part, n_labels: int) -> dict[int, set[int]]:
    """Labels that say nothing, by document, both counted from 0. They are neither right nor wrong."""
    found: dict[int, set[int]] = {}
    if part not in folder.filters:
        return found
    file = folder.filters[part]
    for line, content in lines(file):
        try:
            document, label = map(int, content.split())
        except ValueError:
            raise DataError(f"{file}, line {line} is not `document label`. Mend it, or remove the file.") from None
        if document < 0 or not 0 <= label < n_labels:
            raise DataError(f"{file}, line {line}: there is no document {document} or no label {label}. Mend it.")
        found.setdefault(document, set()).add(label)
    return found


def lines(file: Path) -> Iterator[tuple[int, bytes]]:
    """Every line with its number, without its end. Never more than one line is in memory."""
    try:
        with unpacked(file) as opened:
            number = 0
            while found := opened.readline(LONGEST + 1):
                number += 1
                if len(found) > LONGEST:
                    raise DataError(f"{file}, line {number} is longer than {LONGEST >> 20} MiB: no text is. Mend it.")
                yield number, found.rstrip(b"\r\n")
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{file} is cut off or damaged ({error}). Copy or compress it again.") from None
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror}. Mend its permissions, or copy it again.") from None
    if not number:
        raise DataError(f"{file} is empty. Copy it again, or name another folder.")


# --- raw text --------------------------------------------------------------------------------------------------------


def _raw(file: Path, n_labels: int, content: bool) -> Iterator[Document]:
    for line, found in lines(file):
        try:
            row = _object(found)
            said = " ".join(filter(None, [_text(row, "title"), _text(row, "content") if content else ""]))
            uid = row.get("uid")
            name = str(uid) if isinstance(uid, int) else _text(row, "uid")
            yield _checked(file, line, name, said, _targets(row), n_labels)
        except ValueError as error:
            yield Document(file, line, problem=str(error))


def _object(content: bytes) -> dict[str, Any]:
    try:
        value = json.loads(_decoded(content))
    except RecursionError:
        raise ValueError("it is nested too deeply to be a document") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON: {error.msg}: character {error.pos}") from None
    if not isinstance(value, dict):
        raise ValueError("it is no JSON object")
    return value


def _text(row: dict[str, Any], name: str) -> str:
    value = row.get(name) or ""
    if not isinstance(value, str):
        raise ValueError(f"its {name} is {type(value).__name__}, not text")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"its {name} holds half a character (a lone surrogate)") from None
    return value


def _targets(row: dict[str, Any]) -> list[int]:
    found, weights = row.get("target_ind"), row.get("target_rel")
    if not isinstance(found, list) or not all(type(label) is int for label in found):
        raise ValueError("its target_ind is no list of whole numbers")
    if weights is not None and (not isinstance(weights, list) or len(weights) != len(found)):
        raise ValueError("its target_rel has not as many numbers as its target_ind")
    return found


# --- plain text ------------------------------------------------------------------------------------------------------


def _plain(texts: Path, targets: Path, n_labels: int) -> Iterator[Document]:
    """Two files side by side. The header says how many lines there must be, and of which format they are."""
    said, given = lines(texts), lines(targets)
    rows, columns, parse = _header(targets, next(given)[1])
    if columns != n_labels:
        raise DataError(
            f"{targets} is about {columns:,} labels, but there are {n_labels:,} label texts. One is not whole."
        )
    number = 0
    for number, (text, listed) in enumerate(zip_longest(said, given), 1):
        if text is None or listed is None:
            short, other = (texts, targets) if text is None else (targets, texts)
            raise DataError(f"{short} ends before document {number:,}, but {other} goes on. Copy both again.")
        try:
            yield _checked(texts, number, str(number), _decoded(text[1]), parse(listed[1]), n_labels)
        except ValueError as error:
            yield Document(texts, number, problem=f"{error} ({targets.name}, line {listed[0]})")
    if number != rows:
        raise DataError(f"{targets} says {rows:,} rows in its header, but there are {number:,}. Copy it again.")


def _header(file: Path, line: bytes) -> tuple[int, int, Any]:
    """Rows, labels, and what reads a line."""
    sizes = line.split()
    if not all(size.isdigit() for size in sizes) or len(sizes) not in (2, 3):
        raise DataError(
            f"{file}, line 1 is neither `rows labels` nor `rows features labels`. Documents' labels are needed in the "
            "repository's text format; a matrix in .npz must be written as text first."
        )
    return int(sizes[0]), int(sizes[-1]), _sparse if len(sizes) == 2 else _listed


def _sparse(line: bytes) -> list[int]:
    """`label:value label:value`; a zero is no label."""
    pairs = [part.split(b":") for part in line.split()]
    if not all(len(pair) == 2 and pair[0].isdigit() for pair in pairs):
        raise ValueError("its labels are not written as `label:value`")
    values = [float(value) for _, value in pairs]
    if not all(map(math.isfinite, values)):
        raise ValueError("the value of a label is no number")
    return [int(label) for (label, _), value in zip(pairs, values, strict=True) if value]


def _listed(line: bytes) -> list[int]:
    """`label,label feature:value …`: a line without labels begins with a blank, or with its first feature."""
    first = line.split(b" ", 1)[0].strip()
    if not first or b":" in first:
        return []
    if not all(label.isdigit() for label in first.split(b",")):
        raise ValueError("its labels are not written as `label,label`")
    return [int(label) for label in first.split(b",")]


# --- both ------------------------------------------------------------------------------------------------------------


def _checked(file: Path, line: int, name: str, text: str, found: list[int], n_labels: int) -> Document:
    outside = next((label for label in found if not 0 <= label < n_labels), None)
    if outside is not None:
        raise ValueError(f"it has label {outside}, but labels are 0 to {n_labels - 1:,}")
    if not text.strip():
        raise ValueError("it has no text")
    return Document(file, line, name, text, tuple(sorted(set(found))))


def _decoded(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {content[error.start]:#04x} is not UTF-8") from None


def _named(folder: Path, names: tuple[str, ...], part: Part = "train") -> Path | None:
    """The first of these that is there, packed or not."""
    spelt = [name.format(*PARTS[part]) for name in names]
    return next((folder / file for name in spelt for file in (name, f"{name}.gz") if (folder / file).is_file()), None)


def _needed(folder: Path, names: tuple[str, ...], part: Part, what: str) -> Path:
    if found := _named(folder, names, part):
        return found
    spelt = ", ".join(name.format(*PARTS[part]) for name in names)
    raise DataError(f"{folder} has no file of {what}: looked for {spelt} (or .gz). Rename it to one of these.")
