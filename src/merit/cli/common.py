"""What several commands share: arguments and options, reading settings, and showing results."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from merit.core import artifacts, config, console
from merit.privacy import pseudonyms

if TYPE_CHECKING:
    import polars as pl

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


def described(artifact: artifacts.Artifact) -> dict[str, Any]:
    """An artifact for `--json`: its folder, kind and hash, and the summary of its manifest."""
    manifest = artifact.manifest
    return {"folder": str(artifact.path), "kind": manifest.kind, "hash": manifest.hash, "summary": manifest.summary}


def show_frame(title: str, frame: pl.DataFrame, lines: bool) -> None:
    """Print a frame: as JSON lines with every digit, or as a table with four digits of a number."""
    if lines:
        sys.stdout.write(frame.write_ndjson())
    else:
        console.show_table(escape(title), frame.columns, [[short(cell) for cell in row] for row in frame.rows()])


def short(cell: Any) -> Any:
    """A cell of a table: four digits of a float, and a text whose brackets are no markup."""
    return f"{cell:.4g}" if isinstance(cell, float) else escape(cell) if isinstance(cell, str) else cell


def point_to_page(artifact: artifacts.Artifact) -> None:
    """Print the address of the page of an artifact."""
    console.stdout.print(f"Open {artifact.file('index.html').resolve().as_uri()} in a browser.")


def show(artifact: artifacts.Artifact) -> None:
    """Print the manifest as text; `described` is the same for programs."""
    console.stdout.print(artifacts.describe(artifact))
