"""One service over the small run for all tests here, with a key for every scope and one that may do everything."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from starlette.testclient import TestClient
from starlette.types import ASGIApp

from merit.service import app, keys
from merit.service.request_limits import Limits
from merit.service.service import Service, opened

Asker = Callable[..., TestClient]


@pytest.fixture(scope="session")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("state")


@pytest.fixture(scope="session")
def secret(state: Path) -> Callable[..., str]:
    """The key with just these scopes, made once."""
    made: dict[tuple[str, ...], str] = {}

    def of(*scopes: str) -> str:
        if scopes not in made:
            made[scopes] = keys.create(state / keys.FILE, "+".join(scopes), scopes)[1]
        return made[scopes]

    return of


@pytest.fixture(scope="session")
def tables(tmp_path_factory: pytest.TempPathFactory, model: Any) -> Path:
    """A folder of tables; behind it, one that nobody may read."""
    folder = tmp_path_factory.mktemp("server") / "tables"
    folder.mkdir()
    users = model.users["user_id"]
    said = pl.DataFrame({"user_id": users, "newsletter": [place >= 10 for place in range(len(users))]})
    said.write_csv(folder / "customers.csv")
    said.write_csv(folder.parent / "secret.csv")
    (folder / "link.csv").symlink_to(folder.parent / "secret.csv")
    return folder


@pytest.fixture(scope="session")
def service(made: Path, state: Path, tables: Path) -> Iterator[Service]:
    with opened(
        made, state, tables=tables, limits=Limits(rate=10_000, burst=100_000, seconds=300), verify=False
    ) as service:
        yield service


@pytest.fixture(scope="session")
def guarded(service: Service) -> ASGIApp:
    return app.make(service)


@pytest.fixture(scope="session")
def ask(guarded: ASGIApp, secret: Callable[..., str]) -> Asker:
    """A client with the key of some scopes; of all but erase, if none is named."""

    def client(*scopes: str) -> TestClient:
        given = scopes or ("read", "audience", "export", "admin")
        return TestClient(guarded, headers={"Authorization": f"Bearer {secret(*given)}"})

    return client


@pytest.fixture
def stranger(guarded: ASGIApp) -> TestClient:
    return TestClient(guarded)


@pytest.fixture
def wanted(model: Any) -> dict[str, Any]:
    """An audience that can be built from the small shop."""
    return {"name": "Spring", "interests": [model.labels.texts[0]], "size": {"by": "count", "users": 110}}
