"""merit run, plan and bench: all stages of a configuration, what they will take, and methods compared."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from merit.cli import options, output
from merit.core import config, console, processes
from merit.evaluation.evaluate import show_results


def run(
    file: options.ConfigFile,
    override: options.Overrides = None,
    until: Annotated[str | None, typer.Option(help="stop after this stage (examples, labels, data-report, …)")] = None,
    engine: options.Engine = None,
    workers: options.Workers = None,
    threads: options.Threads = None,
    address: options.Address = None,
    as_json: options.AsJson = False,
) -> None:
    """Run all stages of a configuration; what is finished and unchanged is kept."""
    from merit.core import presets

    given = options.engine_options(engine, workers, threads, address)
    overrides = [*(override or []), *(f"engine.{name}={value}" for name, value in given.items())]
    settings = presets.load(file, overrides)
    options.require_key_apart(settings.source, settings.out)
    made = presets.run(settings, until)
    if processes.number():  # only the main process prints
        return
    if as_json:
        console.show_json({name: output.described(artifact) for name, artifact in made.items()})
        return
    for name, artifact in made.items():
        summary = artifact.manifest.summary.items()
        rows = [(key, output.short(value)) for key, value in summary if not isinstance(value, dict | list)]
        console.show_table(f"{name}  {artifact.path}", ["figure", "value"], rows)
    if results := made.get("results"):
        show_results(results)
    for name in ("data-report", "results"):
        if report := made.get(name):
            output.point_to_page(report)
    if model := made.get("model"):
        folder = escape(str(model.path.parent))
        console.stdout.print(f"Ask it: merit model interests {folder} USER, merit model audience {folder} INTEREST")


def refresh(
    folder: Annotated[Path, typer.Argument(help="the folder of a run that has a model")],
    override: options.Overrides = None,
    as_json: options.AsJson = False,
) -> None:
    """Bring a model up to date with what came since: new events, users, items and labels; nothing is trained."""
    from merit.refresh import watch
    from merit.refresh.refresh import refresh as stage

    model = stage(folder, **config.overridden({}, override or []))
    record = watch.read(model)[-1]
    if as_json:
        console.show_json(record.model_dump(mode="json"))
        return
    figures = record.model_dump(exclude={"drifts", "kept", "edges", "reasons", "verdict"})
    console.show_table(
        f"refresh  {model.path}", ["figure", "value"], [(name, output.short(value)) for name, value in figures.items()]
    )
    console.stdout.print(escape(record.verdict))
    console.tell(f"All refreshes: {model.file(watch.LOG) / watch.PAGE}")


def update(
    file: Annotated[Path, typer.Argument(help="a file with `run` and [[audience]], as in docs/warehouse.md")],
    override: options.Overrides = None,
    as_json: options.AsJson = False,
) -> None:
    """Pull tables, refresh the model, build audiences and send them. Stopped anywhere, it is given again."""
    from merit.core import update as stages

    done = stages.update(config.load(stages.UpdateConfig, file, override or []))
    if as_json:
        console.show_json(done.model_dump(mode="json"))
        return
    rows = [
        (place, *(counts.model_dump().values() if counts else ("",) * 4)) for place, counts in done.audiences.items()
    ]
    console.show_table(f"update  {file}", ["audience", "added", "updated", "removed", "unchanged"], rows)


def plan(
    file: options.ConfigFile,
    device: Annotated[str | None, typer.Option(help="`local` times this machine; another name only counts")] = None,
    override: options.Overrides = None,
    as_json: options.AsJson = False,
) -> None:
    """Count the parameters and tokens of a run and estimate its time, without running any stage."""
    from merit.plan import plan as planning

    run = options.settings(file, [*(override or []), *([f"plan.device={device}"] if device else [])])
    made = planning.plan(run)
    if as_json:
        console.show_json(made.model_dump(mode="json") | {"total": made.total.model_dump(mode="json")})
    else:
        planning.show(made, f"plan of {file}")


def bench(
    file: options.ConfigFile,
    only: Annotated[list[str] | None, typer.Option(help="methods whose names begin with this; may be repeated")] = None,
    dataset: Annotated[list[str] | None, typer.Option(help="this data set only; may be repeated")] = None,
    table: Annotated[list[str] | None, typer.Option(help="show this table only; may be repeated")] = None,
    markdown: Annotated[Path | None, typer.Option(help="write all tables there, between marks or whole")] = None,
    figure: Annotated[Path | None, typer.Option(help="draw recall of all methods there, as SVG")] = None,
    from_results: Annotated[bool, typer.Option(help="compute nothing: show what the JSON files have")] = False,
    override: options.Overrides = None,
    as_json: options.AsJson = False,
) -> None:
    """Compare methods on data sets, cell by cell; what is finished and unchanged is kept."""
    from merit.bench.config import BenchConfig
    from merit.bench.report import compare, show

    settings = config.load(BenchConfig, file, override or [])
    outcome = compare(settings, only or [], dataset or [], table or [], markdown, figure, from_results)
    if as_json:
        console.show_json({result.dataset: result.model_dump(mode="json") for result in outcome.results})
    else:
        show(outcome, table or [])
    if outcome.failures:
        raise typer.Exit(1)
