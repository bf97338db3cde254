"""Studio's files, and Vega for its charts: one script, made from the installed vl-convert and kept in the state folder.

Files are revalidated at each request, so that a page never gets the script of another version. Vega's script is large
and changes with its version only: browsers may keep it an hour.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from threading import Lock

from starlette.concurrency import run_in_threadpool
from starlette.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from merit.core import files
from merit.core.errors import StorageError

STUDIO = Path(__file__).parent / "studio"
VEGA = "vega.js"  # its address
NO_CACHE, CACHED = "no-cache", "public, max-age=3600"


class VegaScript:
    """The script, named by vl-convert's version: after an upgrade another one is made.

    A child process makes it: the engine it needs is large, and the service has no other use for it.
    """

    def __init__(self, folder: Path) -> None:
        self._file = folder / f"vega-{version('vl-convert-python')}.js"
        self._lock = Lock()

    def file(self) -> Path:
        """The path of the script. The first call makes it, in some seconds; others wait for it."""
        with self._lock:
            if not self._file.exists():
                command = [sys.executable, "-m", "merit.service.pages", str(self._file)]
                if subprocess.run(command, capture_output=True).returncode:
                    raise StorageError("The charts' script cannot be made. Check the install of vl-convert-python.")
        return self._file


class Pages(StaticFiles):
    """At every address that is no route and not under /v1/; no key is needed, as the files hold no user's data."""

    def __init__(self, vega: VegaScript) -> None:
        super().__init__(directory=STUDIO, html=True)
        self._vega = vega

    async def get_response(self, path: str, scope: Scope) -> Response:
        """Vega's script is made in a thread where it is not there yet: other requests need not wait for it."""
        if path == VEGA and scope["method"] in ("GET", "HEAD"):
            file = await run_in_threadpool(self._vega.file)
            return FileResponse(file, media_type="text/javascript", headers={"Cache-Control": CACHED})
        response = await super().get_response(path, scope)
        response.headers["Cache-Control"] = NO_CACHE
        return response


if __name__ == "__main__":
    import vl_convert

    files.write(Path(sys.argv[1]), vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;"))
