"""Models as a server offers them: opened, with as many lanes as the cores hold, perhaps with another's partials."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from liveasr import store
from liveasr.engines.lanes import more_lanes
from liveasr.engines.registry import open_engine
from liveasr.options import open_partials, partials_for
from liveasr.stream.service import OfferedModel, PartialLanes


class Offers:
    """Opens the models of one server.

    Args:
        threads: for one decode.
        partials: the option: a model that is to give the partials of the others, "none", or None for the default.
    """

    def __init__(self, threads: int | None, partials: str | None) -> None:
        self._threads = threads
        self._wanted = partials
        self._partials_path: Path | None = None

    def open(self, paths: Sequence[Path]) -> tuple[list[OfferedModel], PartialLanes | None]:
        """What the server begins with.

        Raises:
            LiveasrError: a file cannot be run, or what gives the partials cannot.
        """
        offered, self._partials_path = with_partials([self._open(path) for path in paths], self._wanted)
        return offered, self._open_partials(self._partials_path)

    def open_another(self, path: Path) -> tuple[OfferedModel, PartialLanes | None]:
        """What joins it later, with the lanes for its partials if it needs any, and the server has none yet.

        Raises:
            LiveasrError: the file cannot be run, or what gives the partials cannot.
        """
        offer = self._open(path)
        try:
            chosen = partials_for(offer.engines[-1], offer.name, self._wanted)
            if chosen is None or self._partials_path is not None:
                return replace(offer, two_pass=chosen is not None and chosen == self._partials_path), None
            partials = self._open_partials(chosen)
        except BaseException:
            for engine in offer.engines:
                engine.close()
            raise
        self._partials_path = chosen
        return offer, partials

    def _open(self, path: Path) -> OfferedModel:
        also = store.also_called(path)
        engine = open_engine(path, self._threads)
        return OfferedModel(store.name_of(path), [*more_lanes(engine), engine], store.is_demonstration(path), also)

    def _open_partials(self, path: Path | None) -> PartialLanes | None:
        engine = open_partials(path, self._threads)
        if path is None or engine is None:
            return None
        return store.name_of(path), [*more_lanes(engine), engine]


def with_partials(offered: Sequence[OfferedModel], wanted: str | None) -> tuple[list[OfferedModel], Path | None]:
    """The models, each told whether another gives its partials, and the file of that one.

    There is one at most. Where models would have different ones by default, the first of them decides.
    """
    chosen = [partials_for(offer.engines[-1], offer.name, wanted) for offer in offered]
    path = next((each for each in chosen if each is not None), None)
    return [replace(offer, two_pass=each == path) for offer, each in zip(offered, chosen, strict=True)], path
