"""Tables of users on the server, by their names in one folder; and messages without the server's paths and people."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from merit.campaigns.audiences.request import AudienceRequest
from merit.core.errors import ConfigError, DataError
from merit.retrieval.model import Model
from merit.service.limits import MOST_RULES

NAME = re.compile(r"\w[\w .-]*(/\w[\w .-]*)*")
QUOTED = re.compile(r"'([^']*)'")
VALUE = re.compile(r"'(?:[^'\\]|\\.)*'|`[^`]*`" + r'|"(?:[^"\\]|\\.)*"')  # as Python and the readers quote a text


def located(request: AudienceRequest, tables: Path | None) -> AudienceRequest:
    """The request with every table where it is on the server. A name leads into the folder of tables, or nowhere."""
    if len(request.rules) > MOST_RULES:
        raise ConfigError(
            f"An audience may have {MOST_RULES} rules here; this one has {len(request.rules)}. Merge some."
        )
    changes: dict[str, Any] = {
        "rules": tuple(
            rule.model_copy(update={"table": found(rule.table, tables)}) if rule.table else rule
            for rule in request.rules
        )
    }
    if request.lookalike:
        place = found(request.lookalike.table, tables)
        changes["lookalike"] = request.lookalike.model_copy(update={"table": place})
    return request.model_copy(update=changes)


def found(name: Path, tables: Path | None) -> Path:
    """Where a table of this name is."""
    if tables is None:
        raise ConfigError(
            "This service has no tables. Leave the rule out, or start it with `merit serve … --tables FOLDER`."
        )
    root = tables.resolve()
    if not NAME.fullmatch(str(name)) or not (place := (root / name).resolve()).is_relative_to(root):
        raise ConfigError(
            "A table is named by its path inside the service's folder of tables, such as customers.parquet."
        )
    if not place.exists():
        raise DataError(f"There is no table '{name}'. Ask the operator to put it there.")
    return place


def without_paths(told: str, folders: Iterable[Path | None]) -> str:
    """A message for someone who does not know the server's folders, and need not."""
    named = {str(each) for folder in folders if folder for each in (folder, folder.resolve())}
    for folder in sorted(named, key=len, reverse=True):
        told = told.replace(f"{folder}/", "").replace(folder, "the folder")
    return told


def without_people(told: str, model: Model) -> str:
    """A message about an audience names no user, not even as an example."""
    quoted = set(QUOTED.findall(told))
    known = set(model.users["user_id"].filter(model.users["user_id"].is_in(list(quoted)))) if quoted else set()
    return QUOTED.sub(lambda found: "'…'" if found[1] in known else found[0], told)


def without_values(told: str, names: Iterable[str]) -> str:
    """A message about a table may say how its columns and arms are called, and nothing that is written in it."""
    said = set(names)
    return VALUE.sub(lambda found: found[0] if found[0][1:-1] in said else "'…'", told)
