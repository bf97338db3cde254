"""Arguments and options that several commands share, and the settings that are read from them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from merit.core import config
from merit.privacy import pseudonyms

if TYPE_CHECKING:
    from merit.core.settings import RunConfig
    from merit.data.sources import Source

ConfigFile = Annotated[Path, typer.Argument(help="a TOML file, such as configs/demo.toml")]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="A.B=C", help="override a setting; may be repeated")
]
AsJson = Annotated[bool, typer.Option("--json", help="print the result as JSON")]
Reason = Annotated[str, typer.Option(help="why; kept in the space's list of changes")]
LabelsFolder = Annotated[Path, typer.Argument(help="a labels artifact")]
Texts = Annotated[list[str], typer.Argument(help="labels")]
Out = Annotated[Path, typer.Option(help="the folder to write")]
Cache = Annotated[Path, typer.Option(help="where label vectors are kept")]
Design = Annotated[Path, typer.Argument(help="a folder that `merit experiment design` wrote")]
ModelFolder = Annotated[Path, typer.Argument(help="a model, or the folder of a run that has one")]
NewerLabels = Annotated[Path | None, typer.Option(help="a later version of the model's label space")]
AsLines = Annotated[bool, typer.Option("--jsonl/--table", help="print JSON lines, one for each row")]
Interests = Annotated[list[str] | None, typer.Argument(help="interests; or write them into --request")]
RequestFile = Annotated[
    Path | None, typer.Option("--request", help="a TOML, JSON or YAML file, as in docs/audiences.md")
]
Engine = Annotated[
    str | None, typer.Option("--engine", help="inline (the default), local processes, or ray; docs/cluster.md")
]
Workers = Annotated[int | None, typer.Option(help="of the engine, each with the model in memory")]
Threads = Annotated[int | None, typer.Option(help="of each worker")]
Address = Annotated[str | None, typer.Option(help="of a Ray cluster, HOST:PORT; by default one on this machine")]
DEFAULT_CACHE = Path(".cache/merit")


def group(name: str, help: str) -> typer.Typer:
    """A group of commands; without one of them, its help is shown."""
    return typer.Typer(name=name, help=help, no_args_is_help=True)


def settings(file: Path, override: list[str] | None) -> RunConfig:
    """The whole configuration. It imports torch: three seconds that other commands need not wait."""
    from merit.core.settings import RunConfig

    run = config.load(RunConfig, file, override or [])
    require_key_apart(run.source, run.out)
    return run


def require_key_apart(source: Source, out: Path) -> None:
    """Refuse a key of pseudonyms that lies in the folder of the run."""
    if key := getattr(source, "pseudonyms", None):
        pseudonyms.require_apart(key, out)


def engine_options(
    engine: str | None, workers: int | None, threads: int | None, address: str | None
) -> dict[str, str | int]:
    """The given options of the engine, by the names of its settings."""
    options = {"runner": engine, "workers": workers, "threads": threads, "address": address}
    return {name: value for name, value in options.items() if value is not None}
