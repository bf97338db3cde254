"""Audiences that are built while nobody waits: PENDING → RUNNING → DONE or FAILED, with a reason.

A job is a folder: job.json, replaced in one step at every change, and the audience, which appears complete or not at
all. Whatever is killed, the next start finds each job in one of its states: one that was waiting is run, one that was
running is done if its audience is complete, and failed if not. It is not run again by itself: it may be what killed us.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import Literal

from pydantic import ValidationError

from merit.campaigns.audiences import build as audiences
from merit.campaigns.audiences.request import AudienceRequest
from merit.core import console, files
from merit.core.artifacts import Artifact
from merit.core.config import Frozen, digest
from merit.core.errors import ConfigError, DataError, MeritError, MissingArtifact

State = Literal["PENDING", "RUNNING", "DONE", "FAILED"]
CANCELLED = "Cancelled."
INTERRUPTED = "The service ended while this job ran. Start it again."
FILE = "job.json"
Build = Callable[[AudienceRequest, Path], Artifact]


class Progress(Frozen):
    """Of anything that goes on after its answer was sent."""

    id: str
    owner: str
    """The key that asked."""
    state: State = "PENDING"
    reason: str | None = None
    """Why it failed."""
    created: str
    started: str | None = None
    ended: str | None = None
    idempotency: str | None = None


class Job(Progress):
    """An audience. Its id begins with the time, so that ids sort by age."""

    request: AudienceRequest
    members: int | None = None
    hash: str | None = None
    """Of the audience: the same for the same model, tables and request."""


class TooMany(MeritError):
    """A key has more jobs waiting than it may."""


class Jobs:
    """All jobs of a folder, built one after the other by one thread; those that were left waiting go first."""

    def __init__(self, folder: Path, build: Build, told: Callable[[MeritError], str], waiting: int) -> None:
        self.folder, self._build, self._told, self._waiting = folder, build, told, waiting
        self._lock = Lock()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="audience")
        self._jobs = {job.id: job for job in _recovered(folder)}
        for job in sorted(self._jobs.values(), key=lambda each: each.id):
            if job.state == "PENDING":
                self._pool.submit(self._run, job.id)

    def submit(self, owner: str, request: AudienceRequest, idempotency: str | None = None) -> Job:
        """A new job; or, for a key of idempotency that was seen, the job it made."""
        with self._lock:
            own = [job for job in self._jobs.values() if job.owner == owner]
            if idempotency and (had := next((job for job in own if job.idempotency == idempotency), None)):
                if digest(had.request) != digest(request):
                    raise ConfigError("This Idempotency-Key was used for another request. Send a new one.")
                return had
            if sum(job.state in ("PENDING", "RUNNING") for job in own) >= self._waiting:
                raise TooMany(f"{self._waiting} jobs of this key wait already. Wait for one of them, or cancel it.")
            number = f"{datetime.now(UTC):%Y%m%d%H%M%S%f}-{secrets.token_hex(8)}"
            job = self._keep(Job(id=number, owner=owner, created=now(), request=request, idempotency=idempotency))
        self._pool.submit(self._run, job.id)
        return job

    def get(self, number: str, owner: str | None) -> Job:
        """A job of this owner; with None, of anyone. Others' jobs are not there at all."""
        job = self._jobs.get(number)
        if job is None or (owner is not None and job.owner != owner):
            raise MissingArtifact(f"There is no job '{number[:60]}'. See the list of jobs.")
        return job

    def list(self, owner: str | None) -> list[Job]:
        """The newest first."""
        own = [job for job in self._jobs.copy().values() if owner is None or job.owner == owner]
        return sorted(own, key=lambda job: job.id, reverse=True)

    def cancel(self, number: str, owner: str | None) -> Job:
        """A job that waits or runs will not end in an audience."""
        with self._lock:
            job = self.get(number, owner)
            if job.state in ("PENDING", "RUNNING"):
                job = self._keep(job.model_copy(update={"state": "FAILED", "reason": CANCELLED, "ended": now()}))
            elif job.reason != CANCELLED:
                raise DataError(f"The job is {job.state} already. There is nothing to cancel.")
        return job

    def audience(self, number: str, owner: str | None) -> Artifact:
        """What a finished job made, checked to the byte."""
        job = self.get(number, owner)
        if job.state != "DONE":
            raise DataError(f"The job is {job.state}. Export it once it is DONE.")
        return audiences.opened(self._place(job.id))

    def between(self, work: Callable[[], None]) -> None:
        """Do something while no audience is being built, after those that were asked for before."""
        self._pool.submit(work)

    def counts(self) -> dict[str, int]:
        """How many jobs of all keys are in each state, zeros included: the metrics ask for it."""
        states = [job.state for job in self._jobs.copy().values()]
        return {state: states.count(state) for state in ("PENDING", "RUNNING", "DONE", "FAILED")}

    def close(self) -> None:
        """The job that runs comes to its end; those that wait are run after the next start."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _run(self, number: str) -> None:
        with self._lock:
            job = self._jobs[number]
            if job.state != "PENDING":
                return
            self._keep(job.model_copy(update={"state": "RUNNING", "started": now()}))
        made, reason = None, None
        try:
            made = self._build(job.request, self._place(number))
        except MeritError as error:
            reason = self._told(error)
        except Exception as error:
            console.warn(f"job {number}: {type(error).__name__}", job=number, error=type(error).__name__)
            reason = "The service met an error that it does not know. Tell the operator the id of the job."
        with self._lock:
            job = self._jobs[number]
            if job.state != "RUNNING":  # cancelled meanwhile
                shutil.rmtree(self._place(number), ignore_errors=True)
                return
            self._keep(_ended(job, made, reason))

    def _keep(self, job: Job) -> Job:
        files.write(self.folder / job.id / FILE, job.model_dump_json(indent=1) + "\n")
        self._jobs[job.id] = job
        return job

    def _place(self, number: str) -> Path:
        return self.folder / number / "audience"


def _ended(job: Job, made: Artifact | None, reason: str | None) -> Job:
    if made is None:
        return job.model_copy(update={"state": "FAILED", "reason": reason, "ended": now()})
    facts = {"members": made.manifest.summary["members"], "hash": made.manifest.hash}
    return job.model_copy(update={"state": "DONE", "ended": now(), **facts})


def _recovered(folder: Path) -> list[Job]:
    """Jobs as they were left, each brought into a state that is true."""
    found = []
    for file in sorted(folder.glob(f"*/{FILE}")):
        try:
            job = Job.model_validate_json(file.read_text(encoding="utf-8"))
        except (OSError, ValidationError, UnicodeDecodeError):
            console.warn(f"{file} cannot be read; its job is left out.", file=str(file))
            continue
        for draft in file.parent.glob(".*"):  # of a process that is gone
            if draft.is_dir():
                shutil.rmtree(draft, ignore_errors=True)
            else:
                draft.unlink(missing_ok=True)
        if job.state == "RUNNING":
            job = _after_a_kill(job, file.parent / "audience")
            files.write(file, job.model_dump_json(indent=1) + "\n")
        elif job.state == "FAILED":
            shutil.rmtree(file.parent / "audience", ignore_errors=True)
        found.append(job)
    return found


def _after_a_kill(job: Job, place: Path) -> Job:
    try:
        return _ended(job, audiences.opened(place), None)
    except MeritError:
        shutil.rmtree(place, ignore_errors=True)
        return _ended(job, None, INTERRUPTED)


def now() -> str:
    """In UTC and ISO 8601, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")
