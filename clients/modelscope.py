"""Files on ModelScope, which many can reach who cannot reach Hugging Face. MODELSCOPE_DOMAIN names another server."""

import os
from collections.abc import Sequence
from http import HTTPStatus
from typing import Annotated
from urllib.parse import urlencode

import httpx
import msgspec

from liveasr.clients.remote import RemoteFile, failure, host_of, new_client, refusal
from liveasr.errors import FetchError

DOMAIN_VARIABLE = "MODELSCOPE_DOMAIN"
_DEFAULT_DOMAIN = "www.modelscope.cn"
_REVISION = "master"


class _File(msgspec.Struct, rename="pascal"):
    path: str
    size: Annotated[int, msgspec.Meta(ge=0)] | None = None
    sha256: str | None = None


class _Data(msgspec.Struct, rename="pascal"):
    files: Sequence[_File] = ()


class _Listing(msgspec.Struct, rename="pascal"):
    data: _Data | None = None


def locate(repository: str, path: str) -> RemoteFile:
    """A file of a repository, with its size and SHA-256 as the server tells them.

    Raises:
        FetchError: the server cannot be asked, or has no such file.
    """
    domain = os.environ.get(DOMAIN_VARIABLE) or _DEFAULT_DOMAIN
    endpoint = domain.rstrip("/") if "://" in domain else f"https://{domain}"
    host_of(endpoint, named_by=DOMAIN_VARIABLE)
    api = f"{endpoint}/api/v1/models/{repository}/repo"
    url = f"{api}?{urlencode({'Revision': _REVISION, 'FilePath': path})}"
    try:
        with new_client() as client:
            answer = client.get(f"{api}/files", params={"Revision": _REVISION, "Recursive": "True"})
    except (httpx.RequestError, httpx.InvalidURL, ValueError) as error:  # the last of what no host can be called
        raise failure(url, error) from error
    if answer.status_code != HTTPStatus.OK:
        raise refusal(api, answer.status_code)
    try:
        listing = msgspec.json.decode(answer.content, type=_Listing)
    except (msgspec.DecodeError, RecursionError) as error:
        raise FetchError(
            f"{host_of(url)} answered in a way that ModelScope does not", "is this a page to log in?"
        ) from error
    for file in listing.data.files if listing.data else ():
        if file.path == path:
            return RemoteFile(url, {}, file.size, file.sha256 or None)
    raise FetchError(f"{host_of(url)} has no {path} in {repository}", "liveasr models pull --from names another source")
