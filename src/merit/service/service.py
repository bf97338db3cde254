"""What a running service holds: the model, the jobs, the keys and the limits."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from merit.campaigns.audiences import build as audiences
from merit.campaigns.audiences.audience import Audience
from merit.campaigns.audiences.request import AudienceRequest
from merit.core import files
from merit.core.artifacts import Artifact
from merit.core.errors import MeritError
from merit.service import keys, places
from merit.service.buckets import Buckets
from merit.service.bundle import Bundle
from merit.service.erasing import Erasures
from merit.service.jobs import Jobs
from merit.service.keys import Key, Keyring
from merit.service.limits import Limits
from merit.service.metrics import Metrics
from merit.service.store import Served, Store

DEFAULTS = Limits()
JOBS, EXPORTS, STATIC = "jobs", "exports", "static"
EXPLAINED = 0.8  # of the time of a request: then its child is ended and the caller told, before the request is


@dataclass(frozen=True)
class Service:
    """One for each process: `opened` makes it and puts it away, and routes get it as `TheService`."""

    store: Store
    state: Path
    tables: Path | None
    limits: Limits
    keys: Keyring
    buckets: Buckets
    jobs: Jobs
    erasures: Erasures
    metrics: Metrics
    bundle: Bundle
    told: Callable[[MeritError], str]
    """An error's message, without the server's paths and without anyone's id."""

    def preview(self, request: AudienceRequest) -> tuple[Audience, Served]:
        """The audience, and the model that was asked. From scores in float32: what is built is exact."""
        served = self.store.current
        with _asked(served, self.tables, request) as located:
            return audiences.preview(served.model, located, served.everybody), served


@contextmanager
def opened(
    folder: Path,
    state: Path,
    labels: Path | None = None,
    tables: Path | None = None,
    limits: Limits = DEFAULTS,
    verify: bool = True,
    guests: Sequence[Key] = (),
) -> Iterator[Service]:
    """A service over the folder of a run. A state folder belongs to one at a time: two would run a job twice.

    `guests` are keys that are written nowhere.
    """
    store = Store(folder, labels, verify, EXPLAINED * limits.seconds)  # first: without a model, nothing is left behind
    busy = f"Another service uses {state}. Stop it, or give this one a folder of its own with --state."
    with files.locked(state / ".lock", busy):
        shutil.rmtree(state / EXPORTS, ignore_errors=True)  # of a process that is gone

        def told(error: MeritError) -> str:
            model = store.current.model
            message = places.without_paths(str(error), (model.artifact.path, folder, state, tables))
            return places.without_people(message, model)

        def build(request: AudienceRequest, out: Path) -> Artifact:
            served = store.current
            with _asked(served, tables, request) as located:
                return audiences.build(served.model, located, out)

        jobs = Jobs(state / JOBS, build, told, limits.waiting)
        erasures = Erasures(state, lambda: (state, store.run), jobs.between, told)
        try:
            yield Service(
                store=store,
                state=state,
                tables=tables,
                limits=limits,
                keys=Keyring(state / keys.FILE, guests),
                buckets=Buckets(limits.rate, limits.burst),
                jobs=jobs,
                erasures=erasures,
                metrics=Metrics(jobs.counts),
                bundle=Bundle(state / STATIC),
                told=told,
            )
        finally:
            jobs.close()
            erasures.close()
            store.current.explainer.close()


@contextmanager
def _asked(served: Served, tables: Path | None, request: AudienceRequest) -> Iterator[AudienceRequest]:
    """The request with its tables found, while the model may be asked about its interests."""
    located = places.located(request, tables)
    with served.reading(each.text for each in request.interests):
        yield located
