"""Erasures that a service was asked for: hidden before the answer, purged while nobody waits.

What is kept of one is how it stands, and never who: the journal knows that until the purge is done. After a kill the
next start finds the journal and goes on.
"""

from __future__ import annotations

import hmac
import json
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path
from threading import Lock

from pydantic import ValidationError

from merit.core import artifacts, console, files
from merit.core.artifacts import Artifact
from merit.core.errors import ConfigError, MeritError, MissingArtifact
from merit.privacy.erasure import erase as stage
from merit.privacy.erasure import journal
from merit.privacy.erasure.certificate import Certificate
from merit.service.jobs import INTERRUPTED, Progress, now
from merit.service.problems import Refusal

SENDING = 60.0  # seconds that downloads under way get to come to their end
Between = Callable[[Callable[[], None]], None]


class Erasure(Progress):
    """One erasure as it is written down: `users` is how many were asked for, and nothing tells who."""

    users: int


class Erasures:
    """Those of one state folder, one at work at a time: until it is done, the next is refused with 409."""

    def __init__(
        self, state: Path, folders: Callable[[], Sequence[Path]], between: Between, told: Callable[[MeritError], str]
    ) -> None:
        """`folders` are those to be purged, the state's first; `between` runs something while no audience is built."""
        self.folder, self._state, self._folders = state / stage.FOLDER, state, folders
        self._between, self._told = between, told
        self._lock, self._secret = Lock(), secrets.token_bytes(32)
        self._marks: dict[str, bytes] = {}
        self._held = ExitStack()  # the lock of the erasure that is at work
        self._known = {each.id: each for each in self._recovered()}
        self._finish_what_was_left()

    def submit(self, owner: str, users: Sequence[str], reason: str, idempotency: str | None = None) -> Erasure:
        """Hide these users. Whoever asks from now on, in any process, is not told of them."""
        with self._lock:
            mark = hmac.digest(self._secret, json.dumps([*users, reason]).encode(), sha256)
            if had := self._had(owner, idempotency, mark):
                return had
            at_work = any(each.state in ("PENDING", "RUNNING") for each in self._known.values())
            if at_work or self._finish_what_was_left():
                raise Refusal(409, "An erasure is at work", "One at a time.", "Ask again soon.", {"Retry-After": "10"})
            home = self._held.enter_context(stage.begun(self._folders(), users, reason))
            begun = journal.read(home)
            assert begun is not None
            made = Erasure(id=begun.number, owner=owner, created=now(), users=len(begun.users), idempotency=idempotency)
            self._marks[made.id] = mark
            self._keep(made)

        def purge() -> Artifact:
            with self._held:
                return stage.purged(home)

        self._between(lambda: self._run(made.id, purge))
        return made

    def close(self) -> None:
        """What has not begun is finished after the next start."""
        self._held.close()

    def get(self, number: str, owner: str | None) -> Erasure:
        """An erasure of this owner, or with None of anyone; others' are not there at all."""
        found = self._known.get(number)
        if found is None or (owner is not None and found.owner != owner):
            raise MissingArtifact(f"There is no erasure '{number[:60]}'. Ask for one that this key began.")
        return found

    def certificate(self, number: str) -> Certificate | None:
        """What was erased and what is left; None as long as the purge has not ended."""
        place = self.folder / number
        return stage.certificate_of(artifacts.load(place)) if (place / artifacts.MANIFEST).exists() else None

    def _finish_what_was_left(self) -> bool:
        """An erasure that was killed, or that something held up. Whether there is one."""
        if left := journal.read(self._state):
            self._between(lambda: self._run(left.number, lambda: stage.finish(self._folders())))
        return left is not None

    def _had(self, owner: str, idempotency: str | None, mark: bytes) -> Erasure | None:
        """The erasure of this word. Whether it was of the same users is known as long as the process lives."""
        own = (each for each in self._known.values() if each.owner == owner and each.idempotency == idempotency)
        if idempotency is None or not (had := next(own, None)):
            return None
        if self._marks.get(had.id, mark) != mark:
            raise ConfigError("This Idempotency-Key was used for another request. Send a new one.")
        return had

    def _run(self, number: str, purge: Callable[[], Artifact]) -> None:
        self._change(number, state="RUNNING", started=now())
        try:
            self._let_downloads_end()
            purge()
            self._change(number, state="DONE", ended=now())
        except MeritError as error:
            self._change(number, state="FAILED", reason=self._told(error), ended=now())
        except Exception as error:
            console.warn(f"erasure {number}: {type(error).__name__}", erasure=number, error=type(error).__name__)
            told = "The service met an error that it does not know. Tell the operator the id of the erasure."
            self._change(number, state="FAILED", reason=told, ended=now())

    def _let_downloads_end(self) -> None:
        """They began before the users were hidden, and their files go with them."""
        end = time.monotonic() + SENDING
        while any((self._state / "exports").glob("*")) and time.monotonic() < end:
            time.sleep(0.05)

    def _change(self, number: str, **changes: object) -> None:
        with self._lock:
            if number in self._known:  # one that was begun from the command line is finished all the same
                self._keep(self._known[number].model_copy(update=changes))

    def _keep(self, each: Erasure) -> None:
        files.write(self.folder / f"{each.id}.json", each.model_dump_json(indent=1) + "\n")
        self._known[each.id] = each

    def _recovered(self) -> list[Erasure]:
        """As they were left; one without a journal is over."""
        left, found = journal.read(self._state), []
        for file in sorted(self.folder.glob("*.json")):
            try:
                each = Erasure.model_validate_json(file.read_bytes())
            except (OSError, ValidationError):
                console.warn(f"{file} cannot be read; its erasure is left out.", file=str(file))
                continue
            if each.state in ("PENDING", "RUNNING") and (left is None or left.number != each.id):
                done = (self.folder / each.id / artifacts.MANIFEST).exists()
                ending = {"state": "DONE"} if done else {"state": "FAILED", "reason": INTERRUPTED}
                each = each.model_copy(update={**ending, "ended": now()})
                files.write(file, each.model_dump_json(indent=1) + "\n")
            found.append(each)
        return found
