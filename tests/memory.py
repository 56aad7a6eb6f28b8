"""How much an object keeps."""

import gc
import sys
from types import FunctionType, MethodType, ModuleType

import numpy as np


def held_bytes(thing: object) -> int:
    """Size of an object and of everything that it holds on to: arrays, lists, other objects; not code."""
    total = 0
    seen: set[int] = set()
    found: list[object] = [thing]
    while found:
        item = found.pop()
        if id(item) in seen or isinstance(item, type | ModuleType | FunctionType | MethodType):
            continue
        seen.add(id(item))
        total += sys.getsizeof(item)
        if isinstance(item, np.ndarray) and item.base is not None:
            found.append(item.base)
        found += gc.get_referents(item)
    return total
