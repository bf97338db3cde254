"""Texts of a shop inside Markdown: shown as they are, and never read as markup."""

from __future__ import annotations

import re

_MARKUP = re.compile(r"[\\`*_\[\]<>|~]|&(?=#?\w+;)|(?<=\w):(?=//)|(?<=www)\.", re.IGNORECASE)


def plain(text: object) -> str:
    """The text on one line, with a backslash before all that Markdown or HTML would read as markup."""
    return _MARKUP.sub(lambda mark: "\\" + mark[0], " ".join(str(text).split()))
