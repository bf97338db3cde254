"""Jobs that run after the answer was sent: PENDING → RUNNING → DONE or FAILED, with a reason.

A job is a JSON file, replaced in one step at every change. An audience job is a folder with job.json and the audience,
which appears complete or not at all. After a crash the next start brings every job into a true state: one that was
waiting is run; one that was running is done if its audience is complete, and failed if not. It is not run again by
itself: it may be what caused the crash.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from threading import RLock
from typing import Generic, TypeVar

from pydantic import ValidationError

from merit.campaigns.audiences import export
from merit.campaigns.audiences.request import AudienceRequest
from merit.core import artifacts, console, files
from merit.core.artifacts import Artifact
from merit.core.errors import ConfigError, DataError, MeritError, MissingArtifact
from merit.core.provenance import now
from merit.service.campaign_schemas import STATES, JobResponse, ProgressResponse
from merit.service.problems import Refusal

CANCELLED = "Cancelled."
INTERRUPTED = "The service ended while this job ran. Start it again."
UNSTORED = "The state of this job could not be stored: {} It was not run. Start it again."
UNFINISHED = ("PENDING", "RUNNING")
Redact = Callable[[MeritError], str]


class JobRecord(ProgressResponse):
    """A job as it is stored: `owner` is the id of the key that started it."""

    owner: str
    idempotency: str | None = None


class AudienceJob(JobRecord, JobResponse):
    """An audience to build. The id begins with the time, so that ids sort by age."""


R = TypeVar("R", bound=JobRecord)


class JobQueue(Generic[R]):
    """The jobs of one kind in a folder, and how each of them is run and stored."""

    def __init__(self, kind: type[R], folder: Path, pattern: str, redact: Redact) -> None:
        """`pattern` is the path of a job's file inside the folder, with a * for its id."""
        self.folder, self._pattern, self._redact = folder, pattern, redact
        self.lock = RLock()
        self.records: dict[str, R] = {}
        self._unstored: set[str] = set()
        for file in sorted(folder.glob(pattern)):
            try:
                record = kind.model_validate_json(file.read_bytes())
                self.records[record.id] = record
            except (OSError, ValidationError):
                console.warn(f"{file} cannot be read; its job is left out.", file=str(file))

    def keep(self, record: R) -> R:
        """The same record, stored; an error if that is not possible, and then nothing has changed."""
        files.write(self.folder / self._pattern.replace("*", record.id), record.model_dump_json(indent=1) + "\n")
        self.records[record.id] = record
        self._unstored.discard(record.id)
        return record

    def store_late(self) -> None:
        """Write what could not be written before."""
        with self.lock, suppress(MeritError, OSError):
            for number in sorted(self._unstored):
                self.keep(self.records[number])

    def get(self, number: str, owner: str | None) -> R:
        """A job of this owner; with None, of any owner. Jobs of others are reported as missing."""
        self.store_late()
        record = self.records.get(number)
        if record is None or (owner is not None and record.owner != owner):
            raise MissingArtifact(f"There is no job '{number[:60]}'. Use the id that its start returned.")
        return record

    def repeated(self, owner: str, idempotency: str | None, same: Callable[[R], bool]) -> R | None:
        """The job that this idempotency key started before, or None; the request must be the same."""
        records = self.records.values() if idempotency else ()
        first = next((job for job in records if (job.owner, job.idempotency) == (owner, idempotency)), None)
        if first and not same(first):
            raise ConfigError("This Idempotency-Key was used for another request. Send a new one.")
        return first

    def run(self, number: str, work: Callable[[], dict[str, object]]) -> bool:
        """Run a job and store how it ended, with the fields that `work` returns. False for one that was not run."""
        if not self._change(number, state="RUNNING", reason=None, started=now()):
            return False
        try:
            ending = {"state": "DONE", **work()}
        except MeritError as error:
            ending = {"state": "FAILED", "reason": self._redact(error)}
        except Exception as error:
            console.warn(f"job {number}: {type(error).__name__}", job=number, error=type(error).__name__)
            reason = "An unexpected error occurred in the service. Tell the operator the id of the job."
            ending = {"state": "FAILED", "reason": reason}
        return self._change(number, ended=now(), **ending)

    def _change(self, number: str, **changes: object) -> bool:
        """Whether the job goes on: not if it was cancelled. One that was begun elsewhere has no record here."""
        with self.lock:
            record = self.records.get(number)
            if record and record.reason == CANCELLED:
                return False
            return record is None or self._settle(record.model_copy(update=changes))

    def _settle(self, record: R) -> bool:
        """Whether the job goes on. The end of a job is true even if it cannot be written; no job is begun that way."""
        try:
            self.keep(record)
        except (MeritError, OSError) as error:
            console.warn(f"job {record.id}: its state cannot be stored ({error})", job=record.id, error=str(error))
            fault = self._redact(error) if isinstance(error, MeritError) else f"{type(error).__name__}."
            failed = {"state": "FAILED", "reason": UNSTORED.format(fault), "ended": now()}
            begun = record.state in UNFINISHED
            self.records[record.id] = record.model_copy(update=failed) if begun else record
            self._unstored.add(record.id)
            return not begun
        return True


class AudienceJobs(JobQueue[AudienceJob]):
    """Audience jobs, built one after the other by one thread; those left waiting by an earlier process go first."""

    def __init__(
        self, folder: Path, build: Callable[[AudienceRequest, Path], Artifact], redact: Redact, waiting: int
    ) -> None:
        super().__init__(AudienceJob, folder, "*/job.json", redact)
        self._build, self._waiting = build, waiting
        self.worker = ThreadPoolExecutor(1, thread_name_prefix="jobs")
        for job in [*self.records.values()]:
            self._recover(job)

    def submit(self, owner: str, request: AudienceRequest, idempotency: str | None = None) -> AudienceJob:
        """A new job; or, for an idempotency key that was used before, the job it started."""
        with self.lock:
            if job := self.repeated(owner, idempotency, lambda job: job.request == request):
                return job
            if sum(job.state in UNFINISHED for job in self.list(owner)) >= self._waiting:
                detail = f"{self._waiting} jobs of this key wait already."
                raise Refusal(429, "Too many jobs", detail, "Wait for one, or cancel it.", {"Retry-After": "10"})
            number = f"{datetime.now(UTC):%Y%m%d%H%M%S%f}-{secrets.token_hex(8)}"
            job = AudienceJob(id=number, owner=owner, created=now(), request=request, idempotency=idempotency)
            try:
                self.keep(job)
            except MeritError:
                shutil.rmtree(self.folder / number, ignore_errors=True)
                raise
        self.worker.submit(self._run, job)
        return job

    def list(self, owner: str | None) -> list[AudienceJob]:
        """The jobs of this owner, or of all; the newest first."""
        self.store_late()
        jobs = [job for job in self.records.copy().values() if owner is None or job.owner == owner]
        return sorted(jobs, key=lambda job: job.id, reverse=True)

    def cancel(self, number: str, owner: str | None) -> AudienceJob:
        """The job, failed with the reason "Cancelled."; one that has ended cannot be cancelled."""
        with self.lock:
            job = self.get(number, owner)
            if job.state in UNFINISHED:
                return self.keep(job.model_copy(update={"state": "FAILED", "reason": CANCELLED, "ended": now()}))
            if job.reason != CANCELLED:
                raise DataError(f"The job is {job.state} already. There is nothing to cancel.")
        return job

    def audience(self, number: str, owner: str | None) -> Artifact:
        """The audience of a finished job, checked to the byte."""
        job = self.get(number, owner)
        if job.state != "DONE":
            raise DataError(f"The job is {job.state}. Export it once it is DONE.")
        return artifacts.load(self._out(job), export.AUDIENCE)

    def counts(self) -> dict[str, int]:
        """The number of jobs in each state, zeros included."""
        states = [job.state for job in self.list(None)]
        return {state: states.count(state) for state in STATES}

    def close(self) -> None:
        """Wait for the job that runs; those that wait are run after the next start."""
        self.worker.shutdown(wait=True, cancel_futures=True)

    def _out(self, job: AudienceJob) -> Path:
        return self.folder / job.id / "audience"

    def _run(self, job: AudienceJob) -> None:
        if not self.run(job.id, lambda: _summary(self._build(job.request, self._out(job)))):
            shutil.rmtree(self._out(job), ignore_errors=True)

    def _recover(self, job: AudienceJob) -> None:
        """Remove the drafts of a process that has ended, and bring the job into a state that is true."""
        for draft in (self.folder / job.id).glob(".*"):
            if draft.is_dir():
                shutil.rmtree(draft, ignore_errors=True)
            else:
                draft.unlink(missing_ok=True)
        if job.state == "PENDING":
            self.worker.submit(self._run, job)
        if job.state == "RUNNING":
            ending: dict[str, object] = {"state": "FAILED", "reason": INTERRUPTED}
            with suppress(MeritError):
                ending = {"state": "DONE"} | _summary(artifacts.load(self._out(job), export.AUDIENCE))
            job = job.model_copy(update=ending | {"ended": now()})
            self._settle(job)
        if job.state == "FAILED":
            shutil.rmtree(self._out(job), ignore_errors=True)


def _summary(made: Artifact) -> dict[str, object]:
    return {"members": made.manifest.summary.get("members, published"), "hash": made.manifest.hash}
