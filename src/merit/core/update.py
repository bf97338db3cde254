"""`merit update FILE`: one more day, from the tables to the destinations, by four functions.

    run = "shop.toml"                     # the settings of a run that has a model

    [[audience]]
    request = "spring.toml"
    out = "audiences/spring"
    destination = "crm.toml"

The snapshot gets what is new, the model is refreshed, audiences are built, and destinations get what differs. Each step
leaves what was there or what is to be there: an update that was stopped anywhere is given again. What was refreshed is
written down in the run, and the same tables are not read into the same model twice.
"""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import merit
from merit.campaigns.audiences import build, request
from merit.campaigns.sync import destination, sync
from merit.campaigns.sync.destination import Mode
from merit.campaigns.sync.rows import SyncCounts
from merit.core import artifacts, config, console, files
from merit.core.artifacts import Artifact
from merit.core.config import Frozen
from merit.core.errors import ConfigError
from merit.data import sources
from merit.data.sources import snapshot
from merit.refresh.refresh import refresh
from merit.retrieval.opening import find

RECORD, LOCK = "update.json", ".update.lock"


class UpdatedAudience(Frozen):
    """An audience that every update builds anew."""

    request: Path
    out: Path
    destination: Path | None = None
    """Where it is sent; without one it is only built."""
    mode: Mode = "mirror"


class UpdateConfig(Frozen):
    """The file of an update. Its paths are those of the working folder."""

    run: Path
    audience: tuple[UpdatedAudience, ...] = ()


class Updated(Frozen):
    """What an update did."""

    tables: str
    """The hash of the tables it has read."""
    model: str
    """The hash of the model that is there now."""
    refreshed: bool
    audiences: dict[str, SyncCounts | None]
    """By folder: the rows at the destination, where there is one."""


class _Run(Frozen):
    source: sources.Source
    out: Path = Path("runs/merit")


def update(settings: UpdateConfig) -> Updated:
    """Pull, refresh, build, sync: each step does what is left to do."""
    values = {name: value for name, value in config.read(settings.run).items() if name in _Run.model_fields}
    run = config.build(_Run, values, origin=str(settings.run))
    _require_apart(settings)
    find(run.out)  # before anything is read
    with files.locked(run.out / LOCK, f"Another update of {run.out} is at work. Wait for it.", fleeting=True):
        if snapshot.needed(run.source):
            snapshot.pull(run.source)
        tables = _digest(sources.open_source(run.source).inputs)
        refreshed = _refresh(run, tables)
        synced = {str(audience.out): _audience(run.out, audience) for audience in settings.audience}
        model = artifacts.load(find(run.out), verify=False).manifest.hash
        return Updated(tables=tables, model=model, refreshed=refreshed, audiences=synced)


def _refresh(run: _Run, tables: str) -> bool:
    """Refresh the model unless it is the one that was refreshed from just these tables."""
    record = run.out / RECORD
    current = artifacts.load(find(run.out), verify=False).manifest.hash
    if record.exists() and json.loads(record.read_text("utf-8")) == {"tables": tables, "model": current}:
        console.tell("refresh: nothing new", refreshed=False)
        return False
    model = refresh(run.out, source=run.source.model_dump(mode="json"))
    files.write(record, json.dumps({"tables": tables, "model": model.manifest.hash}))
    return True


def _audience(folder: Path, audience: UpdatedAudience) -> SyncCounts | None:
    model = merit.load(folder)
    made: Artifact = build.build(model, request.read(audience.request), audience.out)
    if audience.destination is None:
        return None
    to = destination.read(audience.destination)
    counts = sync.sync_audience(made, model, to, audience.mode)
    console.tell(f"{audience.out} → {destination.title(to)}: {counts.written:,} rows written", rows=counts.written)
    return counts


def _require_apart(settings: UpdateConfig) -> None:
    folders = [audience.out for audience in settings.audience]
    if twice := next((folder for folder in folders if folders.count(folder) > 1), None):
        raise ConfigError(f"Two audiences are written to {twice}. Give each a folder of its own (audience.out).")


def _digest(inputs: dict[str, Any]) -> str:
    return sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()
