"""A PostgreSQL server of Debian's package, for the tests of one session, on a free port of this machine.

It refuses to run as root: there it runs as the user of the package. What is written is not flushed, because nothing has
to outlive the tests.
"""

from __future__ import annotations

import json
import os
import pwd
import shutil
import socket
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from urllib.parse import quote

OWNER = "postgres"
RECORD = "server.json"
PASSWORD = "p4ss-w0rd/of@tests"  # with characters that an address has to escape
QUICK = "-c fsync=off -c synchronous_commit=off -c full_page_writes=off -c max_connections=40 -c shared_buffers=64MB"


@dataclass(frozen=True)
class Postgres:
    """A running server. Every test makes a database of its own there."""

    port: int
    folder: Path
    binaries: Path

    def dsn(self, database: str = "postgres", user: str = OWNER, password: str = PASSWORD) -> str:
        """An address with the password in it."""
        return f"postgresql://{user}:{quote(password, safe='')}@127.0.0.1:{self.port}/{database}"

    def run(self, sql: str, database: str = "postgres") -> str:
        """What psql prints of some SQL, as the owner of all databases."""
        words = [str(self.binaries / "psql"), "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", self.dsn(database)]
        done = subprocess.run(words, input=sql, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    @contextmanager
    def database(self) -> Iterator[str]:
        """The name of an empty database. It is gone afterwards, and so are roles whose names end in its name."""
        name = f"test_{uuid.uuid4().hex[:12]}"
        self.run(f"CREATE DATABASE {name}")
        try:
            yield name
        finally:
            self.run(f"DROP DATABASE {name} WITH (FORCE)")
            for role in self.run(f"SELECT rolname FROM pg_roles WHERE rolname LIKE '%{name}'").split():
                self.run(f"DROP ROLE {role}")


def binaries() -> Path | None:
    """The folder of initdb and pg_ctl; Debian keeps it out of the path."""
    beside = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    places = [*map(str, reversed(beside)), shutil.which("initdb")]
    return next((Path(place).resolve().parent for place in places if place), None)


def why_not() -> str | None:
    """The reason why no server can be started here, if there is one."""
    if binaries() is None:
        return "no PostgreSQL here: apt-get install postgresql"
    if os.geteuid() == 0 and (_unprivileged() is None or shutil.which("runuser") is None):
        return f"PostgreSQL does not run as root, and there is no user {OWNER}"
    return None


def start(record: Path, session: int) -> None:
    """Start a new cluster and write down where it is. Once the process `session` is gone, so is the server."""
    place = binaries()
    assert place is not None
    folder = Path(mkdtemp(prefix="merit-postgres-"))
    secret = folder / "password"
    secret.write_text(PASSWORD)
    if user := _unprivileged() if os.geteuid() == 0 else None:
        for path in (folder, secret):
            os.chown(path, user.pw_uid, user.pw_gid)
    data, port = str(folder / "data"), _free_port()
    access = ["-A", "scram-sha-256", "--pwfile", str(secret), "-U", OWNER]
    _as_user(str(place / "initdb"), "-D", data, *access, "-E", "UTF8", "--locale", "C", "-N")
    options = f"-p {port} -h 127.0.0.1 -k {folder} {QUICK}"
    _stop_after(session, folder, place)
    _as_user(str(place / "pg_ctl"), "-D", data, "-w", "-o", options, "-l", str(folder / "log"), "start")
    (record / RECORD).write_text(json.dumps({"port": port, "folder": str(folder), "binaries": str(place)}))


def read(record: Path) -> Postgres:
    """The server that was written down there."""
    values = json.loads((record / RECORD).read_text())
    return Postgres(values["port"], Path(values["folder"]), Path(values["binaries"]))


def _stop_after(session: int, folder: Path, place: Path) -> None:
    """Leave a process behind that stops the server and removes its folder when the session ends, however it does."""
    stop = " ".join(_words(str(place / "pg_ctl"), "-D", f"{folder}/data", "-m", "immediate", "stop"))
    script = f"while kill -0 {session} 2>/dev/null; do sleep 0.5; done; {stop}; rm -rf {folder}"
    quiet = subprocess.DEVNULL
    subprocess.Popen(["sh", "-c", script], stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True, cwd="/")


def _unprivileged() -> pwd.struct_passwd | None:
    try:
        return pwd.getpwnam(OWNER)
    except KeyError:
        return None


def _words(*words: str) -> list[str]:
    return [*(("runuser", "-u", OWNER, "--") if os.geteuid() == 0 else ()), *words]


def _as_user(*words: str) -> None:
    done = subprocess.run(_words(*words), capture_output=True, text=True, cwd="/", stdin=subprocess.DEVNULL)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stdout}{done.stderr}"


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
