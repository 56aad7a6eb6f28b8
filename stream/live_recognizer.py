"""What hears live streams: lanes of an engine, a detector for each stream, perhaps another engine for partials.

Where no other gives the partials, an engine that streams gives its own by streaming, one that writes gives none, and
any other decodes the end of a segment again and again.
"""

import contextlib
from collections.abc import AsyncIterator, Callable, Sequence

from liveasr.engines.base import AutoregressiveEngine, DecodeOptions, Engine, StreamingEngine
from liveasr.stream.detect import Detector
from liveasr.stream.live import LiveStream
from liveasr.stream.partials import Partials, partials_by
from liveasr.stream.session import LiveConfig, Session
from liveasr.stream.worker import Decoded, DecodePool
from liveasr.vad.config import VadConfig


class LiveRecognizer:
    """Opens live streams. Make it inside the event loop that they run in; `close` frees the engines.

    Args:
        engines: one for each lane; the one that owns the weights comes last. They are closed in this order.
        new_detector: makes a stream's voice activity detector.
        partials: gives the partials in the engines' place; whoever made it closes it, before this.
        observe: sees every answer of the engines.
        hurried: whether there is no time for partials at the moment.
    """

    def __init__(
        self,
        engines: Sequence[Engine],
        new_detector: Callable[[VadConfig], Detector],
        partials: Partials | None = None,
        observe: Callable[[Decoded], None] = lambda _answer: None,
        hurried: Callable[[], bool] = lambda: False,
    ) -> None:
        self.pool = DecodePool(engines, observe=observe)
        self._front_end = engines[-1].front_end
        self._new_detector = new_detector
        self._hurried = hurried
        self._own_partials: Partials | None = None
        if partials is None and isinstance(engines[-1], StreamingEngine):
            self._own_partials = partials_by([engines[-1].lane()], observe)
        self._partials = partials or self._own_partials
        self._has_partials = self._partials is not None or not isinstance(engines[-1], AutoregressiveEngine)

    @property
    def waiting(self) -> int:
        """Decodes in its queues."""
        return self.pool.waiting + (self._own_partials.waiting if self._own_partials else 0)

    @property
    def overtaken(self) -> int:
        """Partials dropped for newer ones since the beginning."""
        return self.pool.overtaken + (self._own_partials.overtaken if self._own_partials else 0)

    def open(self, decoding: DecodeOptions, vad: VadConfig, *, partials: bool = True) -> LiveStream:
        """A new stream.

        Args:
            decoding: for every decode of it.
            vad: settings of its detector.
            partials: whether anything is to be shown of a segment before its final.
        """
        others = self._partials if partials else None
        config = LiveConfig(
            partials=partials and self._has_partials, drafts=partials, max_segment_ms=vad.max_segment_ms
        )
        session = Session(self._new_detector(vad), self._front_end, config, others.takes if others else None)
        return LiveStream(session, self.pool, decoding, others.open() if others else None, self._hurried)

    async def close(self) -> None:
        """Stop the lanes and free the engines."""
        if self._own_partials is not None:
            await self._own_partials.close()
        await self.pool.close()


@contextlib.asynccontextmanager
async def live_recognizer(
    engine: Engine, new_detector: Callable[[VadConfig], Detector], partials: Engine | None
) -> AsyncIterator[LiveRecognizer]:
    """A recognizer of one lane for as long as the block runs, with another engine for its partials or without."""
    others = partials_by([partials]) if partials is not None else None
    recognizer = LiveRecognizer([engine], new_detector, others)
    try:
        yield recognizer
    finally:
        if others is not None:
            await others.close()
        await recognizer.close()
