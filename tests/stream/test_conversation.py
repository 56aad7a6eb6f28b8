"""A client and a server against each other, over a wire that breaks anywhere: nothing is lost or doubled."""

from collections import deque
from dataclasses import dataclass, field
from typing import TypeAlias

import msgspec
import pytest
from hypothesis import settings
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
    Resume,
    Resumed,
    ServerMessage,
    Start,
    Stop,
    Transcript,
)
from liveasr.stream.protocol import ClientProtocol, ServerProtocol
from tests.wire import READY, SERVER_MESSAGES, any_text, audio_formats

CHATTER = [each for each in SERVER_MESSAGES if isinstance(each, Ack | Flushed | Lag | Pong)]
ORDER = ["new", "open", "stopping", "closed"]
Sent: TypeAlias = tuple[str | bytes, ClientMessage | Audio]


@dataclass(slots=True)
class Wire:
    """One connection: frames on their way, in order, beside what the other side has to make of them."""

    server: ServerProtocol
    """Its own until it is resumed, then the session's."""
    attached: bool
    """What the session says goes this way."""
    to_server: deque[Sent] = field(default_factory=deque)
    to_client: deque[tuple[str, ServerMessage]] = field(default_factory=deque)


class Conversation(RuleBasedStateMachine):
    """Each side says whatever its own state allows; frames arrive in order, or are lost where the wire breaks."""

    @initialize(format_=audio_formats)
    def connect(self, format_: AudioFormat) -> None:
        self.format = format_
        self.client, self.server = ClientProtocol(), ServerProtocol()
        self.wire: Wire | None = Wire(self.server, attached=True)
        self.ready = False
        self.resuming = False
        self.said: list[ServerMessage] = []  # with a number
        self.taken: list[ServerMessage] = []
        self.sent: list[Sent] = []  # that has to come through
        self.came: list[ClientMessage | Audio] = []
        self.revisions: dict[int, tuple[int, str]] = {}
        self.next_final = 0

    # The client speaks. It may do so while the wire is broken, and sends it later.

    def send(self, frame: str | bytes, message: ClientMessage | Audio) -> None:
        self.sent.append((frame, message))
        if self.wire is not None and not self.resuming:
            self.wire.to_server.append((frame, message))

    @precondition(lambda self: self.client.state == "new")
    @rule()
    def start(self) -> None:
        assert self.wire is not None
        message = Start(audio=self.format)
        self.wire.to_server.append((self.client.start(message), message))

    @precondition(lambda self: self.client.state == "open")
    @rule(samples=st.integers(0, 5))
    def audio(self, samples: int) -> None:
        payload = bytes(samples * self.format.frame_bytes)
        frame = self.client.audio(payload)
        self.send(frame, Audio(self.client.last_number, payload))

    @precondition(lambda self: self.client.state == "open")
    @rule()
    def flush(self) -> None:
        self.send(self.client.flush(), Flush())

    @precondition(lambda self: self.client.state == "open")
    @rule()
    def stop(self) -> None:
        self.send(self.client.stop(), Stop())

    @precondition(lambda self: self.client.state != "closed" and self.wire)
    @rule(number=st.integers(0, 2**53 - 1))
    def ping(self, number: int) -> None:
        assert self.wire is not None
        self.wire.to_server.append((self.client.ping(number), Ping(id=number)))

    # The server speaks.

    def say(self, message: ServerMessage) -> None:
        frame = self.server.send(message)
        if self.ready:
            message = msgspec.structs.replace(message, seq=len(self.said) + 1)
            self.said.append(message)
        if self.wire is not None and self.wire.attached:
            self.wire.to_client.append((frame, message))

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

    # The wire breaks, with all that is on it in both directions; the client comes back.

    @precondition(lambda self: self.wire and self.client.session is not None and self.client.state != "closed")
    @rule()
    def break_(self) -> None:
        self.wire = None

    @precondition(lambda self: not self.wire)
    @rule()
    def come_back(self) -> None:
        self.wire = Wire(ServerProtocol(), attached=False)
        self.resuming = True
        self.wire.to_server.append((self.client.resume(), Resume(session=READY.session, seq=len(self.taken))))

    # Frames arrive.

    @precondition(lambda self: self.wire and self.wire.to_server)
    @rule()
    def to_server(self) -> None:
        assert self.wire is not None
        frame, message = self.wire.to_server.popleft()
        if self.wire.server.state == "closed":  # they crossed: the socket is being closed
            with pytest.raises(WireError):
                self.wire.server.receive(frame)
            return
        assert self.wire.server.receive(frame) == message
        if isinstance(message, Resume):
            self.wire.server = self.server
            self.wire.attached = True
            resumed, *repeated = self.server.resume(message.session, message.seq)
            expected = Resumed(
                session=READY.session,
                number=self.server.last_number,
                flushes=self.came.count(Flush()),
                stopping=self.server.state != "open",
            )
            self.wire.to_client += zip([resumed, *repeated], [expected, *self.said[message.seq :]], strict=True)
        elif not isinstance(message, Start | Ping):
            self.came.append(message)

    @precondition(lambda self: self.wire and self.wire.to_client)
    @rule()
    def to_client(self) -> None:
        assert self.wire is not None
        frame, message = self.wire.to_client.popleft()
        assert self.client.receive(frame) == message
        if message.seq:
            self.taken.append(message)
        if isinstance(message, Resumed):
            self.resuming = False
            came = message.number + message.flushes + isinstance(self.came[-1] if self.came else None, Stop)
            for lost in [] if message.stopping else self.sent[came:]:  # a session that is over wants no more
                assert self.say_again(lost[1]) == lost[0]
                self.wire.to_server.append(lost)

    def say_again(self, message: ClientMessage | Audio) -> str | bytes:
        if isinstance(message, Audio):
            return self.client.audio(message.payload)
        return self.client.flush() if isinstance(message, Flush) else self.client.stop()

    @precondition(lambda self: self.client.state == "closed" and self.wire and not self.wire.to_server)
    @rule()
    def nothing_is_left_to_say(self) -> None:
        with pytest.raises(UsageError):
            self.client.ping(1)
        with pytest.raises(UsageError):
            self.client.resume()

    # They agree.

    @invariant()
    def every_message_is_taken_once_and_in_its_turn(self) -> None:
        assert self.taken == self.said[: len(self.taken)]
        assert self.came == [message for _frame, message in self.sent[: len(self.came)]]

    @invariant()
    def the_server_is_never_ahead_of_the_client_but_at_the_end(self) -> None:
        states = ORDER.index(self.server.state), ORDER.index(self.client.state)
        assert states[0] <= states[1] or self.server.state == "closed"
        assert self.server.last_number <= self.client.last_number

    def teardown(self) -> None:
        while self.wire is None or self.wire.to_client or (self.wire.to_server and self.server.state != "closed"):
            if self.wire is None:
                self.come_back()
            elif self.wire.to_client:
                self.to_client()
            else:
                self.to_server()
        while self.resuming:  # a session that is over answers as well
            self.to_server()
            while self.wire.to_client:
                self.to_client()
        assert self.taken == self.said
        if self.server.state != "closed":
            assert self.came == [message for _frame, message in self.sent]
            assert self.server.last_number == self.client.last_number
        assert self.client.state == self.server.state


Conversation.TestCase.settings = settings(max_examples=100, stateful_step_count=50)
TestConversation = Conversation.TestCase
