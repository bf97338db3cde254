"""The process: uvicorn over the application, a reload on SIGHUP, and a warning where keys are sent unencrypted."""

from __future__ import annotations

import ipaddress
import resource
import signal
from threading import Thread
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from merit.core import console
from merit.core.errors import MeritError
from merit.service import app, keys
from merit.service.connections import TimedConnection
from merit.service.middleware import set_up_logging
from merit.service.routes import model as model_routes
from merit.service.service import Service

FILES = 4 * TimedConnection.most  # that may be open: connections, the model's, those being sent


def serve(service: Service, host: str, port: int, guest: str | None = None) -> None:
    """Serve until stopped. `guest` is the secret of a key for this process alone, and opens Studio."""
    if not guest and not (service.state / keys.FILE).exists():
        create = f"merit keys create NAME --scope read --state {service.state}"
        console.warn(f"There are no keys yet. Make one with `{create}`.")
    set_up_logging()
    Thread(target=_make_vega, args=(service,), daemon=True).start()
    signal.signal(signal.SIGHUP, lambda *_: Thread(target=_reload, args=(service,), daemon=True).start())
    model = service.store.current.model
    console.tell(f"{model!r} at http://{host}:{port}/", users=len(model.users))
    if guest:
        console.stderr.print(f"Open http://{host}:{port}/#key={guest}", markup=False, soft_wrap=True)
    allow_files()
    uvicorn.Server(over(service, host=host, port=port)).run()


def over(service: Service, **where: Any) -> uvicorn.Config:
    """How uvicorn runs a service. Of people, the address is that of the connection: a header could name any."""
    return configured(app.make(service), proxy_headers=service.people is None, **where)


def configured(
    application: ASGIApp, connection: type[TimedConnection] = TimedConnection, **where: Any
) -> uvicorn.Config:
    """How uvicorn runs the application; no web sockets, and requests are counted by the application."""
    return uvicorn.Config(
        application,
        http=connection,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=30,
        **where,
    )


def allow_files() -> None:
    """Let the process open as many files as its connections need, where the system's hard limit allows it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES if hard == resource.RLIM_INFINITY else min(FILES, hard)
    if soft not in (resource.RLIM_INFINITY, wanted) and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def warn_if_unencrypted(host: str, tls_in_front: bool) -> None:
    """Warn and do not refuse: a network may be safe for reasons that cannot be seen from here."""
    if not (tls_in_front or is_local(host)):
        console.warn(
            f"{host} can be reached from elsewhere, and keys would be sent unencrypted. Put a proxy with TLS in "
            "front and say --tls-in-front, or stay on 127.0.0.1."
        )


def is_local(host: str) -> bool:
    """Whether only this machine can reach it; a name other than localhost counts as reachable from elsewhere."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _make_vega(service: Service) -> None:
    """Make the script of the charts before the first chart needs it."""
    try:
        service.vega.file()
    except MeritError as error:
        console.warn(f"Studio will have no charts: {error}")


def _reload(service: Service) -> None:
    try:
        reloaded = model_routes.reload_model(service)
        console.tell(f"reloaded: {reloaded.before} → {reloaded.now}", **reloaded.model_dump())
    except MeritError as error:
        console.warn(f"not reloaded, the old model stays: {error}")
