"""User ids that the workspace never sees: pseudonyms, made with a secret key that lies elsewhere.

    merit pseudonyms key ~/keys/shop            # once; its owner alone can read it
    [source]
    pseudonyms = "~/keys/shop"                  # every id is replaced as it is read
    merit --key ~/keys/shop model interests runs/shop u42

A pseudonym is a keyed hash (BLAKE2b) with the number of its key in front. Whoever has no key can neither make one nor
confirm a guess; whoever has it makes the same one again, so a user can be looked up, joined and erased. It cannot be
turned back: `restore` finds ids again by going through a list of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path

import polars as pl
from pydantic import Field

from merit.core import artifacts, key_files
from merit.core.artifacts import MANIFEST
from merit.core.config import Frozen
from merit.core.errors import ConfigError, MeritError
from merit.data.schema import SourceTables

SHAPE = re.compile(r"p-([0-9a-f]{8})-[0-9a-f]{32}")
PERSON, ORDER = b"merit user", b"merit order"  # the same text as a user and as an order are two pseudonyms


class WithPseudonyms(Frozen):
    """The setting of a source whose ids are replaced."""

    pseudonyms: Path | None = Field(None, exclude_if=lambda value: value is None)
    """A key file (`merit pseudonyms key FILE`) outside the run: user and order ids are replaced by keyed hashes."""


@dataclass(frozen=True)
class PseudonymKey:
    """A secret, and the file it is in. It is never printed with an id."""

    secret: bytes
    path: Path

    def __repr__(self) -> str:
        return f"<key {self.number}>"

    @property
    def number(self) -> str:
        """Eight hexadecimal digits that tell keys apart, and give nothing of the secret away."""
        return blake2b(key=self.secret, digest_size=4, person=b"merit key").hexdigest()

    def of(self, ids: Iterable[str], kind: bytes = PERSON) -> list[str]:
        """The pseudonym of each id. What is one of this key already stays."""
        start = f"p-{self.number}-"
        return [
            text
            if text.startswith(start) and SHAPE.fullmatch(text)
            else start + blake2b(text.encode(), key=self.secret, digest_size=16, person=kind).hexdigest()
            for text in ids
        ]

    def column(self, ids: pl.Expr, kind: bytes = PERSON) -> pl.Expr:
        """The same of a column, each text of a batch once; null and empty ids stay what they are."""

        def replaced(batch: pl.Series) -> pl.Series:
            distinct = batch.drop_nulls().unique()
            hashes = pl.Series(self.of(distinct.to_list(), kind), dtype=pl.String)
            return batch.replace_strict(distinct, hashes, default=None, return_dtype=pl.String)

        hashed = ids.map_batches(replaced, return_dtype=pl.String, is_elementwise=True)
        return pl.when(ids != "").then(hashed).otherwise(ids)


# --- keys ------------------------------------------------------------------------------------------------------------


def create(path: Path) -> PseudonymKey:
    """A new key, which nobody but its owner may read. One that is there is never written over."""
    path = path.expanduser()
    if not path.exists():
        require_apart(path)
    key_files.create(path)
    return read(path)


def read(path: Path) -> PseudonymKey:
    """The key in a file, unless others could read it, or it lies beside what it protects."""
    path = path.expanduser()
    secret = key_files.read(path, "merit pseudonyms key")
    require_apart(path)
    return PseudonymKey(secret, path)


def require_apart(path: Path, run: Path | None = None) -> None:
    """Refuse a file with a key, or with real ids, inside an artifact, or in the folder of a run."""
    around = path.expanduser().resolve().parents
    inside = [folder for folder in around if _is_artifact(folder) or (run and folder == run.resolve())]
    beside = [around[0]] if any(_is_artifact(file.parent) for file in around[0].glob(f"*/{MANIFEST}")) else []
    if refused := [*inside, *beside]:
        raise ConfigError(f"{path} lies in {refused[0]}, which must hold pseudonyms only. Name a place elsewhere.")


def _is_artifact(folder: Path) -> bool:
    try:
        artifacts.load(folder, verify=False)
    except MeritError:
        return False
    return True


_in_use: list[PseudonymKey] = []  # one for a process, as the one workspace it works on has one


def use(path: Path | None) -> None:
    """From now on, ids that come from outside are real ones."""
    _in_use[:] = [read(path)] if path else []


def in_use() -> PseudonymKey:
    """The key that `use` was given last; where there is none, an error that asks for `--key`."""
    if not _in_use:
        raise ConfigError("This needs the key of the pseudonyms. Give it: `merit --key FILE …`.")
    return _in_use[0]


# --- ids that come in ------------------------------------------------------------------------------------------------


def hide(tables: SourceTables, key: PseudonymKey) -> SourceTables:
    """The interactions with pseudonyms wherever an id stood, bad rows and their reasons too."""
    user, order, problem = key.column(pl.col("user_id")), key.column(pl.col("order_id"), ORDER), pl.col("problem")
    # Where columns have slipped, an id can stand anywhere in a bad row: only the number of the row is reported.
    safe = problem.str.replace(r"(?s)'.*'", "(hidden)").str.replace(r"(?s)^(\w+) .* is not a whole", "$1 is no whole")
    original = pl.col("original").struct.with_fields(user_id=user, order_id=order)
    interactions = tables.interactions.with_columns(
        user_id=user, order_id=order, problem=safe, original=pl.when(problem.is_null()).then(original)
    )
    return replace(tables, interactions=interactions, inputs=tables.inputs | {"pseudonyms": key.number})


def column(name: str) -> pl.Expr:
    """The users of a table from outside, as text: as the workspace knows them, where a key is in use."""
    ids = pl.col(name).cast(pl.String)
    return _in_use[0].column(ids) if _in_use else ids


def stored_ids(ids: Sequence[str], stored: Iterable[str | None]) -> list[str]:
    """Ids that somebody typed, as the workspace stores them; `stored` are ids of it, one is enough."""
    numbers = {number_of(user) for user in stored if user}
    strange = sum(number_of(user) is None for user in ids)
    if numbers <= {None} or not strange:
        return list(ids)
    listed = ", ".join(sorted(number for number in numbers if number))
    if not _in_use:
        raise ConfigError(
            f"The users here are pseudonyms of key {listed}, and {strange:,} of the ids asked for are not. "
            "Give the key: `merit --key FILE …`."
        )
    key = _in_use[0]
    if key.number not in numbers:
        raise ConfigError(
            f"{key.path} is key {key.number}, but the users here are of key {listed}. Give that one: "
            "`merit --key FILE …`."
        )
    return key.of(ids)


def number_of(user: str) -> str | None:
    """The number of the key that made a pseudonym; None for other ids."""
    match = SHAPE.fullmatch(user)
    return match[1] if match else None
