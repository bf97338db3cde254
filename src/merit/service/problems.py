"""Errors as RFC 9457 problems: what is wrong, what mends it, and the number under which the log knows the request."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

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

MEDIA = "application/problem+json"


class Refusal(Exception):
    """A request that is refused for a reason of the service's own."""

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
    ConfigError: (422, "The request does not fit", "Mend what is named and ask again."),
    DataError: (422, "This cannot be answered", "Mend what is named and ask again."),
    MissingArtifact: (404, "Not there", "Ask for something that is listed."),
    DamagedArtifact: (409, "Damaged", "Tell the operator: the artifact must be made again."),
    MissingDependency: (409, "Not installed", "Tell the operator what is missing."),
    StorageError: (409, "The file system refused", "Tell the operator: there is no space or no permission."),
    PolicyError: (403, "Blocked by the policy", "Choose another interest, or more users; see docs/policy.md."),
}
OTHER = (409, "Refused", "Tell the operator.")
LAST_SENTENCE = re.compile(r"^(?P<detail>.*[.!?])\s+(?P<remedy>[A-Z`][^.]*(?:\.\w[^.]*)*\.?\)?)$", re.DOTALL)


def refusal(error: MeritError, told: str) -> Refusal:
    """An error meant for a person, whose last sentence is the remedy; `told` is its text without server paths."""
    status, title, usual = KINDS.get(type(error), OTHER)
    split = LAST_SENTENCE.match(told)
    return Refusal(status, title, split["detail"] if split else told, split["remedy"] if split else usual)


def response(refused: Refusal, request_id: str) -> Response:
    """The refusal as application/problem+json, with its status and headers; `errors` only where there are some."""
    problem = Problem(
        title=refused.title,
        status=refused.status,
        detail=refused.detail,
        remedy=refused.remedy,
        request_id=request_id,
        errors=refused.errors,
    )
    content = problem.model_dump_json(exclude_none=True)
    return Response(content, refused.status, refused.headers, MEDIA)


UNEXPECTED = Refusal(
    500,
    "Something went wrong",
    "The service met an error that it does not know. Nothing was changed.",
    "Tell the operator the request id: the log knows more.",
)
