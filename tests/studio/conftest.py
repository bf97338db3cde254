"""Studio in a real browser, over the small run: Debian's Chromium, driven by Playwright, and the service itself.

    def test_it_opens(page: Page, studio: Studio) -> None:
        studio.open(page, "#/audience")

`page` belongs to one test; when it ends, the test fails if anything was written to the console as an error, a script
threw, the content security policy was broken, or another host was asked. What a test provokes it names first:
`studio.expect(page, 403)`.
"""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from time import sleep
from typing import Any

import polars as pl
import pytest

from merit.service import app, keys
from merit.service.request_limits import Limits
from merit.service.service import opened

NAMES = ("chromium", "chromium-browser", "google-chrome")
SWITCHES = (
    "--headless",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PATIENCE = 60_000  # milliseconds: the machine may be busy
EXPLAINED = 4 * PATIENCE  # a child process loads the generator first


@dataclass
class Studio:
    """A running service, and what went wrong in the pages that were opened on it."""

    url: str
    secret: str
    state: Path
    faults: list[str] = field(default_factory=list)
    expected: set[int] = field(default_factory=set)

    def open(self, page: Any, view: str, key: str | None = None) -> None:
        """A view of Studio, as someone who has a key: this one, or the one that may do everything but administer."""
        page.goto(f"{self.url}/#key={key or self.secret}")
        page.wait_for_function("() => !location.hash.startsWith('#key') && document.querySelector('h1')")
        page.evaluate("view => { location.hash = view; }", view)
        page.wait_for_function("() => !document.querySelector('main .busy')")

    def expect(self, *statuses: int) -> None:
        """Refusals that this test provokes: a browser writes each of them to its console."""
        self.expected |= set(statuses)

    def watch(self, page: Any) -> None:
        self.faults.clear()
        self.expected.clear()
        page.on("console", lambda said: said.type == "error" and self.faults.append(said.text))
        page.on("pageerror", lambda error: self.faults.append(f"a script threw: {error}"))
        page.on("request", self._asked)

    def unexpected(self) -> list[str]:
        fine = tuple(f"the server responded with a status of {status} " for status in self.expected)
        return [fault for fault in self.faults if not any(each in fault for each in fine)]

    def _asked(self, request: Any) -> None:
        if not request.url.startswith((f"{self.url}/", f"blob:{self.url}/")):
            self.faults.append(f"another host was asked: {request.url}")


@pytest.fixture(scope="session")
def tables(tmp_path_factory: pytest.TempPathFactory, model: Any) -> Path:
    folder = tmp_path_factory.mktemp("tables")
    users = model.users["user_id"]
    said = pl.DataFrame({"user_id": users, "newsletter": [place >= 10 for place in range(len(users))]})
    said.write_csv(folder / "customers.csv")
    return folder


@contextmanager
def running(made: Path, state: Path, tables: Path | None = None, labels: Path | None = None) -> Iterator[Studio]:
    """The service on a port of its own."""
    import uvicorn

    from merit.service.server import configured

    _, secret = keys.create(state / keys.FILE, "studio", ["read", "audience", "export"])
    limits = Limits(rate=10_000, burst=100_000, seconds=300)
    with opened(made, state, labels, tables, limits, verify=False) as service, socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        server = uvicorn.Server(configured(app.make(service)))
        thread = Thread(target=server.run, kwargs={"sockets": [place]}, daemon=True)
        thread.start()
        while not server.started:
            sleep(0.05)
        yield Studio(f"http://127.0.0.1:{place.getsockname()[1]}", secret, state)
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="session")
def studio(made: Path, tables: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Studio]:
    with running(made, tmp_path_factory.mktemp("state"), tables) as service:
        yield service


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip("There is no Chromium here. Install it with `apt-get install chromium`; scripts/set-up does.")
    sync = pytest.importorskip("playwright.sync_api", reason="Install it with `pip install -e '.[dev]'`.")
    own = ["--no-sandbox"] if os.getuid() == 0 else []  # Chromium refuses to be root with it
    with sync.sync_playwright() as playwright:
        opened_browser = playwright.chromium.launch(executable_path=found, args=[*SWITCHES, *own])
        yield opened_browser
        opened_browser.close()


@pytest.fixture
def page(browser: Any, studio: Studio) -> Iterator[Any]:
    """A window of its own, wide and light; nothing may go wrong in it."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, accept_downloads=True)
    context.set_default_timeout(PATIENCE)
    made = context.new_page()
    studio.watch(made)
    yield made
    context.close()
    assert not studio.unexpected()
