"""merit data: look at input tables before anything is made of them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from merit.cli.options import AsJson, ConfigFile, Out, Overrides, group, require_key_apart
from merit.cli.output import described
from merit.core import config, console
from merit.core.errors import ConfigError
from merit.data import check, planted, sources, validate
from merit.data.sources import snapshot

data_app = group("data", "Look at input tables before anything is made of them.")


@data_app.command(name="check")
def data_check(
    file: Annotated[Path | None, typer.Argument(help="a TOML file with a [source]; or give the two tables")] = None,
    interactions: Annotated[str | None, typer.Option(help="user_id, item_id, timestamp, event")] = None,
    items: Annotated[str | None, typer.Option(help="item_id, title, tags, vertical")] = None,
    override: Overrides = None,
    quarantine: Annotated[Path | None, typer.Option(help="write every row that cannot be used there")] = None,
    as_json: AsJson = False,
) -> None:
    """Report what is in two tables, what is wrong with them, and how to fix it. Exit code 3 if a row is bad."""
    tables = sources.open_source(_source(file, interactions, items, override or []))
    report = check.examine(tables)
    if as_json:
        console.show_json(report.model_dump(mode="json"))
    else:
        for part in check.render(report):
            console.stdout.print(part)
    if quarantine:
        count = validate.quarantine(tables, quarantine)
        console.tell(f"{count:,} rows written to {quarantine}", rows=count, file=str(quarantine))
    if report.missing or report.bad or report.unknown_events.words:
        raise typer.Exit(3)


@data_app.command(name="pull")
def data_pull(
    file: ConfigFile,
    override: Overrides = None,
    full: Annotated[bool, typer.Option(help="read everything again, not only what is new")] = False,
    as_json: AsJson = False,
) -> None:
    """Read tables from a database or an object store into their snapshot."""
    made = snapshot.pull(_source(file, None, None, override or []), full)
    if as_json:
        console.show_json(described(made))


@data_app.command(name="planted")
def data_planted(out: Out, override: Overrides = None, seed: int = 7) -> None:
    """Write a planted shop: tables whose true interests are known."""
    shop = config.build(planted.PlantedConfig, {}, override or [])
    planted.write(planted.shop(shop, seed), out)
    console.tell(f"a shop of {shop.users:,} users in {out}", folder=str(out))


class _Source(config.Frozen):
    """What is read of a configuration; the other sections bring torch along, and `merit config show` checks them."""

    source: sources.Source
    out: Path = Path("runs/merit")


def _source(file: Path | None, interactions: str | None, items: str | None, override: list[str]) -> sources.Source:
    if file:
        values = {name: value for name, value in config.read(file).items() if name in _Source.model_fields}
    elif interactions and items:
        values = {"source": {"kind": "tables", "interactions": interactions, "items": items}}
    else:
        raise ConfigError("Name a configuration, or both tables: merit data check --interactions A --items B.")
    run = config.build(_Source, values, override, origin=str(file or "the command line"))
    require_key_apart(run.source, run.out)
    return run.source
