"""API keys and their scopes. A key is shown once; only a salted hash of it is stored.

    made, secret = keys.create(Path("service/keys.json"), "campaign tool", ["read", "audience"])
    Keyring(Path("service/keys.json")).find(secret)          # the key, or None

A secret is 256 random bits: no dictionary contains it, and a fast hash is enough.
"""

from __future__ import annotations

import hmac
import json
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Literal, get_args

from pydantic import Field

from merit.core import files
from merit.core.config import Frozen
from merit.core.errors import ConfigError, DamagedArtifact
from merit.core.files import storage_errors
from merit.core.provenance import now
from merit.privacy import audit

Scope = Literal["read", "audience", "export", "admin", "erase"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
FILE = "keys.json"  # in the state folder of a service
PREFIX = "merit"  # lets scanners for leaked secrets recognise one


class FormerSecret(Frozen):
    """The secret that a rotation replaced: it opens for a while still, so that callers can be changed one by one."""

    salt: str
    hash: str
    until: str


class ApiKey(Frozen):
    """A key as it is stored: a salted hash and never the secret; a revoked key stays, with the time."""

    id: str
    name: str = Field(min_length=1, max_length=200)
    scopes: tuple[Scope, ...] = Field(min_length=1)
    salt: str
    hash: str
    created: str
    revoked: str | None = None
    expires: str | None = None
    """From then on it is refused."""
    rotated: str | None = None
    """When its secret was last replaced."""
    former: FormerSecret | None = None

    def expired(self) -> bool:
        """Whether its time is over."""
        return self.expires is not None and self.expires <= now()


class _File(Frozen):
    keys: tuple[ApiKey, ...] = ()


def create(path: Path, name: str, scopes: Sequence[str], days: float | None = None) -> tuple[ApiKey, str]:
    """A new key and its secret, which is not stored; with `days`, one that expires."""
    key, secret = make(name, scopes, days)
    with files.locked(path.with_name(".keys.lock")):
        _write(path, (*read(path), key))
    audit.append(path.parent, "key created", key=key.id, scopes=list(key.scopes), expires=key.expires)
    return key, secret


def make(name: str, scopes: Sequence[str], days: float | None = None) -> tuple[ApiKey, str]:
    """A key that is not stored, and its secret."""
    if unknown := [scope for scope in scopes if scope not in SCOPES]:
        raise ConfigError(f"There is no scope '{unknown[0]}'. Choose among {', '.join(SCOPES)}.")
    if not scopes or not 0 < len(name) <= 200:
        raise ConfigError("A key needs a name and at least one scope: `merit keys create NAME --scope read`.")
    number, secret, salt = secrets.token_hex(6), secrets.token_urlsafe(32), secrets.token_hex(16)
    ordered = tuple(scope for scope in SCOPES if scope in scopes)
    expires = _later(days=days) if days is not None else None
    key = ApiKey(
        id=number, name=name, scopes=ordered, salt=salt, hash=_hash(secret, salt), created=now(), expires=expires
    )
    return key, f"{PREFIX}_{number}_{secret}"


def rotate(path: Path, number: str, overlap_hours: float = 24, days: float | None = None) -> tuple[ApiKey, str]:
    """The same key with a new secret: its jobs stay its own. The former secret opens for some hours still.

    A key that expires gets as long a time again as it had, or `days`.
    """
    with _changing(path, number) as stored:
        old = stored[number]
        if old.revoked:
            raise ConfigError(f"The key '{number}' is revoked. Make a new one: `merit keys create NAME --scope read`.")
        secret, salt = secrets.token_urlsafe(32), secrets.token_hex(16)
        until = min(_later(hours=overlap_hours), old.expires or "9999")
        expires = _later(seconds=_life(old)) if days is None and old.expires else None
        changes = {
            "salt": salt,
            "hash": _hash(secret, salt),
            "former": FormerSecret(salt=old.salt, hash=old.hash, until=until),
            "rotated": now(),
            "expires": _later(days=days) if days is not None else expires,
        }
        stored[number] = old.model_copy(update=changes)
    audit.append(path.parent, "key rotated", key=number, until=until, expires=stored[number].expires)
    return stored[number], f"{PREFIX}_{number}_{secret}"


def revoke(path: Path, number: str) -> ApiKey:
    """The revoked key. A running service refuses it from the next request on."""
    with _changing(path, number) as stored:
        stored[number] = stored[number].model_copy(update={"revoked": stored[number].revoked or now()})
    audit.append(path.parent, "key revoked", key=number)
    return stored[number]


@contextmanager
def _changing(path: Path, number: str) -> Iterator[dict[str, ApiKey]]:
    """The stored keys by number, this one among them; what is changed in them is stored."""
    with files.locked(path.with_name(".keys.lock")):
        stored = {key.id: key for key in read(path)}
        if number not in stored:
            raise ConfigError(f"There is no key '{number}' in {path}. See `merit keys list`.")
        yield stored
        _write(path, tuple(stored.values()))


def _later(**time: float) -> str:
    """As `now` writes it, so that two times are compared as texts."""
    if min(time.values()) <= 0:
        raise ConfigError(
            "A key expires in the future, and a rotation has an overlap above zero: give a larger number."
        )
    try:
        return (datetime.fromisoformat(now()) + timedelta(**time)).isoformat(timespec="seconds")
    except OverflowError:
        raise ConfigError("That is beyond the year 9999. Give fewer days, or none: then it does not expire.") from None


def _life(key: ApiKey) -> float:
    """Seconds from the making of its present secret to its end."""
    return (
        datetime.fromisoformat(str(key.expires)) - datetime.fromisoformat(key.rotated or key.created)
    ).total_seconds()


def read(path: Path) -> tuple[ApiKey, ...]:
    """All keys, revoked ones too; none where there is no file."""
    try:
        with storage_errors(path):
            return _File.model_validate(json.loads(path.read_text(encoding="utf-8"))).keys
    except FileNotFoundError:
        return ()
    except (ValueError, RecursionError):
        raise DamagedArtifact(f"{path} is damaged. Remove it, and make new keys with `merit keys create`.") from None


class Keyring:
    """The keys of a file, read again when it changes: no restart to revoke one. Guests live as long as the process."""

    def __init__(self, path: Path, guests: Sequence[ApiKey] = ()) -> None:
        self.path = path
        self._guests = {key.id: key for key in guests}
        self._seen: tuple[int, int, int] | None = None
        self._keys: dict[str, ApiKey] = {}

    def find(self, secret: str) -> ApiKey | None:
        """The key of this secret, or None. It takes as long for an unknown key as for a wrong or a right secret.

        Whether its time is over is for the caller to see (`expired`). By a former secret, it ends with the overlap.
        """
        self._refresh()
        prefix, _, rest = secret.partition("_")
        number, _, secret = rest.partition("_")
        key = self._guests.get(number) or self._keys.get(number)
        right = hmac.compare_digest(_hash(secret, key.salt if key else ""), key.hash if key else "0" * 64)
        former = key.former if key else None
        earlier = hmac.compare_digest(_hash(secret, former.salt if former else ""), former.hash if former else "0" * 64)
        if not key or key.revoked or prefix != PREFIX or not (right or earlier):
            return None
        return key if right or not former else key.model_copy(update={"expires": former.until})

    def _refresh(self) -> None:
        try:
            stat = self.path.stat()
            seen = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
        except FileNotFoundError:
            self._keys, self._seen = {}, None
            return
        if seen != self._seen:
            self._keys, self._seen = {key.id: key for key in read(self.path)}, seen


def _write(path: Path, keys: tuple[ApiKey, ...]) -> None:
    files.write(path, _File(keys=keys).model_dump_json(indent=1) + "\n")


def _hash(secret: str, salt: str) -> str:
    return sha256(f"{salt}{secret}".encode("utf-8", "surrogatepass")).hexdigest()
