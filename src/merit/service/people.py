"""People whom a proxy has signed in, as with OpenID Connect: its headers say who they are, and settings what they may.

Off unless `merit serve --proxy FILE` names a proxy. The headers count only on connections from its addresses, which
have to be those of the proxy alone; from anywhere else they are as if they had not been sent.
"""

from __future__ import annotations

import hmac
import re
from hashlib import sha256
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated

from pydantic import Field, IPvAnyNetwork
from starlette.datastructures import Headers
from starlette.types import Scope as Request

from merit.core import files, key_files
from merit.core.config import Frozen
from merit.service.keys import SCOPES, ApiKey, Scope
from merit.service.problems import Refusal

SECRET = "people.key"  # in the state folder: ids of people are keyed hashes, and stay the same over restarts
PLAIN = re.compile(r"[\x21-\x7e][\x20-\x7e]{0,199}")
SAFE = ("GET", "HEAD", "OPTIONS")
Header = Annotated[str, Field(pattern=r"^[A-Za-z0-9-]+$")]


class TrustedProxy(Frozen):
    """The proxy in front of a service, and what the people it signs in may do."""

    addresses: tuple[IPvAnyNetwork, ...] = Field(min_length=1)
    """From where it connects, such as "10.0.0.5" or "10.1.0.0/24". Nobody else may be able to connect from there."""
    user: Header = "X-Forwarded-Email"
    """The header with who it is. The proxy must set it on every request, and remove what a client sent in it."""
    groups: Header = "X-Forwarded-Groups"
    """The header with groups, joined by commas."""
    scopes: dict[str, tuple[Scope, ...]] = {}
    """Group, or "*" for everybody whom it signs in → scopes. What several groups give is added up."""
    people: dict[str, tuple[Scope, ...]] = {}
    """The same for single people, as `user` names them."""


class People:
    """Who a proxy says they are, as keys that are stored nowhere."""

    def __init__(self, proxy: TrustedProxy, state: Path) -> None:
        self.proxy, path = proxy, state / SECRET
        with files.locked(path.with_name(".people.lock")):
            if not path.exists():
                key_files.create(path)
        self._secret = key_files.read(path, "merit serve")

    def identify(self, request: Request) -> ApiKey | None:
        """The person of a request; None if it is not from the proxy, or names nobody."""
        headers = Headers(scope=request)
        named = headers.getlist(self.proxy.user)
        if not named or not self._trusted(request):
            return None
        if len(named) > 1 or not PLAIN.fullmatch(named[0]):
            detail = f"The proxy sent {self.proxy.user} twice, or something that is no name."
            raise Refusal(401, "Who is it?", detail, "Let the proxy remove that header from what clients send.")
        _refuse_forged(request, headers)
        groups = [group.strip() for value in headers.getlist(self.proxy.groups) for group in value.split(",")]
        return self._person(named[0], groups)

    def _person(self, name: str, groups: list[str]) -> ApiKey:
        given = {scope for group in ("*", *groups) for scope in self.proxy.scopes.get(group, ())}
        given |= set(self.proxy.people.get(name, ()))
        if not given:
            detail = "You are signed in, but none of your groups may do anything here."
            raise Refusal(403, "No scope", detail, "Ask the operator to map one of them: `scopes` of --proxy FILE.")
        number = hmac.new(self._secret, name.encode(), sha256).hexdigest()[:12]
        ordered = tuple(scope for scope in SCOPES if scope in given)
        return ApiKey(id=f"person-{number}", name=name, scopes=ordered, salt="", hash="", created="")

    def _trusted(self, request: Request) -> bool:
        try:
            address = ip_address((request.get("client") or ("", 0))[0])
        except ValueError:  # a socket, or nobody
            return False
        address = getattr(address, "ipv4_mapped", None) or address
        return any(address in network for network in self.proxy.addresses)


def _refuse_forged(request: Request, headers: Headers) -> None:
    """Of a browser that is signed in, another site may send requests: it says so itself."""
    site = headers.get("sec-fetch-site", "same-origin")
    if request["method"] not in SAFE and site not in ("same-origin", "none"):
        raise Refusal(403, "From another site", "Another web site sent this.", "Send it from the service's own pages.")
