"""Who vouches for a folder: a signature of its manifest, by a key that lies elsewhere.

    merit model signing-key ~/keys/release                  # once
    merit model sign runs/shop --key ~/keys/release
    merit --signing-key ~/keys/release serve runs/shop       # refuses any other model, and any change of this one

The manifest has the hash of every file, so a signature of it vouches for all of them, once they are checked. It is an
HMAC: whoever can check it can sign.
"""

from __future__ import annotations

import hmac
from hashlib import sha256
from pathlib import Path

from pydantic import ValidationError

from merit.core import files, key_files
from merit.core.artifacts import MANIFEST
from merit.core.config import Frozen
from merit.core.errors import ConfigError, DamagedArtifact

SIGNATURE = "signature.json"
COMMAND = "merit model signing-key"
_required: list[bytes] = []  # the key of this process, if it opens signed models only


class Signature(Frozen):
    """What stands beside the manifest that it is of."""

    hmac_sha256: str


def create(path: Path) -> None:
    """Write a new key, outside every artifact."""
    if any((folder / MANIFEST).exists() for folder in path.expanduser().resolve().parents):
        raise ConfigError(
            f"{path} lies in the folder of an artifact, whose readers could sign. Name a place elsewhere."
        )
    key_files.create(path.expanduser())


def require(path: Path | None) -> None:
    """From now on, this process opens only models that the key has signed; with None, all."""
    _required[:] = [key_files.read(path.expanduser(), COMMAND)] if path else []


def required() -> bool:
    """Whether models must be signed. Then each of their bytes must be checked, too."""
    return bool(_required)


def sign(folder: Path, path: Path) -> None:
    """Vouch for an artifact that was checked."""
    _write(folder, key_files.read(path.expanduser(), COMMAND))


def check(folder: Path) -> None:
    """Refuse an artifact that the required key has not signed as it is now."""
    if _required and not _signed(folder, _required[0]):
        raise DamagedArtifact(
            f"{folder} is not signed as it is now by the key of --signing-key. If you know why it changed, sign it: "
            f"`merit model sign {folder} --key FILE`."
        )


def renew(old: Path, new: Path) -> None:
    """Sign what takes the place of an artifact, if the required key had signed that."""
    if _required and _signed(old, _required[0]):
        _write(new, _required[0])


def _signed(folder: Path, key: bytes) -> bool:
    try:
        signature = Signature.model_validate_json((folder / SIGNATURE).read_bytes())
    except (OSError, ValidationError):
        return False
    return hmac.compare_digest(signature.hmac_sha256.encode("utf-8", "replace"), _of(folder, key).encode())


def _write(folder: Path, key: bytes) -> None:
    files.write(folder / SIGNATURE, Signature(hmac_sha256=_of(folder, key)).model_dump_json() + "\n", 0o644)


def _of(folder: Path, key: bytes) -> str:
    return hmac.new(key, b"merit manifest\n" + (folder / MANIFEST).read_bytes(), sha256).hexdigest()
