"""How the folders to be purged know a user: by the id itself, by a pseudonym, or, in one run and another, by both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import polars as pl

from merit.core.errors import ConfigError
from merit.data.sources.files import reading
from merit.privacy import pseudonyms
from merit.privacy.erasure import workspace

USER = "user_id"


def forms(users: Sequence[str], folders: Sequence[Path]) -> list[str]:
    """The users in every form that occurs. Refused where one cannot be made: an erasure must not pass anybody over."""
    met = {pseudonyms.number_of(user): user for user in _some(folders)}
    numbers = sorted(number for number in met if number)
    if len(numbers) > 1:
        raise ConfigError(
            f"These folders hold pseudonyms of {len(numbers)} keys ({', '.join(numbers)}). Erase them folder by "
            "folder, each with its key."
        )
    hidden = pseudonyms.asked(users, [met[number] for number in numbers])
    return list(dict.fromkeys([*users, *hidden] if None in met else hidden))


def _some(folders: Sequence[Path]) -> Iterator[str]:
    """A user of every table of users."""
    for artifact in workspace.find(folders):
        for name in artifact.manifest.files:
            if name.endswith(".parquet"):
                yield from _first(artifact.file(name))


def _first(table: Path) -> list[str]:
    """A user of a table, if it is one of users."""
    with reading((table,)):
        rows = pl.scan_parquet(table)
        return rows.select(USER).head(1).collect()[USER].drop_nulls().to_list() if USER in rows.collect_schema() else []
