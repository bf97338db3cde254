"""API keys and their scopes. A key is shown once; only a salted hash of it is stored.

    made, secret = keys.create(Path("service/keys.json"), "campaign tool", ["read", "audience"])
    Keyring(Path("service/keys.json")).find(secret)          # the key, or None

A secret is 256 random bits: no dictionary contains it, and a fast hash is enough.
"""

from __future__ import annotations

import hmac
import json
import secrets
from collections.abc import Sequence
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


class ApiKey(Frozen):
    """A key as it is stored: a salted hash and never the secret; a revoked key stays, with the time."""

    id: str
    name: str = Field(min_length=1, max_length=200)
    scopes: tuple[Scope, ...] = Field(min_length=1)
    salt: str
    hash: str
    created: str
    revoked: str | None = None


class _File(Frozen):
    keys: tuple[ApiKey, ...] = ()


def create(path: Path, name: str, scopes: Sequence[str]) -> tuple[ApiKey, str]:
    """A new key and its secret, which is not stored."""
    key, secret = make(name, scopes)
    with files.locked(path.with_name(".keys.lock")):
        _write(path, (*read(path), key))
    audit.append(path.parent, "key created", key=key.id, scopes=list(key.scopes))
    return key, secret


def make(name: str, scopes: Sequence[str]) -> tuple[ApiKey, str]:
    """A key that is not stored, and its secret."""
    if unknown := [scope for scope in scopes if scope not in SCOPES]:
        raise ConfigError(f"There is no scope '{unknown[0]}'. Choose among {', '.join(SCOPES)}.")
    if not scopes or not 0 < len(name) <= 200:
        raise ConfigError("A key needs a name and at least one scope: `merit keys create NAME --scope read`.")
    number, secret, salt = secrets.token_hex(6), secrets.token_urlsafe(32), secrets.token_hex(16)
    ordered = tuple(scope for scope in SCOPES if scope in scopes)
    key = ApiKey(id=number, name=name, scopes=ordered, salt=salt, hash=_hash(secret, salt), created=now())
    return key, f"{PREFIX}_{number}_{secret}"


def revoke(path: Path, number: str) -> ApiKey:
    """The revoked key. A running service refuses it from the next request on."""
    with files.locked(path.with_name(".keys.lock")):
        stored = {key.id: key for key in read(path)}
        if number not in stored:
            raise ConfigError(f"There is no key '{number}' in {path}. See `merit keys list`.")
        stored[number] = stored[number].model_copy(update={"revoked": stored[number].revoked or now()})
        _write(path, tuple(stored.values()))
    audit.append(path.parent, "key revoked", key=number)
    return stored[number]


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
        """The key of this secret, or None. It takes as long for an unknown key as for a wrong or a right secret."""
        self._refresh()
        prefix, _, rest = secret.partition("_")
        number, _, secret = rest.partition("_")
        key = self._guests.get(number) or self._keys.get(number)
        right = hmac.compare_digest(_hash(secret, key.salt if key else ""), key.hash if key else "0" * 64)
        return key if key and right and prefix == PREFIX and key.revoked is None else None

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
