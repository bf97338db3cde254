"""The server of the tests is a real one, and asks for the password."""

from __future__ import annotations

import subprocess

from tests.postgres import Postgres


def test_a_database_of_ones_own(postgres: Postgres) -> None:
    with postgres.database() as name:
        postgres.run("CREATE TABLE t (a int); INSERT INTO t VALUES (7)", name)
        assert postgres.run("SELECT a FROM t", name) == "7"
    assert name not in postgres.run("SELECT datname FROM pg_database")


def test_a_wrong_password_is_refused(postgres: Postgres) -> None:
    words = [str(postgres.binaries / "psql"), "-d", postgres.dsn(password="wrong"), "-c", "SELECT 1"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert "password authentication failed" in done.stderr
