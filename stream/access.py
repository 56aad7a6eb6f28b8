"""Who may connect: tokens, origins and host names. Pure: what a request says in, an HTTP status out.

Without a token a server is only for this computer, and even there not for every page that a browser has open: a page of
another origin is refused, and so is a request for a host name that is not this computer's, which is what a name that
was made to point here (DNS rebinding) looks like. With a token whoever knows it is let in, and origins still count.
"""

import hmac
import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import urlsplit

from liveasr.errors import UsageError
from liveasr.stream.messages import TOKEN_SUBPROTOCOL

_COOKIE = "liveasr_token"


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request says of who asks."""

    host: str
    """As in the header: a name, perhaps with a port."""
    origin: str | None = None
    """Of the page that asks, if a browser does."""
    token: str | None = None


@dataclass(frozen=True, slots=True)
class Access:
    """Who may connect.

    Raises:
        UsageError: the token cannot be sent in a header, or an origin is none.
    """

    token: str | None = None
    origins: tuple[str, ...] = ()
    """Besides the server's own."""
    local_only: bool = True
    """Whether only names of this computer are answered, where no token is set."""

    def __post_init__(self) -> None:
        if self.token is not None and (not self.token or not all("!" <= letter <= "~" for letter in self.token)):
            raise UsageError("a token is made of visible ASCII letters, without spaces")
        for origin in self.origins:
            if origin in ("*", "null"):
                continue
            scheme, port = origin.partition(":")[0], origin.rpartition(":")[2]
            if origin != f"{scheme}://{_netloc(origin)}" or origin != origin.lower() or "@" in origin:
                raise UsageError(
                    f"{origin} is no origin; one looks like https://app.example.org, all small, without a path"
                )
            if (scheme, port) in (("http", "80"), ("https", "443")):
                raise UsageError(f"{origin}: browsers leave this port out, so do so here")

    def refusal(self, asked: Asked) -> HTTPStatus | None:
        """The status to refuse a request with; None if it is welcome."""
        if self.token is None and self.local_only and not self._is_known(asked.host):
            return HTTPStatus.FORBIDDEN
        if asked.origin is not None and not self._is_welcome(asked.origin, asked.host):
            return HTTPStatus.FORBIDDEN
        if self.token is not None and not self.matches(asked.token):
            return HTTPStatus.UNAUTHORIZED
        return None

    def matches(self, token: str | None) -> bool:
        """Whether this is the token, in a time that tells nothing about it."""
        if token is None or self.token is None:
            return False
        return hmac.compare_digest(token.encode(errors="surrogatepass"), self.token.encode())

    def _is_known(self, host: str) -> bool:
        name = host_name(host)
        return is_loopback(name) or name in (host_name(_netloc(origin)) for origin in self.origins)

    def _is_welcome(self, origin: str, host: str) -> bool:
        return origin in self.origins or "*" in self.origins or origin in (f"http://{host}", f"https://{host}")


def _netloc(origin: str) -> str:
    """Host and port of an origin; empty if it has none."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""


def host_name(host: str) -> str:
    """The name of a Host header, without its port."""
    if set(host) & set("@/?#\\"):
        return ""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def is_loopback(name: str) -> bool:
    """Whether a host name or address is this computer's own."""
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost" or name.endswith(".localhost")


def cookie_of(host: str) -> str:
    """The name of the cookie that keeps the token of a page. Browsers send cookies to all ports of a host."""
    port = host.rpartition(":")[2]
    return f"{_COOKIE}_{port}" if port.isdecimal() else _COOKIE


def token_of(
    headers: Mapping[str, str], query: Mapping[str, str], cookies: Mapping[str, str], subprotocols: Sequence[str]
) -> str | None:
    """The token that a request brings: in its header, query, subprotocol or cookie."""
    scheme, _, credentials = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return credentials.strip()
    if "token" in query:
        return query["token"]
    for subprotocol in subprotocols:
        if subprotocol.startswith(TOKEN_SUBPROTOCOL):
            return subprotocol.removeprefix(TOKEN_SUBPROTOCOL)
    return cookies.get(cookie_of(headers.get("host", "")))
