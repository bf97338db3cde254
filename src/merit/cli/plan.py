"""merit plan: what a run will take, before it is run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from merit.cli.options import AsJson, ConfigFile, Overrides
from merit.cli.output import settings
from merit.core import console


def plan(
    file: ConfigFile,
    device: Annotated[str | None, typer.Option(help="`here` times this machine; another name only counts")] = None,
    devices: Annotated[int | None, typer.Option(min=1, help="how many of them")] = None,
    compare: Annotated[Path | None, typer.Option(help="a run's folder: what was planned over what it took")] = None,
    override: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Tell tokens, time, memory and disk of every stage, without running any."""
    from merit.plan import plan as planning

    options = {"plan.device": device, "devices.processes": devices}
    config = settings(file, [*(override or []), *(f"{name}={value}" for name, value in options.items() if value)])
    record = planning.record_of(config, compare) if compare else None
    made = planning.plan(config, earlier=not record)
    compared = planning.compare(made, record) if record else None
    if as_json:
        total = {"total": made.total.model_dump(mode="json")}
        console.show_json(made.model_dump(mode="json") | total | ({"compared": compared} if compared else {}))
        return
    planning.show(made, f"plan of {file}")
    if compared:
        planning.show_comparison(compared)
