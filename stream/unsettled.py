"""What a client has said and the server has not settled: kept, so that a broken connection loses nothing. No I/O.

Audio frames, flushes and the stop go in as they are said, and come out, in their order, as they are to be sent:

    resumed()   the session goes on over a new connection: what the server has not got comes out again
    restart()   the server knows the session no more: what is not settled comes out again, as that of a new session

Audio is settled once its text is final, or it holds none; flushes once they are answered.
"""

from collections import deque
from typing import Literal, TypeAlias

from liveasr.errors import WireError

Mark: TypeAlias = Literal["flush", "stop"]


class Unsettled:
    """What one stream has to say. Positions are bytes from its first sample; numbers count within a session.

    Args:
        ms_bytes: bytes of a millisecond.
        keep_ms: so much audio makes it full.
    """

    def __init__(self, ms_bytes: int, keep_ms: int) -> None:
        self.keep_ms = keep_ms
        self.frames_given = 0
        """Over all sessions."""
        self._ms_bytes = ms_bytes
        self._frames: deque[bytes] = deque()  # audio that is not settled
        self._start = 0  # of the first of them
        self._end = 0  # of the last
        self._settled = 0
        self._begin_ms = 0  # of the session
        self._forgotten = 0  # number of the last frame before those kept
        self._sent = 0  # number of the last frame sent
        self._flushes: deque[int] = deque()  # not answered: the numbers of the frames before them
        self._answered = 0  # flushes
        self._flushes_sent = 0
        self._stopping = False
        self._stop_sent = False

    @property
    def settled_ms(self) -> int:
        """How much of the stream is settled."""
        return self._settled // self._ms_bytes

    @property
    def is_full(self) -> bool:
        """No more audio should be given before some is settled."""
        return self._end - self._settled >= self.keep_ms * self._ms_bytes

    @property
    def _last(self) -> int:
        """Number of the last frame given."""
        return self._forgotten + len(self._frames)

    def audio(self, payload: bytes) -> None:
        """Say the next samples; they make one frame."""
        self._frames.append(payload)
        self._end += len(payload)
        self.frames_given += 1

    def flush(self) -> None:
        """Say flush."""
        self._flushes.append(self._last)

    def stop(self) -> None:
        """Say stop; nothing is said after it."""
        self._stopping = True

    def next(self) -> bytes | Mark | None:
        """What is to be sent next: audio or a mark; None if all has been sent."""
        waiting = self._flushes_sent - self._answered
        if waiting < len(self._flushes) and self._flushes[waiting] <= self._sent:
            self._flushes_sent += 1
            return "flush"
        if self._sent < self._last:
            self._sent += 1
            return self._frames[self._sent - self._forgotten - 1]
        if self._stopping and not self._stop_sent:
            self._stop_sent = True
            return "stop"
        return None

    def settle(self, settled_ms: int) -> None:
        """Forget the frames that lie before so many milliseconds of the session; what was not sent stays."""
        settled = max(self._settled, (self._begin_ms + settled_ms) * self._ms_bytes)
        while self._forgotten < self._sent and self._start + len(self._frames[0]) <= settled:
            self._start += len(self._frames.popleft())
            self._forgotten += 1
        self._settled = settled if self._forgotten < self._sent else min(settled, self._start)

    def flushed(self) -> None:
        """The oldest flush is answered.

        Raises:
            WireError: there is none.
        """
        if self._answered == self._flushes_sent:
            raise WireError("wrong_order", "the server said flushed, but nobody asked")
        self._flushes.popleft()
        self._answered += 1

    def resumed(self, number: int, flushes: int, *, stopping: bool) -> None:
        """Send again what the server has not got.

        Args:
            number: of the last audio that it has.
            flushes: how many it has.
            stopping: whether it has the stop.

        Raises:
            WireError: that cannot be.
        """
        if not (self._forgotten <= number <= self._sent and self._answered <= flushes <= self._flushes_sent):
            raise WireError("misnumbered", "the server has got what was never sent, or not got what it has settled")
        self._sent, self._flushes_sent, self._stop_sent = number, flushes, stopping

    def restart(self) -> int:
        """Send what is not settled as a new session; where that begins, in milliseconds of the stream."""
        self._begin_ms = -(-self._settled // self._ms_bytes)
        begin = min(self._begin_ms * self._ms_bytes, self._end)
        while self._frames and self._start + len(self._frames[0]) <= begin:
            self._start += len(self._frames.popleft())
            self._forgotten += 1
        if self._frames:
            self._frames[0] = self._frames[0][begin - self._start :]
        self._flushes = deque(max(0, number - self._forgotten) for number in self._flushes)
        self._start = self._settled = begin
        self._forgotten = self._sent = self._answered = self._flushes_sent = 0
        self._stop_sent = False
        return self._begin_ms

    def is_complete(self, number: int, flushes: int = 0) -> bool:
        """Whether the end of a session is the end of the stream.

        Args:
            number: of the last audio that the session took.
            flushes: that it answered, and `flushed` has not told yet.
        """
        return self._stopping and number == self._last and flushes == len(self._flushes)
