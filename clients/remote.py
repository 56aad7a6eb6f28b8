"""A file on a web server, and what is said when it cannot be had."""

import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from urllib.parse import urlsplit

import httpx

from liveasr.errors import FetchError

CONNECT_S = 10.0
STALL_S = 30.0
"""A server that says nothing for so long is given up."""
_OTHER_WAYS = "liveasr models pull --from names another source"
_SHOWN_CHARACTERS = 100
"""Of a URL that is none."""
_NUMBER = re.compile(r"^\[Errno -?\d+\] ")
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


def host_of(url: str, *, named_by: str = "") -> str:
    """The name of a server, with its port if it has an unusual one.

    Args:
        url: of something there.
        named_by: the variable that holds the URL, for the message.

    Raises:
        FetchError: there can be no server of that name.
    """
    try:
        parsed = httpx.URL(url)
        # The host is decoded where it is of another alphabet; the port's range only urllib sees to.
        if parsed.scheme in ("http", "https") and parsed.host and urlsplit(url).port != 0:
            return parsed.netloc.decode("ascii")
        reason = "no name of a server behind http:// or https://"
    except (httpx.InvalidURL, ValueError) as error:
        reason = words_of(error)
    shown = url[:_SHOWN_CHARACTERS]
    raise FetchError(f"{named_by and f'{named_by}='}{shown!r} is no URL of a server: {reason}")


def new_client(stall_s: float = STALL_S) -> httpx.Client:
    """What asks servers, through the proxy that the environment names, if they have certificates that it trusts.

    Raises:
        FetchError: there is no such proxy, or there are no such certificates.
    """
    try:
        return httpx.Client(follow_redirects=True, timeout=httpx.Timeout(stall_s, connect=CONNECT_S))
    except (ValueError, httpx.InvalidURL) as error:
        raise FetchError(f"the proxy that HTTPS_PROXY, HTTP_PROXY or ALL_PROXY names is none: {error}") from error
    except OSError as error:
        raise FetchError(
            f"the certificates that SSL_CERT_FILE or SSL_CERT_DIR names cannot be read: {error.strerror}"
        ) from error


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
    """What to raise when a server cannot be asked, or stops answering; it may be one that the first sends to."""
    asked = url
    if isinstance(error, httpx.RequestError):
        with contextlib.suppress(RuntimeError):  # it was raised before there was a request
            asked = str(error.request.url)
    host = host_of(asked)
    if isinstance(error, httpx.ReadTimeout):
        return FetchError(f"{host} has stopped sending", f"try again, or {_OTHER_WAYS}")
    if isinstance(error, httpx.TimeoutException):
        return FetchError(f"{host} does not answer", f"is there a network? {_OTHER_WAYS}")
    if isinstance(error, httpx.ConnectError | httpx.ProxyError):
        return FetchError(f"no connection to {host} ({words_of(error)})", f"is there a network? {_OTHER_WAYS}")
    return FetchError(f"the connection to {host} failed ({words_of(error)})", f"try again, or {_OTHER_WAYS}")


def words_of(error: Exception) -> str:
    """What an error says, on one line, without the number that the system has for it."""
    return _NUMBER.sub("", " ".join(str(error).split())) or type(error).__name__
