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
    device: Annotated[str | None, typer.Option(help="such as A100-80GB; `here` measures this machine")] = None,
    devices: Annotated[int | None, typer.Option(min=1, help="how many of them")] = None,
    compare: Annotated[Path | None, typer.Option(help="a run's folder: what was planned over what it took")] = None,
    override: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Tell tokens, time, memory and disk of every stage, without running any."""
    from merit.plan import plan as stage
    from merit.plan import table

    asked = {"plan.device": device, "devices.processes": devices}
    run = settings(file, [*(override or []), *(f"{name}={value}" for name, value in asked.items() if value)])
    record = stage.measured(run, compare) if compare else None
    found = stage.plan(run)
    compared = table.compare(found, record) if record else None
    if as_json:
        told = found.model_dump(mode="json") | {"total": found.total.model_dump(mode="json")}
        console.show_json(told | ({"compared": compared} if compared else {}))
        return
    table.show(found, f"plan of {file}")
    if compared:
        table.show_comparison(compared)
