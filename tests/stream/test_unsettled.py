"""What a client keeps until it is settled: whatever breaks, what a server hears in the end is what was said."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from liveasr.errors import WireError
from liveasr.stream.unsettled import Unsettled

MS_BYTES = 4


def kept(frames: int, *, keep_ms: int = 1000) -> Unsettled:
    """Frames of 100 ms: b"0000...", b"1111...", all of them sent."""
    unsettled = Unsettled(MS_BYTES, keep_ms)
    for number in range(frames):
        unsettled.audio(str(number).encode() * 100 * MS_BYTES)
    said(unsettled)
    return unsettled


def said(unsettled: Unsettled) -> list[str]:
    """All that is to be sent: audio by its first byte and its milliseconds."""
    items = []
    while (item := unsettled.next()) is not None:
        items.append(item if isinstance(item, str) else f"{item[:1].decode()}:{len(item) // MS_BYTES}")
    return items


def test_what_is_said_comes_out_once_in_its_order() -> None:
    unsettled = Unsettled(MS_BYTES, 1000)
    unsettled.flush()
    unsettled.audio(b"aaaa")
    unsettled.flush()
    unsettled.flush()
    unsettled.audio(b"bbbb")
    assert said(unsettled) == ["flush", "a:1", "flush", "flush", "b:1"]
    unsettled.stop()
    assert said(unsettled) == ["stop"]
    assert said(unsettled) == []


def test_a_session_that_goes_on_gets_what_it_has_not_got() -> None:
    unsettled = kept(5)
    unsettled.flush()
    unsettled.stop()
    assert said(unsettled) == ["flush", "stop"]
    unsettled.settle(150)
    unsettled.resumed(3, 0, stopping=False)
    assert said(unsettled) == ["3:100", "4:100", "flush", "stop"]
    unsettled.resumed(5, 1, stopping=False)
    assert said(unsettled) == ["stop"]
    unsettled.resumed(5, 1, stopping=True)
    assert said(unsettled) == []


@pytest.mark.parametrize(("number", "flushes"), [(6, 0), (2, 0), (5, 1)])
def test_a_server_cannot_have_got_what_was_not_sent_nor_lost_what_it_settled(number: int, flushes: int) -> None:
    unsettled = kept(5)
    unsettled.settle(300)
    unsettled.audio(bytes(400))
    with pytest.raises(WireError, match="has got what was never sent"):
        unsettled.resumed(number, flushes, stopping=False)


def test_a_new_session_gets_what_is_not_settled_to_the_millisecond() -> None:
    unsettled = kept(5)
    unsettled.flush()
    unsettled.audio(b"x" * 40)
    unsettled.stop()
    said(unsettled)
    unsettled.settle(250)
    assert unsettled.restart() == 250
    assert said(unsettled) == ["2:50", "3:100", "4:100", "flush", "x:10", "stop"]
    unsettled.settle(60)  # of the new session
    assert unsettled.settled_ms == 310
    assert unsettled.restart() == 310
    assert said(unsettled) == ["3:90", "4:100", "flush", "x:10", "stop"]


def test_a_flush_that_was_answered_is_not_said_again_and_one_that_was_not_is() -> None:
    unsettled = kept(2)
    unsettled.flush()
    unsettled.flush()
    said(unsettled)
    unsettled.flushed()
    unsettled.settle(200)
    unsettled.restart()
    assert said(unsettled) == ["flush"]
    unsettled.flushed()
    with pytest.raises(WireError, match="nobody asked"):
        unsettled.flushed()


def test_it_is_full_while_too_much_is_not_settled() -> None:
    unsettled = kept(9)
    assert not unsettled.is_full
    unsettled.audio(bytes(100 * MS_BYTES))
    assert unsettled.is_full
    unsettled.settle(1)
    assert not unsettled.is_full


def test_nothing_is_settled_before_it_is_sent() -> None:
    unsettled = kept(2)
    unsettled.audio(b"x" * 40)
    unsettled.settle(10_000)
    assert unsettled.settled_ms == 200
    assert unsettled.restart() == 200
    assert said(unsettled) == ["x:10"]


def test_a_stream_is_complete_once_all_is_taken_and_answered() -> None:
    unsettled = kept(2)
    assert not unsettled.is_complete(2)
    unsettled.flush()
    unsettled.stop()
    said(unsettled)
    assert not unsettled.is_complete(2)
    unsettled.flushed()
    assert not unsettled.is_complete(1)
    assert unsettled.is_complete(2)


@dataclass
class Server:
    """One session, as a server knows it."""

    begin: int
    """Of the stream, in bytes."""
    got: list[bytes | str] = field(default_factory=list)
    on_the_way: list[bytes | str] = field(default_factory=list)
    settled_ms: int = 0
    answered: int = 0

    @property
    def audio(self) -> list[bytes]:
        return [item for item in self.got if isinstance(item, bytes)]

    @property
    def flushes(self) -> list[int]:
        """Where they stand in the stream, in bytes."""
        places, at = [], self.begin
        for item in self.got:
            at += len(item) if isinstance(item, bytes) else 0
            if item == "flush":
                places.append(at)
        return places


steps = st.lists(
    st.one_of(
        st.tuples(st.just("audio"), st.integers(0, 30)),
        st.tuples(st.sampled_from(["flush", "restart", "flushed"]), st.just(0)),
        st.tuples(st.sampled_from(["send", "arrive", "settle", "break"]), st.integers(0, 40)),
    ),
    max_size=80,
)


@settings(max_examples=400, deadline=None)
@given(steps)
def test_whatever_breaks_a_server_hears_in_the_end_what_was_said(script: list[tuple[str, int]]) -> None:  # noqa: C901
    unsettled = Unsettled(MS_BYTES, 1000)
    stream = bytearray()
    flushes: list[int] = []  # not answered
    server = Server(0)

    def arrive(count: int) -> None:
        server.got += server.on_the_way[:count]
        del server.on_the_way[:count]

    def send(count: int) -> None:
        for _ in range(count):
            if (item := unsettled.next()) is not None:
                server.on_the_way.append(item)

    for what, count in script:
        if what == "audio":
            payload = bytes((len(stream) + index) % 251 for index in range(2 * count))  # a millisecond is two samples
            stream += payload
            unsettled.audio(payload)
        elif what == "flush":
            flushes.append(len(stream))
            unsettled.flush()
        elif what == "send":
            send(count)
        elif what == "arrive":
            arrive(count)
        elif what == "settle":
            heard_ms = sum(map(len, server.audio)) // MS_BYTES
            server.settled_ms = max(server.settled_ms, min(heard_ms, count))
            unsettled.settle(server.settled_ms)
        elif what == "flushed" and server.answered < len(server.flushes):
            server.answered += 1
            flushes.pop(0)
            unsettled.flushed()
        elif what == "break":
            arrive(count)
            server.on_the_way.clear()
            unsettled.resumed(len(server.audio), len(server.flushes), stopping=False)
        elif what == "restart":
            begin_ms = unsettled.restart()
            assert begin_ms * MS_BYTES == server.begin + server.settled_ms * MS_BYTES
            server = Server(begin_ms * MS_BYTES)
        assert b"".join(server.audio) == stream[server.begin :][: sum(map(len, server.audio))]
    unsettled.stop()
    send(1000)
    arrive(1000)
    assert b"".join(server.audio) == stream[server.begin :]
    assert server.flushes[server.answered :] == [max(place, server.begin) for place in flushes]
    assert server.got[-1] == "stop"
    assert server.got.count("stop") == 1
