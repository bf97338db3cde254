"""Studio's files as they lie in the folder, asked for anew each time: a page never meets the script of another version.
Vega's script is large and changes with its own version only: it may be kept an hour."""

from __future__ import annotations

from pathlib import Path

from starlette.concurrency import run_in_threadpool
from starlette.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from merit.service import bundle
from merit.service.bundle import Bundle

FRESH, KEPT = "no-cache", "public, max-age=3600"


class Pages(StaticFiles):
    """At every address that is no route and not under /v1/; no key is needed, as the files hold nobody's data."""

    def __init__(self, folder: Path, charts: Bundle) -> None:
        super().__init__(directory=folder, html=True)
        self._charts = charts

    async def get_response(self, path: str, scope: Scope) -> Response:
        """Vega's script is made first where it is not there yet, in a thread: other requests need not wait for it."""
        if path == bundle.NAME and scope["method"] in ("GET", "HEAD"):
            file = await run_in_threadpool(self._charts.file)
            return FileResponse(file, media_type="text/javascript", headers={"Cache-Control": KEPT})
        response = await super().get_response(path, scope)
        response.headers["Cache-Control"] = FRESH
        return response
