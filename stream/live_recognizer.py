"""What hears live streams: lanes of an engine, a detector for each stream, perhaps a streaming engine for partials."""

import contextlib
from collections.abc import AsyncIterator, Callable, Sequence

from liveasr.engines.base import DecodeOptions, Engine, StreamingEngine
from liveasr.stream.detect import Detector
from liveasr.stream.live import LiveStream
from liveasr.stream.partials import PartialLanes
from liveasr.stream.session import LiveConfig, Session
from liveasr.stream.worker import Decoded, DecodePool
from liveasr.vad.config import VadConfig


class LiveRecognizer:
    """Opens live streams. Make it inside the event loop that they run in; `close` frees the engines.

    Args:
        engines: one for each lane; the one that owns the weights comes last. They are closed in this order.
        new_detector: makes a stream's voice activity detector.
        partials: gives the partials in the engines' place; whoever made it closes it, before this. By default engines
            that stream give their own by streaming, others by decoding again and again.
        observe: sees every answer of the engines.
    """

    def __init__(
        self,
        engines: Sequence[Engine],
        new_detector: Callable[[VadConfig], Detector],
        partials: PartialLanes | None = None,
        observe: Callable[[Decoded], None] = lambda _answer: None,
    ) -> None:
        self.pool = DecodePool(engines, observe=observe)
        self._front_end = engines[-1].front_end
        self._new_detector = new_detector
        self._own_partials: PartialLanes | None = None
        if partials is None and isinstance(engines[-1], StreamingEngine):
            self._own_partials = PartialLanes([engines[-1].lane()], observe)
        self._partials = partials or self._own_partials

    @property
    def waiting(self) -> int:
        """Decodes in its queues."""
        return self.pool.waiting + (self._own_partials.waiting if self._own_partials else 0)

    def open(self, decoding: DecodeOptions, vad: VadConfig, *, partials: bool = True) -> LiveStream:
        """A new stream.

        Args:
            decoding: for every decode of it.
            vad: settings of its detector.
            partials: whether there are to be any.
        """
        two_pass = self._partials if partials else None
        session = Session(
            self._new_detector(vad),
            self._front_end,
            LiveConfig(partials=partials, max_segment_ms=vad.max_segment_ms),
            two_pass.front_end if two_pass else None,
        )
        return LiveStream(session, self.pool, decoding, two_pass.open() if two_pass else None)

    async def close(self) -> None:
        """Stop the lanes and free the engines."""
        if self._own_partials is not None:
            await self._own_partials.close()
        await self.pool.close()


@contextlib.asynccontextmanager
async def live_recognizer(
    engine: Engine, new_detector: Callable[[VadConfig], Detector], streaming: StreamingEngine | None
) -> AsyncIterator[LiveRecognizer]:
    """A recognizer of one lane for as long as the block runs, with a streaming engine for its partials or without."""
    partials = PartialLanes([streaming]) if streaming is not None else None
    recognizer = LiveRecognizer([engine], new_detector, partials)
    try:
        yield recognizer
    finally:
        if partials is not None:
            await partials.close()
        await recognizer.close()
