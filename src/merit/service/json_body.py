"""JSON that means one thing only: no NaN, no infinities, no number beyond 64 bits, no half of a surrogate pair, no key
twice. Whatever passes here can be computed with, stored and told again."""

from __future__ import annotations

import json
import math
from typing import Any

from merit.core.errors import DataError

LARGEST = 2**63 - 1
DIGITS = 25  # of a whole number as text: Python takes time that grows with the square of it


def parsed(raw: bytes | str) -> Any:
    """The values of a JSON text in UTF-8, or what is wrong with it."""
    try:
        text = raw.decode("utf-8") if isinstance(raw, bytes) else raw
        values = json.loads(
            text, parse_constant=_no_constant, parse_int=_whole, parse_float=_finite, object_pairs_hook=_once
        )
        json.dumps(values, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise DataError(
            "A text holds half of a surrogate pair, which is no character. Send whole characters."
        ) from None
    except UnicodeDecodeError:
        raise DataError("The body is not UTF-8. Encode it so.") from None
    except RecursionError:
        raise DataError("The JSON is nested too deeply. Flatten it.") from None
    except json.JSONDecodeError as error:
        raise DataError(f"The body is no JSON: {error}. Mend it there.") from None
    return values


def _no_constant(word: str) -> Any:
    raise DataError(f"{word} is no number that can be computed with. Leave the value out, or send a finite one.")


def _whole(digits: str) -> int:
    if len(digits) > DIGITS or abs(number := int(digits)) > LARGEST:
        raise DataError(f"A whole number is beyond 64 bits ({digits[:12]}…). Send a smaller one.")
    return -number if digits.startswith("-") else number


def _finite(digits: str) -> float:
    if not math.isfinite(number := float(digits)):
        raise DataError(f"{digits[:20]} is beyond what a number can hold. Send a smaller one.")
    return number


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f"The key {twice!r} is set twice. Keep one of the two.")
    return values
