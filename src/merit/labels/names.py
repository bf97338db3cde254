"""What a label is called: the text people see, and the key under which two texts are the same label."""

from __future__ import annotations

import unicodedata


def clean(text: str) -> str:
    """The text as people see it: NFKC, single spaces, no control or invisible characters."""
    if not (text.isascii() and text.isprintable()):
        text = unicodedata.normalize("NFKC", "".join(filter(_visible, text)))
    return " ".join(text.split()).strip(_JOINERS + " ")


def normalise(text: str) -> str:
    """The key under which labels are the same: cleaned, casefolded, without punctuation at the edges."""
    key = _without_edges(clean(clean(text).casefold().translate(_VARIATION)))
    return key if key == text else normalise(key)  # case folding can denormalise, and the other way round


def skeleton(text: str) -> str:
    """The letters, digits and signs of a text, without accents, punctuation and blanks."""
    parts = unicodedata.normalize("NFKD", normalise(text))
    return "".join(char for char in parts if unicodedata.category(char)[0] not in "MPZ")


_JOINERS = "\u200c\u200d"  # invisible, but Persian words and family emoji are made with them
_VARIATION = {0xFE0E: None, 0xFE0F: None}  # "text style" and "emoji style" of one and the same sign
_ENDINGS = "#%"  # "C#" is not "C", and "100%" is not "100"


def _visible(char: str) -> bool:
    """Bidirectional overrides and tag characters (Cf) can hide text from a reader, so they go with the controls.

    Unassigned code points stay: this Python may be older than the newest emoji.
    """
    return char.isspace() or char in _JOINERS or unicodedata.category(char) not in ("Cc", "Cf", "Cs")


def _without_edges(text: str) -> str:
    edges = " " + "".join(char for char in text if unicodedata.category(char)[0] == "P")
    return text.lstrip(edges).rstrip("".join(char for char in edges if char not in _ENDINGS))
