"""merit serve and merit keys: a model as a service, and its API keys."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from merit.cli.options import AsJson, NewerLabels, Overrides, group
from merit.core import config, console, extras
from merit.core.artifacts import MANIFEST
from merit.core.errors import ConfigError, MissingArtifact, MissingDependency
from merit.privacy import pseudonyms
from merit.service import keys
from merit.service.keys import ApiKey

State = Annotated[Path, typer.Option(help="where the service keeps its keys and jobs")]
DEFAULT_STATE = Path("service")
DEMO = Path("runs/demo")  # where configs/demo.toml puts its run


def serve(
    folder: Annotated[Path | None, typer.Argument(help="a model, or the folder of a run that has one")] = None,
    demo: Annotated[bool, typer.Option("--demo", help="the run of `make demo`, with a key for this process")] = False,
    host: Annotated[str, typer.Option(help="anything but this machine needs a proxy with TLS in front")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535)] = 8000,
    state: State = DEFAULT_STATE,
    tables: Annotated[Path | None, typer.Option(help="a folder of tables that audiences may name in rules")] = None,
    labels: NewerLabels = None,
    verify: Annotated[bool, typer.Option(help="check every byte of the model first")] = True,
    override: Overrides = None,
    tls_in_front: Annotated[bool, typer.Option(help="a proxy with TLS stands in front: no warning")] = False,
    proxy: Annotated[
        Path | None, typer.Option(help="settings of a proxy that signs people in (docs/running.md)")
    ] = None,
) -> None:
    """Serve a model: Studio at /, the API under /v1. SIGHUP reloads the model."""
    if missing := extras.missing("serve"):
        line = extras.install_line("serve")
        raise MissingDependency(f"`merit serve` needs {', '.join(missing)}. Install them: {line}.")
    from merit.service import server
    from merit.service.people import TrustedProxy
    from merit.service.request_limits import Limits
    from merit.service.service import opened

    pseudonyms.use(None)  # a process on the network holds pseudonyms only
    limits = config.build(Limits, {}, override or [], origin="the command line")
    trusted = config.load(TrustedProxy, proxy) if proxy else None
    server.warn_if_unencrypted(host, tls_in_front)
    with (
        _served(folder, state, demo) as (run, kept, key, secret),
        opened(run, kept, labels, tables, limits, verify, [key] if key else [], trusted) as service,
    ):
        server.serve(service, host, port, secret)


@contextmanager
def _served(folder: Path | None, state: Path, demo: bool) -> Iterator[tuple[Path, Path, ApiKey | None, str | None]]:
    """What to serve, where its state is, and a key for this process alone with its secret: the demo leaves nothing."""
    if (folder is None) != demo:
        raise ConfigError("Name the folder of a run, `merit serve runs/shop`; or say --demo, and name none.")
    if folder:
        yield folder, state, None, None
        return
    if not (DEMO / "model" / MANIFEST).exists():
        raise MissingArtifact(f"There is no demo in {DEMO} yet. Make it with `make demo`; it takes some ten minutes.")
    with TemporaryDirectory(prefix="merit-demo-") as name:
        yield DEMO, Path(name) if state == DEFAULT_STATE else state, *keys.make("demo", ["read", "audience", "export"])


keys_app = group("keys", "API keys of a service: make, list, rotate and revoke them.")
KeyId = Annotated[str, typer.Argument(metavar="ID", help="as `merit keys list` shows it")]
Days = Annotated[float | None, typer.Option(help="days until it expires; without, it does not, or lives as long again")]


@keys_app.command()
def create(
    name: Annotated[str, typer.Argument(help="who will use it")],
    scope: Annotated[list[str], typer.Option(help=f"{', '.join(keys.SCOPES)}; may be repeated")],
    days: Days = None,
    state: State = DEFAULT_STATE,
) -> None:
    """Make a key and print it, this once: only a hash of it is stored."""
    key, secret = keys.create(state / keys.FILE, name, scope, days)
    console.tell(f"key {key.id} for {name}: {', '.join(key.scopes)}. It is not shown again.", key=key.id)
    console.stdout.print(secret, markup=False)


@keys_app.command(name="list")
def list_keys(state: State = DEFAULT_STATE, as_json: AsJson = False) -> None:
    """List the keys, without their secrets."""
    stored = keys.read(state / keys.FILE)
    if as_json:
        console.show_json([key.model_dump(exclude={"salt", "hash", "former"}) for key in stored])
    else:
        columns = ["id", "name", "scopes", "created", "rotated", "expires", "revoked"]
        rows = [
            (key.id, key.name, ", ".join(key.scopes), *(getattr(key, at) or "" for at in columns[3:])) for key in stored
        ]
        console.show_table("Keys", columns, rows)


@keys_app.command()
def rotate(
    number: KeyId,
    overlap: Annotated[float, typer.Option(help="hours for which the former secret is accepted, too")] = 24,
    days: Days = None,
    state: State = DEFAULT_STATE,
) -> None:
    """Give a key a new secret and print it, this once. The key keeps its scopes and its jobs."""
    key, secret = keys.rotate(state / keys.FILE, number, overlap, days)
    until = key.former.until if key.former else ""
    console.tell(f"key {key.id} ({key.name}): the former secret is accepted until {until}.", key=key.id)
    console.stdout.print(secret, markup=False)


@keys_app.command()
def revoke(
    number: KeyId,
    state: State = DEFAULT_STATE,
) -> None:
    """Refuse a key from now on. A running service notices at once."""
    key = keys.revoke(state / keys.FILE, number)
    console.tell(f"key {key.id} ({key.name}) is revoked", key=key.id)
