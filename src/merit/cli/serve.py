"""merit serve: a model as a service."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from merit import config
from merit.cli.options import ModelFolder, NewerLabels, Overrides
from merit.errors import MissingDependency

State = Annotated[Path, typer.Option(help="where the service keeps its keys and jobs")]
DEFAULT_STATE = Path("service")
NEEDED = ("fastapi", "uvicorn", "prometheus_client", "python_multipart")


def serve(
    folder: ModelFolder,
    host: Annotated[str, typer.Option(help="anything but this machine needs a proxy with TLS in front")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535)] = 8000,
    state: State = DEFAULT_STATE,
    tables: Annotated[Path | None, typer.Option(help="a folder of tables that audiences may name in rules")] = None,
    labels: NewerLabels = None,
    verify: Annotated[bool, typer.Option(help="check every byte of the model first")] = True,
    override: Overrides = None,
    tls_in_front: Annotated[bool, typer.Option(help="a proxy with TLS stands in front: no warning")] = False,
) -> None:
    """Serve a model: the API under /v1 and a page to start from. SIGHUP reloads the model."""
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        raise MissingDependency(f"`merit serve` needs {', '.join(missing)}. Install them: pip install 'merit[serve]'.")
    from merit.serving import server
    from merit.serving.limits import Limits

    limits = config.build(Limits, {}, override or [], origin="the command line")
    server.serve(folder, state, host, port, labels, tables, limits, verify, tls_in_front)
