"""Erasures: users are hidden before the answer is sent, and purged as a job.

What is stored of an erasure is its state and never its users: only the journal has them, until the purge is done. After
a crash the next start finds the journal and goes on.
"""

from __future__ import annotations

import hmac
import json
import secrets
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack, suppress
from hashlib import sha256
from pathlib import Path
from threading import Timer

from merit.core import artifacts
from merit.core.errors import MeritError
from merit.core.provenance import now
from merit.privacy.erasure import erase as stage
from merit.privacy.erasure.certificate import Certificate
from merit.service.jobs import INTERRUPTED, UNFINISHED, JobQueue, JobRecord, Redact
from merit.service.problems import Refusal

DOWNLOADS = 60.0  # seconds that downloads under way get to end
RETRY = 60.0  # seconds until an erasure that failed is tried again


class ErasureJob(JobRecord):
    """An erasure as it is stored: `users` is the number of users in the request, and nothing names them."""

    users: int


class Erasures(JobQueue[ErasureJob]):
    """The erasures of a state folder, one at a time: until it is done, the next is refused with 409."""

    def __init__(self, state: Path, folders: Callable[[], Sequence[Path]], worker: Executor, redact: Redact) -> None:
        """`folders` are those to purge, the state's first; `worker` also builds audiences, so no job meets another."""
        super().__init__(ErasureJob, state / stage.FOLDER, "*.json", redact)
        self._state, self._folders, self._worker = state, folders, worker
        self._secret = secrets.token_bytes(32)
        self._digests: dict[str, bytes] = {}  # of requests: a repeated one is recognised as long as the process lives
        self._held = ExitStack()  # the lock of the erasure that runs
        self._later: Timer | None = None
        self._recover()
        self._finish_interrupted()

    def submit(self, owner: str, users: Sequence[str], reason: str, idempotency: str | None = None) -> ErasureJob:
        """Hide these users: from now on no process answers about them. Their files are purged by the worker."""
        request = hmac.digest(self._secret, json.dumps([*users, reason]).encode(), sha256)
        with self.lock:
            same = lambda job: self._digests.get(job.id, request) == request  # noqa: E731
            if job := self.repeated(owner, idempotency, same):
                return job
            running = any(job.state in UNFINISHED for job in self.records.values())
            if running or self._finish_interrupted():
                raise Refusal(409, "An erasure is running", "One at a time.", "Ask again soon.", {"Retry-After": "10"})
            home = self._held.enter_context(stage.begin(self._folders(), users, reason))
            begun = stage.read_journal(home)
            assert begun is not None
            self._digests[begun.number] = request
            job = ErasureJob(
                id=begun.number, owner=owner, created=now(), users=len(begun.users), idempotency=idempotency
            )
            try:
                self.keep(job)
            except MeritError:
                stage.cancel(home, self._folders())
                self._held.close()
                raise
        self._worker.submit(self._run, job.id, home)
        return job

    def certificate(self, job: ErasureJob) -> Certificate | None:
        """What was erased and what is left; None until the purge is done."""
        return stage.certificate_of(artifacts.load(self.folder / job.id)) if job.state == "DONE" else None

    def close(self) -> None:
        """Release the lock; a purge that has not begun is finished after the next start."""
        if self._later:
            self._later.cancel()
        self._held.close()

    def _run(self, number: str, home: Path | None) -> None:
        """Purge the erasure that `submit` began in `home`; without one, finish the erasure of an earlier process."""

        def work() -> dict[str, object]:
            self._wait_for_downloads()
            if home:
                with self._held:
                    stage.purge(home)
            else:
                stage.finish(self._folders())
            return {}

        if home is None and getattr(stage.read_journal(self._state), "number", None) != number:
            return  # finished or taken back meanwhile
        if not self.run(number, work):
            self._held.close()
        record = self.records.get(number)
        if record and record.state == "FAILED" and stage.read_journal(self._state):
            self._later = Timer(RETRY, self._finish_interrupted)  # there may be space by then
            self._later.daemon = True
            self._later.start()

    def _wait_for_downloads(self) -> None:
        """They began before the users were hidden, and their files are purged as well."""
        end = time.monotonic() + DOWNLOADS
        while any((self._state / "exports").glob("*")) and time.monotonic() < end:
            time.sleep(0.05)

    def _finish_interrupted(self) -> bool:
        """Whether there is an erasure that was killed or failed, of which a journal is left; it is run again."""
        if left := stage.read_journal(self._state):
            with suppress(RuntimeError):  # the service is being closed
                self._worker.submit(self._run, left.number, None)
        return left is not None

    def _recover(self) -> None:
        """An unfinished erasure without a journal has ended: done if it has a certificate, and failed if not."""
        left = stage.read_journal(self._state)
        for job in list(self.records.values()):
            if job.state in UNFINISHED and (left is None or left.number != job.id):
                done = (self.folder / job.id / artifacts.MANIFEST).exists()
                ending = {"state": "DONE"} if done else {"state": "FAILED", "reason": INTERRUPTED}
                self._settle(job.model_copy(update={**ending, "ended": now()}))
