"""Secrets: they are in environment variables, and what a driver quotes of one is cut out before anybody reads it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from urllib.parse import unquote, urlsplit

from merit.core.errors import ConfigError

SHORTEST = 3  # characters of what is looked for in messages: shorter ones are parts of words
NAMED = r"(?i)(?:password|passwd|pwd|token|secret|sslkey|access_?key)\w*\s*=\s*('[^']*'|[^&;\s]+)"


def read(variable: str, meaning: str) -> str:
    """The value of an environment variable; `meaning` tells what it has to be set to."""
    if not (value := os.environ.get(variable, "").strip()):
        raise ConfigError(f"The environment variable {variable} is not set. Set it to {meaning}.")
    return value


def cleared(text: str, *values: str) -> str:
    """A text on one line without these values and the passwords in them, in any spelling that a driver may quote."""
    forms = {form for value in values for form in (value, *_spellings(value)) if len(form) >= SHORTEST}
    for form in sorted(forms, key=len, reverse=True):
        text = text.replace(form, "…")
    return " ".join(text.split())


def _spellings(address: str) -> Iterator[str]:
    """The secrets in an address or a connection string, and the parts that a driver takes for a host or a name."""
    login = address.partition("://")[2].rpartition("@")[0].partition(":")[2]
    secrets = [login, *(found.strip("'") for found in re.findall(NAMED, address))]
    try:
        split = urlsplit(address)
        secrets += [split.password or "", split.query]
    except ValueError:
        pass  # no parser takes it, such as one with an unescaped slash
    for spelling in (form for secret in secrets for form in (secret, unquote(secret))):
        yield from (spelling, *re.split(r"[\s/:@?#&=]", spelling))
