"""Propensities over text interests, ranked both ways: interests for a user, users for an interest."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from merit.core.fitting import fit
    from merit.retrieval.model import Model
    from merit.retrieval.opening import load

PLACES = {"Model": "merit.retrieval.model", "fit": "merit.core.fitting", "load": "merit.retrieval.opening"}
__all__ = ["Model", "fit", "load"]
__version__ = "0.2.0"


def __getattr__(name: str) -> Any:
    """`merit.fit`, `merit.load`, `merit.Model`, imported when they are first asked for: `import merit` stays free."""
    if name in PLACES:
        return getattr(import_module(PLACES[name]), name)
    raise AttributeError(f"module 'merit' has no attribute '{name}'")
