"""Files with a secret key: made once, readable by their owner alone."""

from __future__ import annotations

import re
import secrets
from pathlib import Path

from merit.core import files
from merit.core.errors import ConfigError

BYTES = 32  # of a key: as many as a hash can use well


def create(path: Path) -> None:
    """Write a new key. One that is there is never written over."""
    if path.exists():
        raise ConfigError(f"{path} is there already. A lost key cannot be made again: name another file.")
    files.write(path, secrets.token_hex(BYTES) + "\n")


def read(path: Path, command: str) -> bytes:
    """The key in a file that nobody else can read; `command` makes one."""
    try:
        text, mode = path.read_text(encoding="ascii").strip(), path.stat().st_mode
    except FileNotFoundError:
        raise ConfigError(f"There is no key {path}. Make one with `{command} {path}`.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"The key {path} cannot be read ({type(error).__name__}). Name a key file.") from None
    if mode & 0o077:
        raise ConfigError(f"The key {path} can be read or changed by others. Mend it: `chmod 600 {path}`.")
    if not re.fullmatch(f"[0-9a-f]{{{2 * BYTES},}}", text) or len(text) % 2:
        raise ConfigError(
            f"{path} holds no key: {2 * BYTES} hexadecimal digits are needed. Make one: `{command} FILE`."
        )
    return bytes.fromhex(text)[: 2 * BYTES]
