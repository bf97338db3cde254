"""Errors as RFC 9457 problems, and messages without the server's paths, users and values.

A problem says what is wrong, how to fix it, and the id of the request in the log.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import polars as pl
from starlette.responses import Response

from merit.core.errors import (
    ConfigError,
    DamagedArtifact,
    DataError,
    MeritError,
    MissingArtifact,
    MissingDependency,
    PolicyError,
    StorageError,
)
from merit.service.schemas import Fault, Problem

# What the middleware leaves in the scope of a request; of a body, whether the route expects one.
ID, ROUTE, KEY, BODY = "merit.request", "merit.route", "merit.key", "merit.body"
MEDIA = "application/problem+json"
QUOTED = re.compile(r"'([^']*)'")
VALUE = re.compile(r"'(?:[^'\\]|\\.)*'|`[^`]*`" + r'|"(?:[^"\\]|\\.)*"')  # as Python and the readers quote a text


class Refusal(Exception):
    """A request that the service itself refuses."""

    def __init__(
        self,
        status: int,
        title: str,
        detail: str,
        remedy: str,
        headers: Mapping[str, str] | None = None,
        errors: Sequence[Fault] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status, self.title, self.detail, self.remedy = status, title, detail, remedy
        self.headers, self.errors = dict(headers or {}), list(errors) if errors else None


# status, title, and a remedy for messages of one sentence
KINDS: dict[type[MeritError], tuple[int, str, str]] = {
    ConfigError: (422, "The request does not fit", "Correct what is named and send it again."),
    DataError: (422, "This cannot be answered", "Correct what is named and send it again."),
    MissingArtifact: (404, "Not found", "Ask for something that is listed."),
    DamagedArtifact: (409, "Damaged", "Tell the operator: the artifact must be made again."),
    MissingDependency: (409, "Not installed", "Tell the operator what is missing."),
    StorageError: (409, "The file system refused", "Tell the operator: there is no space or no permission."),
    PolicyError: (403, "Blocked by the policy", "Choose another interest, or more users; see docs/policy.md."),
}
OTHER = (409, "Refused", "Tell the operator.")
UNEXPECTED = Refusal(
    500,
    "Something went wrong",
    "An unexpected error occurred in the service. Nothing was changed.",
    "Tell the operator the request id: the log knows more.",
)
LAST_SENTENCE = re.compile(r"^(?P<detail>.*[.!?])\s+(?P<remedy>[A-Z`][^.]*(?:\.\w[^.]*)*\.?\)?)$", re.DOTALL)


def refusal(error: MeritError, message: str) -> Refusal:
    """The refusal of an error; the last sentence of `message`, its redacted text, is the remedy."""
    status, title, usual = KINDS.get(type(error), OTHER)
    split = LAST_SENTENCE.match(message)
    return Refusal(status, title, split["detail"] if split else message, split["remedy"] if split else usual)


def response(refused: Refusal, request_id: str) -> Response:
    """The refusal as application/problem+json, with its status and headers; `errors` only where there are some."""
    problem = Problem.model_validate(vars(refused) | {"request_id": request_id})
    return Response(problem.model_dump_json(exclude_none=True), refused.status, refused.headers, MEDIA)


def without_paths(message: str, folders: Iterable[Path | None]) -> str:
    """A message with names inside these folders only: callers do not know the server's paths."""
    names = {str(path) for folder in folders if folder for path in (folder, folder.resolve())}
    for name in sorted(names, key=len, reverse=True):
        message = message.replace(f"{name}/", "").replace(name, "the folder")
    return message


def without_users(message: str, users: pl.Series) -> str:
    """A message in which no quoted text is the id of one of these users."""
    quoted = set(QUOTED.findall(message))
    ids = set(users.filter(users.is_in(list(quoted)))) if quoted else set()
    return QUOTED.sub(lambda text: "'…'" if text[1] in ids else text[0], message)


def without_values(message: str, names: Iterable[str]) -> str:
    """A message about a table that quotes these names of columns and arms, and no value of the table."""
    allowed = set(names)
    return VALUE.sub(lambda text: text[0] if text[0][1:-1] in allowed else "'…'", message)
