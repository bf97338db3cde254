"""What people and broken exports write: any text, and the texts that upset parsers most."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

CASES = int(os.environ.get("FUZZ_CASES", "0"))  # of each test: `make fuzz`
AWKWARD = (
    "",
    " ",
    "\x00",
    "null",
    "NaN",
    "1e999",
    "-0",
    "true",
    "\ufeff",
    "﷽",
    "💐",
    "a" * 300,
    '"',
    "'",
    "\\",
    "\n",
    "..",
    "=",
)
TEXT = st.text(max_size=20) | st.sampled_from(AWKWARD)
PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | TEXT
VALUES = st.recursive(
    PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3), max_leaves=8
)


def cases(usual: int) -> settings:
    """So many of them, or as many as are asked for."""
    patient = [HealthCheck.too_slow, HealthCheck.data_too_large]
    return settings(max_examples=CASES or usual, deadline=None, suppress_health_check=patient)


@st.composite
def edited(draw: st.DrawFn, text: str) -> str:
    """A text of which a few stretches were replaced, doubled or lost."""
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        stop = min(len(text), start + draw(st.integers(0, 12)))
        text = text[:start] + draw(TEXT | st.just(text[start:stop] * 2)) + text[stop:]
    return text
