"""Files on Hugging Face, asked for as its own library does: its endpoint, token and cache are honoured.

HF_ENDPOINT names a mirror, HF_TOKEN a token, HF_HOME the cache, and HF_HUB_OFFLINE=1 forbids to ask at all. Only the
bytes come by another way, the one of all other servers: so that they are resumed, checked and told in the same way.
"""

import re
from pathlib import Path

import httpx2  # what huggingface_hub asks with, and lets through when there is no connection
from huggingface_hub import get_hf_file_metadata, get_token, hf_hub_url, try_to_load_from_cache
from huggingface_hub.errors import HfHubHTTPError, HFValidationError

from liveasr.clients.remote import RemoteFile, host_of, refusal, words_of
from liveasr.errors import FetchError, UsageError

_SHA256 = re.compile("[0-9a-f]{64}")
_WAYS = "HF_ENDPOINT names a mirror, liveasr models pull --from another source"
_RIGHTS = "HF_TOKEN, or `hf auth login`, says who you are"


def locate(repository: str, path: str) -> RemoteFile | Path:
    """A file of a repository: in the cache of huggingface_hub if it is there, else on the server.

    Raises:
        FetchError: the server cannot be asked, or has no such file.
        UsageError: no repository can have this name.
    """
    try:
        url = hf_hub_url(repository, path)
        cached = try_to_load_from_cache(repository, path)
        if isinstance(cached, str):
            return Path(cached)
        metadata = get_hf_file_metadata(url)
        if metadata.commit_hash:  # so that it stays the same file, should another be published meanwhile
            url = hf_hub_url(repository, path, revision=metadata.commit_hash)
    except HFValidationError as error:
        raise UsageError(f"{repository}: no repository has such a name") from error
    except HfHubHTTPError as error:
        raise refusal(url, error.response.status_code, _RIGHTS) from error
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError) as error:  # the last of a proxy that is none
        reason = f"no connection to {host_of(url)} ({words_of(error)})"
        raise FetchError(reason, f"is there a network? {_WAYS}") from error
    # Of large files the etag is the SHA-256 of what is in them.
    sha256 = metadata.etag if metadata.etag and _SHA256.fullmatch(metadata.etag) else None
    token = get_token()
    return RemoteFile(url, {"Authorization": f"Bearer {token}"} if token else {}, metadata.size, sha256)
