"""What a running service holds: the model, the jobs, the keys, the limits and the folder of tables."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from merit.campaigns.audiences import build as audiences
from merit.campaigns.audiences.audience import Audience
from merit.campaigns.audiences.request import AudienceRequest, ProductList
from merit.core import files
from merit.core.artifacts import Artifact
from merit.core.errors import ConfigError, DataError, MeritError
from merit.service import keys, problems
from merit.service.auth import RateLimiter
from merit.service.erasures import Erasures
from merit.service.jobs import AudienceJobs
from merit.service.keys import ApiKey, Keyring
from merit.service.middleware import Metrics
from merit.service.pages import VegaScript
from merit.service.people import People, TrustedProxy
from merit.service.request_limits import Limits
from merit.service.store import Served, Store
from merit.service.tables import TableReader

DEFAULTS = Limits()
MOST_RULES = 20  # of an audience, lists of products among them: each reads a table
JOBS, EXPORTS, STATIC = "jobs", "exports", "static"
CHILD_SHARE = 0.8  # of a request's time: then a child process is ended, and the caller still gets its own answer
TABLE_NAME = re.compile(r"\w[\w .-]*(/\w[\w .-]*)*")


class Service:
    """One for each process: `opened` makes and closes it, and routes get it as `TheService`."""

    def __init__(
        self,
        store: Store,
        state: Path,
        tables: Path | None,
        limits: Limits,
        guests: Sequence[ApiKey],
        proxy: TrustedProxy | None = None,
    ) -> None:
        self.store, self.state, self.tables, self.limits = store, state, tables, limits
        self.keys = Keyring(state / keys.FILE, guests)
        self.people = People(proxy, state) if proxy else None
        self.reader = TableReader(CHILD_SHARE * limits.seconds)
        self.limiter = RateLimiter(limits.rate, limits.burst)
        self.jobs = AudienceJobs(state / JOBS, self._build, self.redact, limits.waiting)
        self.erasures = Erasures(state, lambda: (state, store.run), self.jobs.worker, self.redact)
        self.metrics = Metrics(self.jobs.counts)
        self.vega = VegaScript(state / STATIC)

    def choose(self, request: AudienceRequest) -> tuple[Audience, Served]:
        """The audience and the model it is from, by scores in float32; a job uses exact ones."""
        served = self.store.current
        with self._resolved(served, request) as resolved:
            return audiences.choose(served.model, resolved, served.scores), served

    def table(self, name: Path) -> Path:
        """The path of a table of the service, by its name inside the folder of tables. No name leads out of it."""
        if self.tables is None:
            raise ConfigError(
                "This service has no tables. Leave the rule out, or start it with `merit serve … --tables FOLDER`."
            )
        root = self.tables.resolve()
        if not TABLE_NAME.fullmatch(str(name)) or not (path := (root / name).resolve()).is_relative_to(root):
            raise ConfigError(
                "A table is named by its path inside the service's folder of tables, such as customers.parquet."
            )
        if not path.exists():
            raise DataError(f"There is no table '{name}'. Ask the operator to put it there.")
        return path

    def _small(self, name: Path) -> Path:
        return self.reader.small(self.table(name))

    def redact(self, error: MeritError) -> str:
        """An error's message without the server's paths and without the id of any user."""
        model = self.store.current.model
        folders = (model.artifact.path, self.store.folder, self.state, self.tables)
        return problems.without_users(problems.without_paths(str(error), folders), model.users["user_id"])

    def close(self) -> None:
        """Wait for the job that runs, and end the child process of explanations."""
        self.jobs.close()
        self.erasures.close()
        self.store.current.explainer.close()

    def _build(self, request: AudienceRequest, out: Path) -> Artifact:
        served = self.store.current
        with self._resolved(served, request) as resolved:
            return audiences.build(served.model, resolved, out)

    @contextmanager
    def _resolved(self, served: Served, request: AudienceRequest) -> Iterator[AudienceRequest]:
        """The request with the paths of its tables, while the model may encode its interests."""
        if (parts := len(request.rules) + len(request.products)) > MOST_RULES:
            raise ConfigError(
                f"An audience may have {MOST_RULES} rules and lists of products here; this one has {parts}. Merge some."
            )
        rules = tuple(
            rule.model_copy(update={"table": self._small(rule.table)}) if rule.table else rule for rule in request.rules
        )
        changes: dict[str, Any] = {"rules": rules}
        changes |= {
            name: part.model_copy(update={"table": self._small(part.table)})
            for name, part in (("lookalike", request.lookalike), ("uplift", request.uplift))
            if part
        }
        changes["products"] = tuple(
            part.model_copy(update={"table": self._small(part.table)}) if isinstance(part, ProductList) else part
            for part in request.products
        )
        with served.reading(interest.text for interest in request.interests):
            yield request.model_copy(update=changes)


@contextmanager
def opened(
    folder: Path,
    state: Path,
    labels: Path | None = None,
    tables: Path | None = None,
    limits: Limits = DEFAULTS,
    verify: bool = True,
    guests: Sequence[ApiKey] = (),
    proxy: TrustedProxy | None = None,
) -> Iterator[Service]:
    """A service over the folder of a run. A state folder belongs to one at a time: two would run a job twice.

    `guests` are keys that are written nowhere; `proxy` says whose word about people is taken.
    """
    store = Store(folder, labels, verify, CHILD_SHARE * limits.seconds)  # first: without a model, nothing is written
    busy = f"Another service uses {state}. Stop it, or name another folder with --state."
    with files.locked(state / ".lock", busy):
        keys.read(state / keys.FILE)  # a damaged file is a message now, and no surprise at the first request
        shutil.rmtree(state / EXPORTS, ignore_errors=True)  # of a process that has ended
        service = Service(store, state, tables, limits, guests, proxy)
        try:
            yield service
        finally:
            service.close()
