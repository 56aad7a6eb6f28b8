"""A file on a web server, and what is said when it cannot be had."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus

import httpx

from liveasr.errors import FetchError

CONNECT_S = 10.0
STALL_S = 30.0
"""A server that says nothing for so long is given up."""
_OTHER_WAYS = "--from names another source"
_SHORT_ON_RIGHTS = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file on a web server, with what is known of it before it is fetched."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    size_bytes: int | None = None
    sha256: str | None = None

    @property
    def host(self) -> str:
        """Of the server, as it is called in messages."""
        return host_of(self.url)


def host_of(url: str) -> str:
    """The name of a server, with its port if it has an unusual one."""
    return httpx.URL(url).netloc.decode("ascii")


def new_client(stall_s: float = STALL_S) -> httpx.Client:
    """What asks servers, through the proxy that the environment names.

    Raises:
        FetchError: there is no such proxy.
    """
    try:
        return httpx.Client(follow_redirects=True, timeout=httpx.Timeout(stall_s, connect=CONNECT_S))
    except (ValueError, httpx.InvalidURL) as error:
        raise FetchError(f"the proxy that HTTPS_PROXY, HTTP_PROXY or ALL_PROXY names is none: {error}") from error


def refusal(url: str, status: int, how_to_get_rights: str = "") -> FetchError:
    """What to raise of an answer that is none."""
    host = host_of(url)
    if status == HTTPStatus.NOT_FOUND:
        return FetchError(f"{host} has no {httpx.URL(url).path}", _OTHER_WAYS)
    if status in _SHORT_ON_RIGHTS:
        way = how_to_get_rights or _OTHER_WAYS
        return FetchError(f"{host} does not give {httpx.URL(url).path} to everyone ({status})", way)
    try:
        words = f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        words = str(status)
    return FetchError(f"{host} answered {words}", f"try again later, or {_OTHER_WAYS}")


def failure(url: str, error: Exception) -> FetchError:
    """What to raise when a server cannot be asked, or stops answering."""
    host = host_of(url)
    if isinstance(error, httpx.ReadTimeout):
        return FetchError(f"{host} has stopped sending", f"try again, or {_OTHER_WAYS}")
    if isinstance(error, httpx.TimeoutException):
        return FetchError(f"{host} does not answer", f"is there a network? {_OTHER_WAYS}")
    if isinstance(error, httpx.ConnectError | httpx.ProxyError):
        return FetchError(f"no connection to {host} ({_words(error)})", f"is there a network? {_OTHER_WAYS}")
    return FetchError(f"the connection to {host} failed ({_words(error)})", f"try again, or {_OTHER_WAYS}")


def _words(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
