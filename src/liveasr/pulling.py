"""`liveasr models pull`, from its options to its exit code."""

import sys

from liveasr import store
from liveasr.clients.progress import FetchBar
from liveasr.clients.pull import pull as install
from liveasr.clients.sources import is_of_one_file
from liveasr.errors import ModelNotFoundError, UsageError


def pull(name: str, source: str | None) -> int:
    """`liveasr models pull`."""
    model, variant = store.registered(name)
    if model.built_in:
        sys.stdout.write(f"{model.name} is built in; there is nothing to fetch\n")
        return 0
    if model.instead is not None:
        raise ModelNotFoundError(f"{model.name}: {model.instead}")
    files = model.variants[variant or next(iter(model.variants))]
    if source and is_of_one_file(source) and len(files) > 1:
        raise UsageError(f"--from {source}: {model.name} is {len(files)} files; name the folder that they lie in")
    with FetchBar() as bar:
        paths = install(files, source, bar.begin)
    for path in paths:
        sys.stdout.write(f"{path}: {path.stat().st_size / 1e6:.1f} MB\n")
    sys.stdout.write(f"installed; use it by --model {name}\n")
    return 0
