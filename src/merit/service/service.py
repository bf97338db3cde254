"""What a running service holds: the model, the jobs, the keys, the limits and the folder of tables."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from merit.campaigns.audiences import build as audiences
from merit.campaigns.audiences.audience import Audience
from merit.campaigns.audiences.request import AudienceRequest
from merit.core import files
from merit.core.artifacts import Artifact
from merit.core.errors import ConfigError, DataError, MeritError
from merit.service import keys, problems
from merit.service.auth import RateLimiter
from merit.service.erasures import Erasures
from merit.service.jobs import AudienceJobs
from merit.service.keys import ApiKey, Keyring
from merit.service.limits import MOST_RULES, Limits
from merit.service.middleware import Metrics
from merit.service.pages import VegaScript
from merit.service.store import Served, Store

DEFAULTS = Limits()
JOBS, EXPORTS, STATIC = "jobs", "exports", "static"
EXPLAIN_SHARE = 0.8  # of a request's time: then the child process is ended, and the caller still gets its own answer
TABLE_NAME = re.compile(r"\w[\w .-]*(/\w[\w .-]*)*")


@dataclass(frozen=True)
class Service:
    """One for each process: `opened` makes and closes it, and routes get it as `TheService`."""

    store: Store
    state: Path
    tables: Path | None
    limits: Limits
    keys: Keyring
    limiter: RateLimiter
    jobs: AudienceJobs
    erasures: Erasures
    metrics: Metrics
    vega: VegaScript
    redact: Callable[[MeritError], str]
    """An error's message without the server's paths and without the id of any user."""

    def preview(self, request: AudienceRequest) -> tuple[Audience, Served]:
        """The audience and the model it is from, by scores in float32; `build` uses exact ones."""
        served = self.store.current
        with _resolved(served, self.tables, request) as resolved:
            return audiences.preview(served.model, resolved, served.scores), served


@contextmanager
def opened(
    folder: Path,
    state: Path,
    labels: Path | None = None,
    tables: Path | None = None,
    limits: Limits = DEFAULTS,
    verify: bool = True,
    guests: Sequence[ApiKey] = (),
) -> Iterator[Service]:
    """A service over the folder of a run. A state folder belongs to one at a time: two would run a job twice.

    `guests` are keys that are written nowhere.
    """
    store = Store(folder, labels, verify, EXPLAIN_SHARE * limits.seconds)  # first: without a model, nothing is written
    busy = f"Another service uses {state}. Stop it, or name another folder with --state."
    with files.locked(state / ".lock", busy):
        shutil.rmtree(state / EXPORTS, ignore_errors=True)  # of a process that has ended

        def redact(error: MeritError) -> str:
            model = store.current.model
            message = problems.without_paths(str(error), (model.artifact.path, folder, state, tables))
            return problems.without_users(message, model.users["user_id"])

        def build(request: AudienceRequest, out: Path) -> Artifact:
            served = store.current
            with _resolved(served, tables, request) as resolved:
                return audiences.build(served.model, resolved, out)

        jobs = AudienceJobs(state / JOBS, build, redact, limits.waiting)
        erasures = Erasures(state, lambda: (state, store.run), jobs.worker, redact)
        try:
            yield Service(
                store=store,
                state=state,
                tables=tables,
                limits=limits,
                keys=Keyring(state / keys.FILE, guests),
                limiter=RateLimiter(limits.rate, limits.burst),
                jobs=jobs,
                erasures=erasures,
                metrics=Metrics(jobs.counts),
                vega=VegaScript(state / STATIC),
                redact=redact,
            )
        finally:
            jobs.close()
            erasures.close()
            store.current.explainer.close()


@contextmanager
def _resolved(served: Served, tables: Path | None, request: AudienceRequest) -> Iterator[AudienceRequest]:
    """The request with the paths of its tables, while the model may encode its interests."""
    if len(request.rules) > MOST_RULES:
        raise ConfigError(
            f"An audience may have {MOST_RULES} rules here; this one has {len(request.rules)}. Merge some."
        )
    rules = [
        rule.model_copy(update={"table": table_path(rule.table, tables)}) if rule.table else rule
        for rule in request.rules
    ]
    changes: dict[str, Any] = {"rules": tuple(rules)}
    if request.lookalike:
        path = table_path(request.lookalike.table, tables)
        changes["lookalike"] = request.lookalike.model_copy(update={"table": path})
    with served.reading(interest.text for interest in request.interests):
        yield request.model_copy(update=changes)


def table_path(name: Path, tables: Path | None) -> Path:
    """The path of a table of the service, by its name inside the folder of tables. No name leads out of it."""
    if tables is None:
        raise ConfigError(
            "This service has no tables. Leave the rule out, or start it with `merit serve … --tables FOLDER`."
        )
    root = tables.resolve()
    if not TABLE_NAME.fullmatch(str(name)) or not (path := (root / name).resolve()).is_relative_to(root):
        raise ConfigError(
            "A table is named by its path inside the service's folder of tables, such as customers.parquet."
        )
    if not path.exists():
        raise DataError(f"There is no table '{name}'. Ask the operator to put it there.")
    return path
