"""How many decodes of one model run at the same time."""

from typing import TypeVar

from liveasr.engines.base import AutoregressiveEngine, Engine
from liveasr.engines.cores import available_cores

_AnyEngine = TypeVar("_AnyEngine", bound=Engine)


def more_lanes(engine: _AnyEngine) -> list[_AnyEngine]:
    """As many lanes as the cores feed beside the engine itself: one a core, which share them when they are busy.

    A language model has threads of its own, which are not shared: its lanes get cores by the number of these.
    """
    each = engine.threads if isinstance(engine, AutoregressiveEngine) else 1
    return [engine.lane() for _ in range(available_cores() // each - 1)]
