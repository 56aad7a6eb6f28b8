"""From the address of a server, as people write it, to an open WebSocket; what goes wrong is told in one line."""

import asyncio
import errno
import os
import socket
import ssl
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as websocket
from websockets.exceptions import InvalidStatus, WebSocketException
from websockets.typing import Subprotocol

from liveasr.errors import LinkError, LiveasrError, UsageError
from liveasr.stream.messages import SUBPROTOCOL

DEFAULT_SERVER = "http://127.0.0.1:8765"
TOKEN_VARIABLE = "LIVEASR_TOKEN"  # noqa: S105 - where a token stands, not a token
_DEFAULT_PORT = 8765
_LINE = 200  # letters
_DEFAULT_PATH = "/v1/stream"
_SECURE = {"http": False, "ws": False, "https": True, "wss": True}
_UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND, _REDIRECTS, _SERVER_FAULTS = 401, 403, 404, range(300, 400), range(500, 600)
_PASSING = (429, *_SERVER_FAULTS)  # a proxy says so of a server that is being started


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens."""

    url: str
    """Of its WebSocket."""
    name: str
    """For people: without the path, and without a token that the query may hold."""


def parse_address(server: str) -> Address:
    """An address such as http://host:8765, wss://host/captions, or only a host.

    Without a path it is /v1/stream; without a port that of the scheme, or 8765 if there is no scheme either.

    Raises:
        UsageError: it is none.
    """
    has_scheme = "://" in server
    try:
        parts = urlsplit(server.strip() if has_scheme else f"http://{server.strip()}")
        port = parts.port or (None if has_scheme else _DEFAULT_PORT)
        (parts.hostname or "").encode("idna")
    except ValueError as error:
        raise _no_address(server, str(error)) from error
    if parts.scheme not in _SECURE:
        raise _no_address(server, f"{parts.scheme} is none of {', '.join(_SECURE)}")
    if not parts.hostname or any(letter.isspace() for letter in parts.netloc):
        raise _no_address(server, "it names no host")
    if "@" in parts.netloc:
        raise UsageError(f"a server takes no name and password; give its token with --token or {TOKEN_VARIABLE}")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    place = f"{host}:{port}" if port else host
    secure = _SECURE[parts.scheme]
    path = parts.path if parts.path.strip("/") else _DEFAULT_PATH
    url = SplitResult("wss" if secure else "ws", place, path, parts.query, "").geturl()
    return Address(url, f"{'https' if secure else 'http'}://{place}")


async def dial(address: Address, token: str | None, timeout_s: float) -> ClientConnection:
    """An open WebSocket. Redirects are not followed and proxies not used: a token goes where it was meant to.

    Raises:
        UsageError: the token cannot be one.
        LinkError: there is no server there, or not now.
        LiveasrError: it refuses. The messages say which, and what to do.
    """
    if token and not all("!" <= letter <= "~" for letter in token):
        raise UsageError("the token (--token or LIVEASR_TOKEN) is none: visible ASCII letters, without spaces")
    dialling = _Dialling(
        address.url,
        subprotocols=[Subprotocol(SUBPROTOCOL)],
        additional_headers={"Authorization": f"Bearer {token}"} if token else None,
        compression=None,  # sound hardly gets smaller
        max_queue=None,  # a RemoteStream keeps everything anyway, and a full queue would hold back the end
        proxy=None,
        open_timeout=None,
        ping_interval=None,  # behind audio that the server has no time for yet, a ping is late, and nothing is wrong
    )
    try:
        async with asyncio.timeout(timeout_s):
            return await dialling
    except TimeoutError as error:
        raise LinkError(
            f"{address.name}: no answer within {timeout_s:g} s; is the address right, and no firewall in between?"
        ) from error
    except InvalidStatus as error:
        kind = LinkError if error.response.status_code in _PASSING else LiveasrError
        raise kind(f"{address.name}: {_refusal(error, address, token)}") from error
    except WebSocketException as error:
        raise LinkError(f"{address.name}: something listens there, but it is no liveasr server ({error})") from error
    except OSError as error:
        kind = LiveasrError if isinstance(error, ssl.SSLCertVerificationError) else LinkError
        raise kind(f"{address.name}: {_unreachable(error, address)}") from error


class _Dialling(websocket):
    def process_redirect(self, exc: Exception) -> Exception:
        """The answer itself, whatever it is."""
        return exc


def _refusal(error: InvalidStatus, address: Address, token: str | None) -> str:
    """What an HTTP answer means that opens no WebSocket."""
    status = error.response.status_code
    if status == _UNAUTHORIZED:
        ways = f"--token or {TOKEN_VARIABLE}"
        return f"does not take this token; check {ways}" if token else f"wants a token; give it with {ways}"
    if status == _FORBIDDEN:
        said = _words(error) or "it, or what stands in front of it, does not allow this client, or this path"
        return f"refuses the connection (403): {said}"
    if status in _REDIRECTS:
        return f"has moved to {error.response.headers.get('Location', 'an unknown place')}; give that address"
    if status in _SERVER_FAULTS:
        return f"cannot take a session now (it answered {status}); try again later"
    path = urlsplit(address.url).path
    if status == _NOT_FOUND:
        return f"there is nothing at {path} (404): no liveasr server, or it stands at another path"
    return f"something listens there, but {path} is no liveasr server (it answered {status})"


def _words(error: InvalidStatus) -> str:
    """What the answer says of itself, if that is a line for people."""
    text = (error.response.body or b"").decode(errors="replace").strip()
    return text if len(text) <= _LINE and text.isprintable() and "<" not in text else ""


def _unreachable(error: OSError, address: Address) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"its certificate is not trusted ({error.verify_message}); its authority must be in this computer's trust "
            "store, or in the file that SSL_CERT_FILE names"
        )
    is_secure = address.url.startswith("wss:")
    if isinstance(error, ssl.SSLError) or (is_secure and isinstance(error, ConnectionResetError)):
        reason = getattr(error, "reason", None) or "it was broken off"
        return f"no secure connection ({reason}); a server without TLS has an address with http://"
    if isinstance(error, socket.gaierror):
        return f"no computer of that name is known ({error.strerror}); check how it is written"
    if error.errno == errno.ECONNREFUSED or f"[Errno {errno.ECONNREFUSED}]" in str(error):  # of several addresses
        return "nobody listens there; start a server with: liveasr serve"
    # asyncio's own text repeats the address, as a tuple
    return f"cannot be reached: {os.strerror(error.errno) if error.errno else error}"


def _no_address(server: str, reason: str) -> UsageError:
    return UsageError(f"{server!r} is no address of a server: {reason}; it looks like {DEFAULT_SERVER}")
