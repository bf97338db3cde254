"""Keys on disk and on the command line."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from typer.testing import CliRunner

from merit.cli import app
from merit.core.errors import ConfigError, DamagedArtifact
from merit.service import keys
from merit.service.auth import RateLimiter
from merit.service.keys import Keyring


def test_a_key_is_found_by_its_secret_and_by_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / keys.FILE
    key, secret = keys.create(file, "tool", ["audience", "read"])
    ring = Keyring(file)
    assert ring.find(secret) == key and key.scopes == ("read", "audience")
    _, number, rest = secret.split("_", 2)
    for wrong in (
        "",
        secret[:-1],
        secret + "x",
        f"merit_{number}_",
        f"other_{number}_{rest}",
        f"merit_x_{rest}",
        key.hash,
    ):
        assert ring.find(wrong) is None


def test_secrets_are_not_on_disk_and_the_file_is_private(tmp_path: Path) -> None:
    file = tmp_path / keys.FILE
    secrets = [keys.create(file, "tool", ["read"])[1] for _ in range(3)]
    text = file.read_text()
    assert not any(secret.split("_", 2)[2] in text for secret in secrets)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert len({key.salt for key in keys.read(file)}) == 3


def test_keys_made_at_the_same_time_are_all_kept(tmp_path: Path) -> None:
    file = tmp_path / keys.FILE
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: keys.create(file, f"tool {n}", ["read"]), range(16)))
    assert len(keys.read(file)) == 16 and not list(tmp_path.glob(".keys.json.*"))


def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    file = tmp_path / keys.FILE
    with pytest.raises(ConfigError, match="no scope 'write'"):
        keys.create(file, "tool", ["write"])
    with pytest.raises(ConfigError, match="at least one scope"):
        keys.create(file, "tool", [])
    with pytest.raises(ConfigError, match="no key"):
        keys.revoke(file, "abc")
    file.write_text("{")
    with pytest.raises(DamagedArtifact, match="damaged"):
        keys.read(file)


def test_on_the_command_line(tmp_path: Path) -> None:
    state = ["--state", str(tmp_path)]
    made = CliRunner().invoke(app, ["-q", "keys", "create", "tool", "--scope", "read", "--scope", "export", *state])
    secret = made.stdout.strip()
    assert made.exit_code == 0
    key = Keyring(tmp_path / keys.FILE).find(secret)
    assert key and key.scopes == ("read", "export")
    listed = CliRunner().invoke(app, ["keys", "list", "--json", *state]).stdout
    assert key.id in listed and key.hash not in listed and key.salt not in listed
    assert CliRunner().invoke(app, ["-q", "keys", "revoke", key.id, *state]).exit_code == 0
    assert Keyring(tmp_path / keys.FILE).find(secret) is None


def test_a_bucket_fills_at_its_rate_and_holds_no_more_than_its_burst() -> None:
    now = [0.0]
    limiter = RateLimiter(rate=2.0, burst=3, clock=lambda: now[0])
    assert [limiter.wait("a") for _ in range(4)] == [0, 0, 0, 1]
    now[0] = 1.0
    assert [limiter.wait("a") for _ in range(3)] == [0, 0, 1]
    now[0] = 1_000.0
    assert [limiter.wait("a") for _ in range(4)] == [0, 0, 0, 1]
    assert limiter.wait("b") == 0


def test_a_guest_is_written_nowhere(tmp_path: Path) -> None:
    path = tmp_path / keys.FILE
    key, secret = keys.make("demo", ["read"])
    assert keys.Keyring(path, [key]).find(secret) == key
    assert keys.Keyring(path).find(secret) is None and not path.exists()
