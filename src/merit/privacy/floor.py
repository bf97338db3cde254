"""The fewest users that may be named together: fewer are a list of people, whoever asks for them and however."""

from __future__ import annotations

from merit.core.errors import PolicyError

SMALLEST = 100  # DESIGN 11: an audience of fewer users than this is a list of people, and is refused


def require_enough_named(users: int) -> None:
    """Refuse to name the few users who are the most likely of all to want something."""
    if users < SMALLEST:
        raise PolicyError(
            f"Fewer than {SMALLEST} users are not picked out by an interest: that would be a list of people, not an "
            f"audience. Ask for {SMALLEST} or more, or for scores of users whose ids you have (`merit model score`)."
        )
