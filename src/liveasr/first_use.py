"""A model that is named is fetched on its first use, unless that is forbidden."""

import logging
import os
from pathlib import Path

from liveasr import store
from liveasr.errors import ModelNotFoundError

OFFLINE_VARIABLE = "LIVEASR_OFFLINE"
"""Set to anything but nothing and 0 it forbids to fetch models."""
_log = logging.getLogger("liveasr")


def is_forbidden() -> bool:
    """Whether --offline or the variable forbids to fetch anything."""
    return os.environ.get(OFFLINE_VARIABLE, "0") not in ("", "0")


def find(model: str) -> Path:
    """The file of a model, as `store.find` has it; one that the registry knows is fetched if it is not installed.

    Raises:
        ModelNotFoundError: there is none, and it cannot be fetched or may not be.
        FetchError: it cannot be fetched now.
        OutputError: it cannot be written.
        RegistryError: the user's registry is malformed.
    """
    try:
        return store.find(model)
    except ModelNotFoundError:
        name, _, variant = model.partition(":")
        registered = store.registry().get(name)
        files = registered and registered.variants.get(variant or next(iter(registered.variants), ""))
        if not files or store.is_installed(files) or is_forbidden():
            raise
    # Half a second, for nothing in all later uses.
    from liveasr.clients.progress import FetchBar  # noqa: PLC0415
    from liveasr.clients.pull import pull  # noqa: PLC0415

    _log.warning("%s is not installed; it is fetched once (--offline never does that)", model)
    with FetchBar() as bar:
        pull(files, None, bar.begin)
    return store.find(model)
