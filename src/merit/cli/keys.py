"""merit keys: who may ask a service for what."""

from __future__ import annotations

from typing import Annotated

import typer

from merit.cli.options import AsJson
from merit.cli.serve import DEFAULT_STATE, State
from merit.core import console
from merit.service import keys

keys_app = typer.Typer(help="API keys of a service: make, list and revoke them.", no_args_is_help=True)


@keys_app.command()
def create(
    name: Annotated[str, typer.Argument(help="who will use it")],
    scope: Annotated[list[str], typer.Option(help=f"{', '.join(keys.SCOPES)}; may be repeated")],
    state: State = DEFAULT_STATE,
) -> None:
    """Make a key and print it, this once: only a hash of it is kept."""
    key, secret = keys.create(state / keys.FILE, name, scope)
    console.tell(f"key {key.id} for {name}: {', '.join(key.scopes)}. It is not shown again.", key=key.id)
    console.stdout.print(secret, markup=False)


@keys_app.command(name="list")
def list_keys(state: State = DEFAULT_STATE, as_json: AsJson = False) -> None:
    """Tell which keys there are; never what they are."""
    known = [key.model_dump(exclude={"salt", "hash"}) for key in keys.read(state / keys.FILE)]
    if as_json:
        console.show_json(known)
    else:
        rows = [
            (key["id"], key["name"], ", ".join(key["scopes"]), key["created"], key["revoked"] or "") for key in known
        ]
        console.show_table("Keys", ["id", "name", "scopes", "created", "revoked"], rows)


@keys_app.command()
def revoke(
    number: Annotated[str, typer.Argument(metavar="ID", help="as `merit keys list` tells it")],
    state: State = DEFAULT_STATE,
) -> None:
    """Refuse a key from now on. A running service notices at once."""
    key = keys.revoke(state / keys.FILE, number)
    console.tell(f"key {key.id} ({key.name}) is revoked", key=key.id)
