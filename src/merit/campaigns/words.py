"""Figures as people read them."""

from __future__ import annotations

FEW = 50  # DESIGN 15.10: reports tell nothing exact about fewer users


def people(count: int, total: int) -> str:
    """12, 5000 → "fewer than 50 users"; 120, 5000 → "120 users (2.40 %)"."""
    return f"{count:,} users ({share(count / total, 2)})" if count >= FEW else f"fewer than {FEW} users"


def signed(value: float) -> str:
    """0.0023 → +0.23 %."""
    return f"{100 * value:+.2f} %".replace("-", "−")


def chance(probability: float) -> str:
    """Of a coincidence. Beyond one in a million the figure says nothing more."""
    return f"{probability:.2g}" if probability >= 1e-6 else "below one in a million"


def share(value: float, digits: int = 1) -> str:
    """Never 100 % and never 0 %: no test makes certain."""
    edge = 10.0**-digits
    if digits and value > 1 - edge / 100:
        return f"more than {100 - edge:.{digits}f} %"
    if digits and value < edge / 100:
        return f"less than {edge:.{digits}f} %"
    return f"{100 * value:.{digits}f} %"
