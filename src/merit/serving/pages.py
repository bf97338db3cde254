"""Studio's files as they lie in the folder. Pages are asked for anew each time; what they use may be kept an hour."""

from __future__ import annotations

import os
from pathlib import Path

from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

KEPT = "public, max-age=3600"


class Pages(StaticFiles):
    def __init__(self, folder: Path) -> None:
        super().__init__(directory=folder, html=True)

    def file_response(
        self, full_path: str | os.PathLike[str], stat_result: os.stat_result, scope: Scope, status_code: int = 200
    ) -> Response:
        response = super().file_response(full_path, stat_result, scope, status_code)
        response.headers["Cache-Control"] = "no-cache" if str(full_path).endswith(".html") else KEPT
        return response
