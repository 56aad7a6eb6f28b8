"""Both state machines of the wire, pair by pair: every message in every state."""

import itertools

import msgspec
import pytest

from liveasr.errors import UsageError, WireError
from liveasr.stream.messages import (
    LAST_NUMBER,
    Audio,
    AudioFormat,
    Encoding,
    Flush,
    Ping,
    Pong,
    Ready,
    Resume,
    Resumed,
    ServerMessage,
    Start,
    Stop,
    encode,
    encode_audio,
)
from liveasr.stream.protocol import ClientProtocol, ServerProtocol
from tests.wire import DONE, FATAL, HARMLESS, READY, SERVER_MESSAGES, tag, transcript

FRAMES: dict[str, str | bytes] = {
    "start": encode(Start()),
    "resume": encode(Resume(session="s1", seq=1)),
    "audio": encode_audio(Audio(1, b"ab")),
    "flush": encode(Flush()),
    "stop": encode(Stop()),
    "ping": encode(Ping(id=7)),
}
MAY_RECEIVE: dict[str, set[str]] = {
    "new": {"start", "resume", "ping"},
    "open": {"audio", "flush", "stop", "ping"},
    "stopping": {"ping"},
    "closed": set(),
}
BECOMES = {("new", "start"): "open", ("open", "stop"): "stopping"}
BEFORE_READY = {"pong", "error"}
NUMBERED_READY = msgspec.structs.replace(READY, seq=1)
PHASES = [("new", False), *itertools.product(["open", "stopping", "closed"], [False, True])]
"""(state, whether the server said that it is ready)."""


def server_in(state: str, *, ready: bool = False) -> ServerProtocol:
    server = ServerProtocol()
    if state != "new":
        server.receive(FRAMES["start"])
    if ready:
        server.send(READY)
    if state == "stopping":
        server.receive(FRAMES["stop"])
    if state == "closed":
        server.send(FATAL)
    assert server.state == state
    return server


def client_in(state: str, *, ready: bool = False) -> ClientProtocol:
    client = ClientProtocol()
    if state != "new":
        client.start(Start())
    if ready:
        client.receive(encode(NUMBERED_READY))
    if state == "stopping":
        client.stop()
    if state == "closed":
        client.receive(encode(FATAL))
    assert client.state == state
    return client


def may_say(message: ServerMessage, state: str, *, ready: bool) -> bool:
    """Whether a server may say it, unasked: what it says of a resumed connection is in `resume` alone."""
    if state == "closed" or isinstance(message, Resumed):
        return False
    return tag(message) in BEFORE_READY or (isinstance(message, Ready) != ready and state != "new")


def wire_error(machine: ServerProtocol | ClientProtocol, frame: str | bytes) -> WireError:
    with pytest.raises(WireError) as caught:
        machine.receive(frame)
    return caught.value


# What a server receives.


@pytest.mark.parametrize(("state", "frame"), [*itertools.product(MAY_RECEIVE, FRAMES)])
def test_a_server_takes_from_a_client_what_the_table_of_states_allows(state: str, frame: str) -> None:
    server = server_in(state)
    if frame in MAY_RECEIVE[state]:
        assert (tag(message) if not isinstance(message := server.receive(FRAMES[frame]), Audio) else "audio") == frame
        assert server.state == BECOMES.get((state, frame), state)
    else:
        error = wire_error(server, FRAMES[frame])
        assert (error.code, error.fatal) == ("wrong_order", True)
        assert server.state == state


@pytest.mark.parametrize(
    ("state", "frame", "message"),
    [
        ("new", "audio", "audio before start"),
        ("new", "flush", "flush before start"),
        ("open", "start", "start within a session"),
        ("stopping", "start", "start within a session"),
        ("open", "resume", "resume within a session"),
        ("stopping", "resume", "resume within a session"),
        ("stopping", "audio", "audio after stop"),
        ("stopping", "stop", "stop after stop"),
        ("closed", "ping", "after the end of the conversation"),
    ],
)
def test_the_error_of_a_wrong_order_says_what_came_when(state: str, frame: str, message: str) -> None:
    assert message in str(wire_error(server_in(state), FRAMES[frame]))


@pytest.mark.parametrize("state", MAY_RECEIVE)
def test_what_a_server_does_not_know_is_harmless_until_the_end(state: str) -> None:
    server = server_in(state)
    error = wire_error(server, '{"type":"dance"}')
    assert (error.code, error.fatal) == (("wrong_order", True) if state == "closed" else ("unknown_type", False))
    for frame in MAY_RECEIVE[state]:
        server_in(state).receive(FRAMES[frame])
    if state != "closed":
        server.receive(FRAMES["ping"])


@pytest.mark.parametrize("state", ["new", "open", "stopping"])
@pytest.mark.parametrize("garbage", ["", "{}", "[]", '{"type":"ping","id":-1}', '{"type":"start","x":1}', b"", b"abc"])
def test_a_server_takes_nothing_after_garbage_but_may_still_answer(state: str, garbage: str | bytes) -> None:
    server = server_in(state)
    error = wire_error(server, garbage)
    assert (error.code, error.fatal) == ("bad_message", True)
    for frame in FRAMES.values():
        assert wire_error(server, frame).code == "wrong_order"
    server.send(FATAL)
    assert server.state == "closed"


# What a server sends.


@pytest.mark.parametrize("message", SERVER_MESSAGES, ids=tag)
@pytest.mark.parametrize(("state", "ready"), PHASES)
def test_a_server_sends_what_the_table_of_states_allows(state: str, ready: bool, message: ServerMessage) -> None:
    server = server_in(state, ready=ready)
    if not may_say(message, state, ready=ready):
        with pytest.raises(UsageError):
            server.send(message)
        assert server.state == state
    else:
        seq = 2 if ready else int(isinstance(message, Ready))
        assert server.send(message) == encode(msgspec.structs.replace(message, seq=seq))
        assert server.state == ("closed" if message in {DONE, FATAL} else state)


# What a client sends.


def sends(client: ClientProtocol, frame: str) -> str | bytes:
    match frame:
        case "resume":
            return client.resume()
        case "start":
            return client.start(Start())
        case "audio":
            return client.audio(b"ab")
        case "flush":
            return client.flush()
        case "stop":
            return client.stop()
        case _:
            return client.ping(7)


@pytest.mark.parametrize(("state", "frame"), [*itertools.product(MAY_RECEIVE, FRAMES)])
def test_a_client_sends_what_the_table_of_states_allows(state: str, frame: str) -> None:
    client = client_in(state)
    if frame == "resume":  # of a session that it does not know yet
        with pytest.raises(UsageError, match="no session to resume"):
            sends(client, frame)
    elif frame in MAY_RECEIVE[state]:
        assert sends(client, frame) == FRAMES[frame]
        assert client.state == BECOMES.get((state, frame), state)
    else:
        with pytest.raises(UsageError, match=f"{frame}: the conversation is {state}, not "):
            sends(client, frame)
        assert client.state == state


# What a client receives.


@pytest.mark.parametrize("message", SERVER_MESSAGES, ids=tag)
@pytest.mark.parametrize(("state", "ready"), PHASES)
def test_a_client_takes_from_a_server_what_the_table_of_states_allows(
    state: str, ready: bool, message: ServerMessage
) -> None:
    client = client_in(state, ready=ready)
    numbered = msgspec.structs.replace(message, seq=2 if ready else 1)
    if not may_say(message, state, ready=ready):
        assert wire_error(client, encode(numbered)).code == "wrong_order"
        assert client.state == "closed"
    else:
        assert client.receive(encode(numbered)) == numbered
        assert client.state == ("closed" if message in {DONE, FATAL} else state)


@pytest.mark.parametrize("state", ["new", "open", "stopping"])
def test_a_client_ignores_what_is_from_the_future(state: str) -> None:
    client = client_in(state)
    assert client.receive('{"type":"dance","ms":5}') is None
    assert client.state == state


@pytest.mark.parametrize(
    "garbage", ["", "{}", "null", '{"type":"pong"}', '{"type":"ack","number":"x","heard_ms":1}', b""]
)
def test_a_client_takes_nothing_after_garbage(garbage: str | bytes) -> None:
    client = client_in("open", ready=True)
    assert wire_error(client, garbage).code == "bad_message"
    assert wire_error(client, encode(Pong(id=1))).code == "wrong_order"
    with pytest.raises(UsageError):
        client.audio(b"ab")


def test_a_client_learns_the_limit_of_the_server() -> None:
    client = client_in("open")
    client.receive(encode(READY).replace("1048576", "5000"))
    assert client.max_message_bytes == 5000


# Numbers and samples.


@pytest.mark.parametrize(("received", "number"), [(0, 0), (0, 2), (1, 1), (1, 0), (1, 3), (5, 4), (5, LAST_NUMBER)])
def test_audio_that_is_missing_or_doubled_is_refused(received: int, number: int) -> None:
    server = server_in("open")
    for index in range(1, received + 1):
        server.receive(encode_audio(Audio(index, b"")))
    error = wire_error(server, encode_audio(Audio(number, b"")))
    assert (error.code, error.fatal) == ("misnumbered", True)
    assert f"{received + 1} was expected" in str(error)
    assert server.last_number == received
    assert wire_error(server, encode_audio(Audio(received + 1, b""))).code == "wrong_order"


def test_the_last_number_is_the_last() -> None:
    server, client = server_in("open"), client_in("open")
    server.last_number = client.last_number = LAST_NUMBER - 1
    server.receive(client.audio(b"ab"))
    assert server.last_number == client.last_number == LAST_NUMBER
    with pytest.raises(UsageError, match="no more audio"):
        client.audio(b"ab")
    for number in (0, LAST_NUMBER):
        after = server_in("open")
        after.last_number = LAST_NUMBER
        assert wire_error(after, encode_audio(Audio(number, b""))).code == "misnumbered"
    server.receive(client.stop())


@pytest.mark.parametrize(("encoding", "width"), [("s16le", 2), ("f32le", 4)])
@pytest.mark.parametrize("channels", range(1, 9))
def test_half_a_sample_is_refused_on_both_sides(encoding: Encoding, width: int, channels: int) -> None:
    start = Start(audio=AudioFormat(encoding=encoding, channels=channels))
    for size in range(3 * width * channels + 1):
        server, client = ServerProtocol(), ClientProtocol()
        server.receive(client.start(start))
        frame = encode_audio(Audio(1, bytes(size)))
        if size % (width * channels) == 0:
            assert client.audio(bytes(size)) == frame
            assert server.receive(frame) == Audio(1, bytes(size))
            continue
        with pytest.raises(UsageError, match=f"{size} bytes"):
            client.audio(bytes(size))
        assert client.last_number == 0
        error = wire_error(server, frame)
        assert (error.code, error.fatal) == ("bad_message", True)
        assert server.last_number == 0


# Transcripts.


@pytest.mark.parametrize(
    ("told", "broken", "code"),
    [
        ([transcript(0, 1, "three")], transcript(0, 2, "thr"), "wrong_order"),
        ([transcript(0, 1, "three")], transcript(0, 2, "four", final=True), "wrong_order"),
        ([transcript(0, 1, "a"), transcript(0, 2, "a b")], transcript(0, 3, "a"), "wrong_order"),
        ([transcript(0, 2, "a")], transcript(0, 2, "a b"), "wrong_order"),
        ([transcript(0, 2, "a")], transcript(0, 1, "a b", final=True), "wrong_order"),
        ([transcript(0, 1, "a", final=True)], transcript(0, 2, "a", final=True), "wrong_order"),
        ([transcript(0, 1, "a", final=True)], transcript(0, 2, "a b"), "wrong_order"),
        ([], transcript(1, 1, "b", final=True), "wrong_order"),
        ([transcript(0, 1, "a", final=True)], transcript(2, 1, "c", final=True), "wrong_order"),
        ([], transcript(-1, 1, "b"), "wrong_order"),
        ([], encode(transcript(0, 1, "a", final=True)).replace('"text":"a"', '"text":null'), "bad_message"),
    ],
)
def test_a_client_refuses_transcripts_that_break_their_promises(
    told: list[ServerMessage], broken: ServerMessage | str, code: str
) -> None:
    client = client_in("open", ready=True)
    for message in told:
        client.receive(encode(message))
    error = wire_error(client, broken if isinstance(broken, str) else encode(broken))
    assert (error.code, error.fatal) == (code, True)
    assert client.state == "closed"


def test_a_client_takes_transcripts_of_several_open_segments_and_gaps_in_revisions() -> None:
    client = client_in("open", ready=True)
    for message in (
        transcript(0, 1, ""),
        transcript(1, 5, "b"),
        transcript(0, 7, "a"),
        transcript(1, 9, "b b"),
        transcript(0, 8, "a a", final=True, text="corrected"),
        transcript(1, 10, "b b", final=True, text=""),
        transcript(2, 1, "", final=True),
    ):
        assert client.receive(encode(message)) == message


def test_a_harmless_error_changes_nothing() -> None:
    server, client = server_in("open", ready=True), client_in("open", ready=True)
    assert client.receive(server.send(HARMLESS)) == msgspec.structs.replace(HARMLESS, seq=2)
    assert (server.state, client.state) == ("open", "open")
    assert server.receive(client.audio(b"ab")) == Audio(1, b"ab")
