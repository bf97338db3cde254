"""Words that several commands understand."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ConfigFile = Annotated[Path, typer.Argument(help="a TOML file, such as configs/demo.toml")]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="A.B=C", help="override a setting; may be repeated")
]
AsJson = Annotated[bool, typer.Option("--json", help="print the result as JSON")]
Reason = Annotated[str, typer.Option(help="why; kept in the space's list of changes")]
Source = Annotated[Path, typer.Argument(help="a labels artifact")]
Texts = Annotated[list[str], typer.Argument(help="labels")]
Out = Annotated[Path, typer.Option(help="the folder to write")]
Cache = Annotated[Path, typer.Option(help="where label vectors are kept")]
Design = Annotated[Path, typer.Argument(help="a folder that `merit experiment design` wrote")]
ModelFolder = Annotated[Path, typer.Argument(help="a model, or the folder of a run that has one")]
NewerLabels = Annotated[Path | None, typer.Option(help="a later version of the model's label space")]
AsLines = Annotated[bool, typer.Option("--jsonl/--table", help="print JSON lines, one for each row")]
Asked = Annotated[list[str] | None, typer.Argument(help="interests; or write them into --request")]
RequestFile = Annotated[
    Path | None, typer.Option("--request", help="a TOML, JSON or YAML file, as in docs/audiences.md")
]
Engine = Annotated[
    str | None, typer.Option("--engine", help="who works: here (the default), local processes, or ray; docs/cluster.md")
]
Workers = Annotated[int | None, typer.Option(help="of the engine, each with the model in memory")]
Threads = Annotated[int | None, typer.Option(help="of each worker")]
Address = Annotated[str | None, typer.Option(help="of a Ray cluster, HOST:PORT; this machine's own by default")]
DEFAULT_CACHE = Path(".cache/merit")
