"""A client and a server against each other: in any order that is allowed they agree, in any other one it is told."""

from collections import deque
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from liveasr.errors import UsageError, WireError
from liveasr.stream.messages import (
    Ack,
    Audio,
    AudioFormat,
    ClientMessage,
    Done,
    Error,
    Flush,
    Flushed,
    Lag,
    Ping,
    Pong,
    ServerMessage,
    Start,
    Stop,
    Transcript,
    encode,
    encode_audio,
)
from liveasr.stream.protocol import ClientProtocol, ServerProtocol
from tests.wire import READY, SERVER_MESSAGES, any_text, audio_formats, client_messages, server_messages

CHATTER = [each for each in SERVER_MESSAGES if isinstance(each, Ack | Flushed | Lag | Pong)]
ORDER = ["new", "open", "stopping", "closed"]


@dataclass(slots=True)
class Wire:
    """Frames on their way, in order, beside what the other side has to make of them."""

    to_server: deque[tuple[str | bytes, ClientMessage | Audio]] = field(default_factory=deque)
    to_client: deque[tuple[str, ServerMessage]] = field(default_factory=deque)


class Conversation(RuleBasedStateMachine):
    """Each side says whatever its own state allows; frames arrive later, in order."""

    @initialize(format_=audio_formats)
    def connect(self, format_: AudioFormat) -> None:
        self.format = format_
        self.client, self.server = ClientProtocol(), ServerProtocol()
        self.wire = Wire()
        self.ready = False
        self.revisions: dict[int, tuple[int, str]] = {}
        self.next_final = 0

    # The client speaks.

    @precondition(lambda self: self.client.state == "new")
    @rule()
    def start(self) -> None:
        message = Start(audio=self.format)
        self.wire.to_server.append((self.client.start(message), message))

    @precondition(lambda self: self.client.state == "open")
    @rule(samples=st.integers(0, 5))
    def audio(self, samples: int) -> None:
        payload = bytes(samples * self.format.frame_bytes)
        frame = self.client.audio(payload)
        self.wire.to_server.append((frame, Audio(self.client.last_number, payload)))

    @precondition(lambda self: self.client.state == "open")
    @rule()
    def flush(self) -> None:
        self.wire.to_server.append((self.client.flush(), Flush()))

    @precondition(lambda self: self.client.state == "open")
    @rule()
    def stop(self) -> None:
        self.wire.to_server.append((self.client.stop(), Stop()))

    @precondition(lambda self: self.client.state != "closed")
    @rule(number=st.integers(0, 2**53 - 1))
    def ping(self, number: int) -> None:
        self.wire.to_server.append((self.client.ping(number), Ping(id=number)))

    # The server speaks.

    def say(self, message: ServerMessage) -> None:
        self.wire.to_client.append((self.server.send(message), message))

    def can_say(self) -> bool:
        return self.ready and self.server.state != "closed"

    @precondition(lambda self: self.server.state in {"open", "stopping"} and not self.ready)
    @rule()
    def greet(self) -> None:
        self.ready = True
        self.say(READY)

    @precondition(lambda self: self.server.state != "closed")
    @rule(number=st.integers(0, 100), fatal=st.sampled_from([False] * 15 + [True]))
    def pong_or_error(self, number: int, fatal: bool) -> None:
        self.say(Error(code="internal", message="no", fatal=True) if fatal else Pong(id=number))

    @precondition(can_say)
    @rule(message=st.sampled_from(CHATTER))
    def chatter(self, message: ServerMessage) -> None:
        self.say(message)

    @precondition(can_say)
    @rule(ahead=st.integers(0, 2), step=st.integers(1, 3), more=any_text, final=st.booleans(), text=any_text)
    def transcript(self, ahead: int, step: int, more: str, final: bool, text: str) -> None:
        segment_id = self.next_final if final else self.next_final + ahead
        revision, committed = self.revisions.get(segment_id, (0, ""))
        self.revisions[segment_id] = (revision + step, committed + more)
        self.next_final += final
        self.say(
            Transcript(
                segment_id=segment_id,
                revision=revision + step,
                final=final,
                committed=committed + more,
                tentative="",
                start_ms=0,
                end_ms=1,
                text=text if final else None,
            )
        )

    @precondition(lambda self: self.can_say() and (self.server.state == "stopping" or self.server.last_number > 3))
    @rule()
    def done(self) -> None:
        self.say(
            Done(
                reason="stop" if self.server.state == "stopping" else "shutdown",
                number=self.server.last_number,
                heard_ms=0,
                speech_ms=0,
                segments=self.next_final,
            )
        )

    # Frames arrive.

    @precondition(lambda self: self.wire.to_server)
    @rule()
    def to_server(self) -> None:
        frame, message = self.wire.to_server.popleft()
        if self.server.state == "closed":  # they crossed: the socket is being closed
            with pytest.raises(WireError):
                self.server.receive(frame)
        else:
            assert self.server.receive(frame) == message

    @precondition(lambda self: self.wire.to_client)
    @rule()
    def to_client(self) -> None:
        frame, message = self.wire.to_client.popleft()
        assert self.client.receive(frame) == message

    @precondition(lambda self: self.client.state == "closed" and not self.wire.to_server)
    @rule()
    def nothing_is_left_to_say(self) -> None:
        with pytest.raises(UsageError):
            self.client.ping(1)

    # They agree.

    @invariant()
    def the_server_is_never_ahead_of_the_client_but_at_the_end(self) -> None:
        states = ORDER.index(self.server.state), ORDER.index(self.client.state)
        assert states[0] <= states[1] or self.server.state == "closed"
        assert self.server.last_number <= self.client.last_number

    def teardown(self) -> None:
        while self.wire.to_client:
            self.to_client()
        if self.server.state != "closed":
            while self.wire.to_server:
                self.to_server()
            assert self.server.last_number == self.client.last_number
        assert self.client.state == self.server.state


Conversation.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestConversation = Conversation.TestCase


# Any order at all.

audio_frames = st.builds(
    encode_audio, st.builds(Audio, st.integers(0, 6), st.sampled_from([b"", b"ab", b"abc", b"abcd"]))
)
in_turn = st.integers(1, 3)
garbage = st.text(max_size=10) | st.binary(max_size=3)


def outcome(side: ServerProtocol | ClientProtocol, frame: str | bytes) -> object:
    """What comes in, or the error."""
    try:
        return side.receive(frame)
    except WireError as error:
        return error


@given(st.lists(in_turn | audio_frames | client_messages.map(encode) | garbage, max_size=12))
@settings(max_examples=300)
def test_a_server_takes_any_frames_or_tells_what_is_wrong(frames: list[int | str | bytes]) -> None:
    server = ServerProtocol()
    over = False
    for each in frames:
        # A number stands for so many frames of audio in turn, which chance alone would hardly find.
        for frame in [None] * each if isinstance(each, int) else [each]:
            state, number = server.state, server.last_number
            found = outcome(server, encode_audio(Audio(number + 1, b"")) if frame is None else frame)
            if isinstance(found, WireError):
                assert (server.state, server.last_number) == (state, number)
                assert found.code in {"bad_message", "unknown_type", "wrong_order", "misnumbered"}
                assert found.fatal == (found.code != "unknown_type")
                over = over or found.fatal
                continue
            assert not over
            match found:
                case Audio():
                    assert (state, number) == ("open", found.number - 1)
                case Start():
                    assert state == "new"
                case Flush() | Stop():
                    assert state == "open"


@given(st.lists(server_messages.map(encode) | st.sampled_from(SERVER_MESSAGES).map(encode) | garbage, max_size=12))
@settings(max_examples=300)
def test_a_client_takes_any_frames_or_tells_what_is_wrong(frames: list[str | bytes]) -> None:
    client = ClientProtocol()
    client.start(Start())
    for frame in frames:
        was_closed = client.state == "closed"
        found = outcome(client, frame)
        if isinstance(found, WireError):
            assert found.fatal
            assert found.code in {"bad_message", "wrong_order"}
            assert client.state == "closed"
        else:
            assert not was_closed


@given(st.lists(st.sampled_from(SERVER_MESSAGES), max_size=12), st.booleans())
@settings(max_examples=200)
def test_what_a_server_lets_out_a_client_takes_in_but_for_what_transcripts_promise(
    messages: list[ServerMessage], stop: bool
) -> None:
    server, client = ServerProtocol(), ClientProtocol()
    server.receive(client.start(Start()))
    if stop:
        server.receive(client.stop())
    for message in messages:
        if isinstance(message, Transcript):
            continue
        try:
            frame = server.send(message)
        except UsageError:
            continue
        assert client.receive(frame) == message
    assert client.state == server.state
