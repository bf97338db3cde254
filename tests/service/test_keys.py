"""Keys on disk and on the command line."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner

from merit.cli import app
from merit.core.errors import ConfigError, DamagedArtifact
from merit.privacy import audit
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


def at(monkeypatch: pytest.MonkeyPatch, **later: float) -> None:
    """Let time pass for keys."""
    moment = datetime.now(UTC) + timedelta(**later)
    monkeypatch.setattr(keys, "now", lambda: moment.isoformat(timespec="seconds"))


def test_a_key_expires(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / keys.FILE
    key, secret = keys.create(file, "tool", ["read"], days=30)
    ring = Keyring(file)
    at(monkeypatch, days=29)
    assert (found := ring.find(secret)) and not found.expired()
    at(monkeypatch, days=31)
    assert (found := ring.find(secret)) and found.expired() and found.id == key.id
    assert ring.find(secret + "x") is None  # a stranger does not learn that there was such a key
    for days in (0, -1, 1e9):
        with pytest.raises(ConfigError, match=r"expires in the future|beyond the year"):
            keys.create(file, "tool", ["read"], days=days)


def test_a_rotated_key_has_two_secrets_for_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / keys.FILE
    key, first = keys.create(file, "tool", ["read", "export"], days=30)
    ring = Keyring(file)
    at(monkeypatch, days=28)
    rotated, second = keys.rotate(file, key.id, overlap_hours=2)
    assert second != first and rotated.id == key.id and rotated.scopes == key.scopes
    assert all((found := ring.find(secret)) and not found.expired() for secret in (first, second))
    at(monkeypatch, days=28, hours=3)
    assert [bool((found := ring.find(secret)) and found.expired()) for secret in (first, second)] == [True, False]
    _, third = keys.rotate(file, key.id, overlap_hours=1, days=365)
    assert ring.find(first) is None and ring.find(second) and ring.find(third)  # no more than two at a time
    at(monkeypatch, days=300)
    assert (found := ring.find(third)) and not found.expired()
    text = file.read_text()
    assert not any(secret.split("_", 2)[2] in text for secret in (first, second, third))
    keys.revoke(file, key.id)
    assert ring.find(second) is None and ring.find(third) is None
    with pytest.raises(ConfigError, match="is revoked"):
        keys.rotate(file, key.id)
    with pytest.raises(ConfigError, match="overlap above zero"):
        keys.rotate(file, keys.create(file, "other", ["read"])[0].id, overlap_hours=0)


def test_a_rotation_gives_as_long_a_life_again(tmp_path: Path) -> None:
    file = tmp_path / keys.FILE
    short, _ = keys.create(file, "tool", ["read"], days=10)
    rotated, _ = keys.rotate(file, short.id)
    left = datetime.fromisoformat(str(rotated.expires)) - datetime.now(UTC)
    assert timedelta(days=9.9) < left <= timedelta(days=10.1)
    assert keys.rotate(file, keys.create(file, "tool", ["read"])[0].id)[0].expires is None


def test_rotation_on_the_command_line(tmp_path: Path) -> None:
    state = ["--state", str(tmp_path)]
    call = partial(CliRunner().invoke, app)
    made = call(["-q", "keys", "create", "tool", "--scope", "read", "--days", "90", *state]).stdout.strip()
    number = made.split("_")[1]
    rotated = call(["-q", "keys", "rotate", number, "--overlap", "1", *state])
    assert rotated.exit_code == 0 and rotated.stdout.strip().startswith(f"merit_{number}_")
    listed = call(["keys", "list", "--json", *state]).stdout
    assert '"rotated"' in listed and "hash" not in listed and "salt" not in listed
    assert [entry.event for entry in audit.read(tmp_path)] == ["key created", "key rotated"]
