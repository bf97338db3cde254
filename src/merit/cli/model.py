"""merit model: ask a trained model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import merit
from merit.campaigns.sync import destination, sync
from merit.campaigns.sync.destination import Mode
from merit.cli import options, output
from merit.core import artifacts, config, console, signing
from merit.core.files import require_no_folder
from merit.data.sources import files
from merit.engine.job import EngineConfig
from merit.labels import space
from merit.labels.space import Findable
from merit.privacy import pseudonyms
from merit.privacy.floor import SMALLEST
from merit.retrieval.bulk import log_named, write_all_interests, write_audiences
from merit.retrieval.opening import find

model_app = options.group("model", "Ask a trained model: interests for a user, users for an interest.")


@model_app.command()
def interests(
    folder: options.ModelFolder,
    users: Annotated[list[str] | None, typer.Argument(help="user ids; or give --file")] = None,
    file: Annotated[Path | None, typer.Option(help="a table with a column user_id: Parquet, CSV or JSONL")] = None,
    k: Annotated[int, typer.Option("-k", help="interests of each")] = 10,
    diverse: Annotated[bool, typer.Option(help="from as many regions of interest as possible")] = False,
    labels: options.NewerLabels = None,
    lines: options.AsLines = False,
) -> None:
    """The most likely interests of users."""
    wanted = files.column(file, "user_id") if file else users or []
    model = merit.load(folder, labels)
    output.show_frame("Interests", model.interests(_ids(model, wanted), k, diverse), lines)


@model_app.command(name="labels")
def list_labels(
    folder: options.ModelFolder,
    search: Annotated[str, typer.Option(help="how they begin, or words in them")] = "",
    status: Annotated[Findable, typer.Option(help="blocked ones are not listed (docs/policy.md)")] = "live",
    k: Annotated[int, typer.Option("-k", min=1, help="interests; the title says how many there are")] = 20,
    labels: options.NewerLabels = None,
    lines: options.AsLines = False,
) -> None:
    """The labels of the model, with the number of their users and training events, most frequent first."""
    model = merit.load(folder, labels)
    rows = space.search(model.labels, search, status)
    if rows.is_empty():
        console.tell(space.no_match(search, status, folder), found=0)
        return
    title = f"{min(k, len(rows)):,} of {len(rows):,} {status} interests"
    output.show_frame(title, space.listed(rows.head(k), model.users["history"]), lines)


@model_app.command()
def all_interests(
    folder: options.ModelFolder,
    out: Annotated[str, typer.Option(help="the Parquet file to write; or a folder of parts, which may be s3://…")],
    k: Annotated[int, typer.Option("-k", help="interests of each")] = 10,
    regions: Annotated[
        int | None, typer.Option(help="score only labels of this many clusters; shows the recall")
    ] = None,
    labels: options.NewerLabels = None,
    engine: options.Engine = None,
    workers: options.Workers = None,
    threads: options.Threads = None,
    address: options.Address = None,
) -> None:
    """The most likely interests of all users, as a file or as parts with a manifest."""
    given = options.engine_options(engine, workers, threads, address)
    settings = config.build(EngineConfig, given, origin="the engine")
    rows = write_all_interests(folder, out, k, regions, labels, settings)
    recall = ""
    if regions:
        share = merit.load(folder, labels).shortlist_recall(k, regions)
        recall = f"; {share:.1%} of an exact search's, on a sample of users"
    console.tell(f"{rows:,} rows in {out}{recall}", rows=rows, file=out)


@model_app.command()
def audiences(
    folder: options.ModelFolder,
    out: Annotated[Path, typer.Option(help="the Parquet file to write")],
    file: Annotated[
        Path | None, typer.Option(help="a table with a column interest; by default all live interests")
    ] = None,
    n: Annotated[int, typer.Option("-n", help="users of each, a hundred or more")] = 1_000,
    labels: options.NewerLabels = None,
    engine: options.Engine = None,
    workers: options.Workers = None,
    threads: options.Threads = None,
    address: options.Address = None,
) -> None:
    """The most likely users of many interests at once."""
    given = options.engine_options(engine, workers, threads, address)
    settings = config.build(EngineConfig, given, origin="the engine")
    wanted = files.column(file, "interest") if file else None
    require_no_folder(out)
    rows = write_audiences(folder, out, wanted, n, labels, settings)
    console.tell(f"{rows:,} rows in {out}", rows=rows, file=str(out))


@model_app.command()
def sync_interests(
    folder: options.ModelFolder,
    destination_file: Annotated[Path, typer.Argument(help="a file with [destination], as in docs/warehouse.md")],
    mode: Annotated[Mode, typer.Option(help="append adds users; upsert updates too; mirror also removes leavers")],
    k: Annotated[int, typer.Option("-k", help="interests of each")] = 10,
    override: options.Overrides = None,
    labels: options.NewerLabels = None,
    clear: Annotated[bool, typer.Option(help="remove all these rows there instead")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="only count: nothing is written")] = False,
    as_json: options.AsJson = False,
) -> None:
    """Send the most likely interests of all users to a destination, a row for each user.

    --set holdout.share=0.05 --set holdout.salt=nobody-2027 keeps those users at home whom no campaign addresses.
    """
    to, model = destination.read(destination_file), merit.load(folder, labels)
    lists = config.build(sync.InterestLists, {"k": k}, override or [], origin="the command line")
    if clear:
        counts = sync.clear(model.artifact.path, lists.name, to, dry_run)
    else:
        counts = sync.sync_interests(model, to, lists, mode, dry_run)
    output.show_sync(counts, destination.title(to), dry_run, as_json)


@model_app.command()
def audience(
    folder: options.ModelFolder,
    interest: Annotated[str, typer.Argument(help="a label, or any phrase")],
    n: Annotated[int, typer.Option("-n", help="users, a hundred or more")] = SMALLEST,
    labels: options.NewerLabels = None,
    lines: options.AsLines = False,
) -> None:
    """The users most likely to want an interest. Naming them is written to the audit log of the run."""
    model = merit.load(folder, labels)
    users = model.audience(interest, n)
    log_named(model, "audience of an interest", n)
    output.show_frame(f"Users for '{interest}'", users, lines)


@model_app.command()
def score(
    folder: options.ModelFolder,
    file: Annotated[Path, typer.Argument(help="a table with columns user_id and interest: Parquet, CSV or JSONL")],
    labels: options.NewerLabels = None,
    lines: options.AsLines = True,
) -> None:
    """The probability of every pair of a table, in its order, as JSON lines."""
    model = merit.load(folder, labels)
    users = _ids(model, files.column(file, "user_id"))
    output.show_frame("Scores", model.score_pairs(users, files.column(file, "interest")), lines)


@model_app.command()
def explain(folder: options.ModelFolder, user: str, interest: str, k: Annotated[int, typer.Option("-k")] = 10) -> None:
    """Which events carry the probability of an interest."""
    model = merit.load(folder)
    output.show_frame(f"Why '{interest}'", model.explain(_ids(model, [user])[0], interest, k), lines=False)


@model_app.command()
def card(folder: options.ModelFolder) -> None:
    """What a model was made from, how good it is, and what not to use it for."""
    console.stdout.print(merit.load(folder).card(), markup=False)


def _ids(model: merit.Model, users: list[str]) -> list[str]:
    """The ids as the model has them: real ones, or pseudonyms."""
    return pseudonyms.stored_ids(users, model.users["user_id"].head(1))


@model_app.command(name="signing-key")
def signing_key(file: Annotated[Path, typer.Argument(help="the file to write, outside every run")]) -> None:
    """Make a key that signs models. Whoever has it can sign: keep it where models are made and served."""
    signing.create(file)
    console.tell(f"A signing key is in {file}. Sign a model: `merit model sign MODEL --key {file}`", key=str(file))


@model_app.command()
def sign(folder: options.ModelFolder, key: Annotated[Path, typer.Option(help="of `merit model signing-key`")]) -> None:
    """Sign a model as it is now, after every byte was checked. `merit --signing-key FILE` opens no other."""
    place = artifacts.load(find(folder)).path  # or a later label space
    signing.sign(place, key)
    console.tell(f"{place} is signed.", folder=str(place))
