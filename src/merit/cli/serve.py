"""merit serve: a model as a service."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from merit.cli.options import NewerLabels, Overrides
from merit.core import config
from merit.core.artifacts import MANIFEST
from merit.core.errors import ConfigError, MissingArtifact, MissingDependency
from merit.privacy import pseudonyms
from merit.service import keys
from merit.service.keys import ApiKey

State = Annotated[Path, typer.Option(help="where the service keeps its keys and jobs")]
DEFAULT_STATE = Path("service")
DEMO = Path("runs/demo")  # where configs/demo.toml puts its run
NEEDED = ("fastapi", "uvicorn", "prometheus_client", "python_multipart")


def serve(
    folder: Annotated[Path | None, typer.Argument(help="a model, or the folder of a run that has one")] = None,
    demo: Annotated[bool, typer.Option("--demo", help="what `make demo` made, with a key for this once")] = False,
    host: Annotated[str, typer.Option(help="anything but this machine needs a proxy with TLS in front")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535)] = 8000,
    state: State = DEFAULT_STATE,
    tables: Annotated[Path | None, typer.Option(help="a folder of tables that audiences may name in rules")] = None,
    labels: NewerLabels = None,
    verify: Annotated[bool, typer.Option(help="check every byte of the model first")] = True,
    override: Overrides = None,
    tls_in_front: Annotated[bool, typer.Option(help="a proxy with TLS stands in front: no warning")] = False,
) -> None:
    """Serve a model: Studio at /, the API under /v1. SIGHUP reloads the model."""
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        raise MissingDependency(f"`merit serve` needs {', '.join(missing)}. Install them: pip install 'merit[serve]'.")
    from merit.service import server
    from merit.service.limits import Limits

    pseudonyms.use(None)  # what the network can reach knows pseudonyms only

    limits = config.build(Limits, {}, override or [], origin="the command line")
    with _shown(folder, state, demo) as (place, kept, guest):
        server.serve(place, kept, host, port, labels, tables, limits, verify, tls_in_front, guest)


@contextmanager
def _shown(folder: Path | None, state: Path, demo: bool) -> Iterator[tuple[Path, Path, tuple[ApiKey, str] | None]]:
    """What to serve, where its state is, and a key for this process alone: the demo leaves nothing behind."""
    if (folder is None) != demo:
        raise ConfigError("Name the folder of a run, `merit serve runs/shop`; or say --demo, and name none.")
    if folder:
        yield folder, state, None
        return
    if not (DEMO / "model" / MANIFEST).exists():
        raise MissingArtifact(f"There is no demo in {DEMO} yet. Make it with `make demo`; it takes some ten minutes.")
    guest = keys.make("demo", ["read", "audience", "export"])
    if state != DEFAULT_STATE:
        yield DEMO, state, guest
    else:
        with TemporaryDirectory(prefix="merit-demo-") as name:
            yield DEMO, Path(name), guest
