"""merit model: ask a trained model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import merit
from merit.cli.options import Address, AsLines, Engine, ModelFolder, NewerLabels, Threads, Workers
from merit.cli.output import engine_words, show_frame
from merit.core import config, console
from merit.core.files import require_no_folder
from merit.data.sources import files
from merit.engine.job import EngineRun
from merit.labels import space
from merit.labels.space import Findable
from merit.privacy import pseudonyms
from merit.retrieval.all_interests import write_all_interests
from merit.retrieval.audience_scores import write_audiences

model_app = typer.Typer(help="Ask a trained model: interests for a user, users for an interest.", no_args_is_help=True)


@model_app.command()
def interests(
    folder: ModelFolder,
    users: Annotated[list[str] | None, typer.Argument(help="user ids; or give --file")] = None,
    file: Annotated[Path | None, typer.Option(help="a table with a column user_id: Parquet, CSV or JSONL")] = None,
    k: Annotated[int, typer.Option("-k", help="interests of each")] = 10,
    diverse: Annotated[bool, typer.Option(help="of as many regions of interest as there are")] = False,
    labels: NewerLabels = None,
    lines: AsLines = False,
) -> None:
    """The most likely interests of users."""
    wanted = files.column(file, "user_id") if file else users or []
    model = merit.load(folder, labels)
    show_frame("Interests", model.interests(_known(model, wanted), k, diverse), lines)


@model_app.command(name="labels")
def known_labels(
    folder: ModelFolder,
    search: Annotated[str, typer.Option(help="how they begin, or words in them")] = "",
    status: Annotated[Findable, typer.Option(help="blocked ones are not listed (docs/policy.md)")] = "live",
    k: Annotated[int, typer.Option("-k", min=1, help="interests; the title says how many there are")] = 20,
    labels: NewerLabels = None,
    lines: AsLines = False,
) -> None:
    """The interests it knows by name, with users who had them and events of training users, most frequent first."""
    model = merit.load(folder, labels)
    found = space.search(model.labels, search, status)
    if found.is_empty():
        console.tell(space.no_match(search, status, folder), found=0)
        return
    title = f"{min(k, len(found)):,} of {len(found):,} {status} interests"
    show_frame(title, space.listed(found.head(k), model.users["history"]), lines)


@model_app.command()
def everyone(
    folder: ModelFolder,
    out: Annotated[str, typer.Option(help="the Parquet file to write; or a folder of parts, which may be s3://…")],
    k: Annotated[int, typer.Option("-k", help="interests of each")] = 10,
    regions: Annotated[
        int | None, typer.Option(help="score only labels of so many clusters; tells what it loses")
    ] = None,
    labels: NewerLabels = None,
    engine: Engine = None,
    workers: Workers = None,
    threads: Threads = None,
    address: Address = None,
) -> None:
    """The most likely interests of all users, as a file or as parts with a manifest."""
    by = config.build(EngineRun, {}, engine_words(engine, workers, threads, address), origin="the engine").engine
    rows = write_all_interests(folder, out, k, regions, labels, by)
    found = f"; {merit.load(folder, labels).shortlist_recall(k, regions):.1%}" if regions else ""
    lost = f"{found} of an exact search's, on a sample of users" if regions else ""
    console.tell(f"{rows:,} rows in {out}{lost}", rows=rows, file=out)


@model_app.command()
def audiences(
    folder: ModelFolder,
    out: Annotated[Path, typer.Option(help="the Parquet file to write")],
    file: Annotated[
        Path | None, typer.Option(help="a table with a column interest; by default all live interests")
    ] = None,
    n: Annotated[int, typer.Option("-n", help="users of each")] = 1_000,
    labels: NewerLabels = None,
    engine: Engine = None,
    workers: Workers = None,
    threads: Threads = None,
    address: Address = None,
) -> None:
    """The most likely users of many interests at once."""
    by = config.build(EngineRun, {}, engine_words(engine, workers, threads, address), origin="the engine").engine
    wanted = files.column(file, "interest") if file else None
    require_no_folder(out)
    rows = write_audiences(folder, out, wanted, n, labels, by)
    console.tell(f"{rows:,} rows in {out}", rows=rows, file=str(out))


@model_app.command()
def audience(
    folder: ModelFolder,
    interest: Annotated[str, typer.Argument(help="a label, or any phrase")],
    n: Annotated[int, typer.Option("-n", help="users")] = 20,
    labels: NewerLabels = None,
    lines: AsLines = False,
) -> None:
    """The users most likely to want an interest."""
    show_frame(f"Users for '{interest}'", merit.load(folder, labels).audience(interest, n), lines)


@model_app.command()
def score(
    folder: ModelFolder,
    file: Annotated[Path, typer.Argument(help="a table with columns user_id and interest: Parquet, CSV or JSONL")],
    labels: NewerLabels = None,
    lines: AsLines = True,
) -> None:
    """The probability of every pair of a table, in its order, as JSON lines."""
    model = merit.load(folder, labels)
    users = _known(model, files.column(file, "user_id"))
    show_frame("Scores", model.score_pairs(users, files.column(file, "interest")), lines)


@model_app.command()
def explain(folder: ModelFolder, user: str, interest: str, k: Annotated[int, typer.Option("-k")] = 10) -> None:
    """Which events carry the probability of an interest."""
    model = merit.load(folder)
    show_frame(f"Why '{interest}'", model.explain(_known(model, [user])[0], interest, k), lines=False)


@model_app.command()
def card(folder: ModelFolder) -> None:
    """What a model was made from, how good it is, and what not to use it for."""
    console.stdout.print(merit.load(folder).card(), markup=False)


def _known(model: merit.Model, users: list[str]) -> list[str]:
    """As the model knows them: real ids where it has them, pseudonyms where it has those."""
    return pseudonyms.stored_ids(users, model.users["user_id"].head(1))
