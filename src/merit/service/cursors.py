"""Where the next page begins, as a word that means nothing to its reader and is good for one list only."""

from __future__ import annotations

import base64
import binascii
import json
from hashlib import sha256

from merit.core.errors import DataError

WRONG = "This cursor does not belong to this list, or the list has changed. Begin again without a cursor."


def write(place: int | str, *about: object) -> str:
    """The word for a place in a list; `about` tells which list, of which model, and `read` must be given the same."""
    told = json.dumps([place, _mark(about)]).encode()
    return base64.urlsafe_b64encode(told).decode().rstrip("=")


def read(cursor: str, *about: object) -> int | str:
    """The place that `write` was given with the same question and the same model."""
    try:
        place, mark = json.loads(base64.urlsafe_b64decode(cursor.encode() + b"=" * (-len(cursor) % 4)))
    except (ValueError, TypeError, binascii.Error):
        raise DataError(WRONG) from None
    if mark != _mark(about) or isinstance(place, bool) or not isinstance(place, int | str):
        raise DataError(WRONG)
    return place


def _mark(about: tuple[object, ...]) -> str:
    return sha256(json.dumps([str(each) for each in about]).encode()).hexdigest()[:12]
