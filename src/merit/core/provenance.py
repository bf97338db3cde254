"""Where a figure comes from: the command that was given, the commit of the code, and the time."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

from merit import __version__

ROOT = Path(__file__).resolve().parents[3]


def command() -> str:
    """What was typed, without the folder of the program."""
    program, *words = sys.orig_argv or ["merit"]
    if words and Path(words[0]).name == "merit":  # an installed script: python is only how it starts
        program, *words = words
    return " ".join([Path(program).name, *words])


def now() -> str:
    """The time in UTC and ISO 8601, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


@lru_cache
def commit() -> str:
    """The commit of this code, with a + where files differ from it; the version where it is no checkout."""
    words = ["git", "-C", str(ROOT), "describe", "--always", "--dirty=+", "--exclude=*"]
    if (ROOT / ".git").exists():
        try:
            described = subprocess.run(words, capture_output=True, text=True)
        except OSError:  # no git on this machine
            return f"merit {__version__}"
        if described.stdout.strip():
            return described.stdout.strip()
    return f"merit {__version__}"
