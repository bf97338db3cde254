"""Vega for Studio's charts: one script, made from the installed vl-convert and kept in the service's state.

A child process makes it: the engine that does is large, and the service has no other use for it.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from threading import Lock

from merit.core import files
from merit.core.errors import StorageError

NAME = "vega.js"  # its address


class Bundle:
    """The script in its folder, under vl-convert's version: after an upgrade another one is made."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / f"vega-{version('vl-convert-python')}.js"
        self._lock = Lock()

    def file(self) -> Path:
        """The script. The first caller has it made, in some seconds; others wait for it."""
        with self._lock:
            if not self._file.exists():
                command = [sys.executable, "-m", "merit.service.bundle", str(self._file)]
                if subprocess.run(command, capture_output=True).returncode:
                    raise StorageError("The charts' script cannot be made. Look whether vl-convert-python is whole.")
        return self._file


def write(out: Path) -> None:
    """The child."""
    import vl_convert

    files.write(out, vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;"))


if __name__ == "__main__":
    write(Path(sys.argv[1]))
