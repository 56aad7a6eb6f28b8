"""Resuming, on both sides of the wire: what is repeated, what is gone, what a client takes in which order."""

import msgspec
import pytest

from liveasr.errors import UsageError, WireError
from liveasr.stream.messages import (
    Audio,
    Error,
    Flush,
    Pong,
    Resume,
    Resumed,
    ServerMessage,
    Start,
    Stop,
    decode_client,
    decode_server,
    encode,
    encode_audio,
)
from liveasr.stream.protocol import MAX_REPEATED, ClientProtocol, ServerProtocol
from tests.wire import DONE, FATAL, HARMLESS, READY, SERVER_MESSAGES, tag


def numbered(message: ServerMessage, seq: int) -> str:
    return encode(msgspec.structs.replace(message, seq=seq))


def server_that_said(count: int) -> ServerProtocol:
    server = ServerProtocol()
    server.receive(encode(Start()))
    server.send(READY)
    for number in range(2, count + 1):
        server.send(Pong(id=number))
    return server


def client_that_heard(count: int) -> ClientProtocol:
    client = ClientProtocol()
    client.start(Start())
    client.receive(numbered(READY, 1))
    for number in range(2, count + 1):
        client.receive(numbered(Pong(id=number), number))
    return client


def heard(frames: list[str]) -> tuple[Resumed, list[int]]:
    """The answer to resume, and the numbers that follow."""
    messages = [decode_server(frame) for frame in frames]
    first = messages[0]
    assert isinstance(first, Resumed)
    assert first.seq == 0
    return first, [message.seq for message in messages[1:] if message is not None]


# What a server repeats.


@pytest.mark.parametrize("said", [1, 2, 7, MAX_REPEATED - 1, MAX_REPEATED, MAX_REPEATED + 1, MAX_REPEATED + 9])
def test_a_server_repeats_from_every_number_that_it_remembers_and_from_no_other(said: int) -> None:
    server = server_that_said(said)
    forgotten = max(0, said - MAX_REPEATED)
    every = range(said + 3) if said < 10 else [*range(20), *range(said - 5, said + 3), said + MAX_REPEATED, 2**53 - 1]
    for seq in every:
        if forgotten <= seq <= said:
            _resumed, numbers = heard(server.resume("s1", seq))
            assert numbers == list(range(seq + 1, said + 1))
        else:
            with pytest.raises(WireError) as caught:
                server.resume("s1", seq)
            assert (caught.value.code, caught.value.fatal) == ("gone", True)


def test_a_server_keeps_no_more_frames_than_it_promises() -> None:
    assert len(server_that_said(3 * MAX_REPEATED)._sent) == MAX_REPEATED


def test_what_is_repeated_is_what_was_said_to_the_letter() -> None:
    server = ServerProtocol()
    server.receive(encode(Start()))
    frames = [server.send(message) for message in (READY, *SERVER_MESSAGES[2:-2], DONE)]
    for seq in range(len(frames) + 1):
        assert server.resume("s1", seq)[1:] == frames[seq:]


def test_what_belongs_to_a_connection_has_no_number_and_is_not_repeated() -> None:
    server = ServerProtocol()
    server.send(Pong(id=1))
    server.receive(encode(Start()))
    server.send(HARMLESS)
    server.send(READY)
    assert heard(server.resume("s1", 0))[1] == [1]


def test_a_server_tells_how_much_of_what_the_client_sent_has_come() -> None:
    server = server_that_said(1)
    progress = []
    for frame in (
        encode_audio(Audio(1, b"ab")),
        encode_audio(Audio(2, b"")),
        encode(Flush()),
        encode_audio(Audio(3, b"ab")),
        encode(Flush()),
        encode(Stop()),
    ):
        server.receive(frame)
        resumed, _numbers = heard(server.resume("s1", 1))
        progress.append((resumed.number, resumed.flushes, resumed.stopping))
    assert progress == [(1, 0, False), (2, 0, False), (2, 1, False), (3, 1, False), (3, 2, False), (3, 2, True)]
    server.send(DONE)
    assert heard(server.resume("s1", 1)) == (resumed, [2])


def test_resuming_takes_nothing_from_a_server() -> None:
    server = server_that_said(3)
    assert server.resume("s1", 1) == server.resume("s1", 1)
    with pytest.raises(WireError):
        server.resume("s1", 4)
    assert server.state == "open"
    assert server.send(Pong(id=0)) == numbered(Pong(id=0), 4)


def test_what_was_refused_of_a_client_does_not_count_as_come() -> None:
    server = server_that_said(1)
    for frame in (encode_audio(Audio(2, b"")), encode(Flush()), encode(Stop())):
        with pytest.raises(WireError):
            server.receive(frame)
    resumed, _numbers = heard(server.resume("s1", 1))
    assert (resumed.number, resumed.flushes, resumed.stopping) == (0, 0, False)


# What a client asks for, and takes.


@pytest.mark.parametrize("count", [1, 2, 50])
def test_a_client_resumes_from_the_last_message_that_came(count: int) -> None:
    assert decode_client(client_that_heard(count).resume()) == Resume(session=READY.session, seq=count)


def test_a_client_without_a_session_or_after_its_end_has_nothing_to_resume() -> None:
    fresh, started, over = ClientProtocol(), ClientProtocol(), client_that_heard(1)
    started.start(Start())
    over.receive(encode(FATAL))
    for client in (fresh, started, over):
        with pytest.raises(UsageError, match="no session to resume"):
            client.resume()


@pytest.mark.parametrize("stopping", [False, True])
@pytest.mark.parametrize("message", SERVER_MESSAGES, ids=tag)
def test_before_resumed_a_client_takes_only_what_belongs_to_the_connection(
    message: ServerMessage, stopping: bool
) -> None:
    client = client_that_heard(1)
    for _ in range(3):
        client.audio(b"ab")
    if stopping:
        client.stop()
    state = client.state
    client.resume()
    if tag(message) in {"resumed", "pong", "error"}:
        assert client.receive(encode(message)) == message
        # What the server has not got is said again; and a connection that is refused is not the session.
        assert client.state == ("open" if isinstance(message, Resumed) else state)
    else:
        with pytest.raises(WireError) as caught:
            client.receive(numbered(message, 2))
        assert caught.value.code == "wrong_order"
        assert client.state == "closed"


@pytest.mark.parametrize(("seq", "taken"), [(0, True), (3, True), (1, False), (2, False), (4, False), (-1, False)])
def test_a_client_takes_every_message_once_and_misses_none(seq: int, taken: bool) -> None:
    client = client_that_heard(2)
    if taken:
        client.receive(numbered(Pong(id=7), seq))
        assert decode_client(client.resume()) == Resume(session=READY.session, seq=max(seq, 2))
    else:
        with pytest.raises(WireError) as caught:
            client.receive(numbered(Pong(id=7), seq))
        assert (caught.value.code, client.state) == ("misnumbered", "closed")


def test_what_is_ignored_because_nobody_knows_it_counts_all_the_same() -> None:
    client = client_that_heard(1)
    assert client.receive('{"type":"dance","seq":2}') is None
    assert client.receive('{"type":"dance"}') is None
    assert client.receive(numbered(Pong(id=1), 3)) == Pong(id=1, seq=3)
    assert decode_client(client.resume()) == Resume(session=READY.session, seq=3)


@pytest.mark.parametrize(("seq", "code"), [("1", "misnumbered"), ("3", "misnumbered"), ('"2"', "bad_message")])
def test_what_nobody_knows_is_numbered_as_anything_else(seq: str, code: str) -> None:
    client = client_that_heard(1)
    with pytest.raises(WireError) as caught:
        client.receive(f'{{"type":"dance","seq":{seq}}}')
    assert (caught.value.code, client.state) == (code, "closed")


RESUMED = Resumed(session=READY.session, number=0, flushes=0, stopping=False)


def test_a_connection_that_breaks_before_resumed_came_is_resumed_all_the_same() -> None:
    client = client_that_heard(1)
    assert client.resume() == client.resume()
    assert client.receive(encode(RESUMED)) == RESUMED
    with pytest.raises(WireError, match="nobody asked") as caught:
        client.receive(encode(RESUMED))
    assert caught.value.code == "wrong_order"


def test_a_connection_that_breaks_while_messages_are_repeated_is_resumed_from_there() -> None:
    server, client = server_that_said(9), client_that_heard(1)
    taken = []
    for count in (1, 2, 0, 4, 9):
        question = decode_client(client.resume())
        assert isinstance(question, Resume)
        for frame in server.resume(question.session, question.seq)[: count + 1]:
            message = client.receive(frame)
            taken += [message.seq] if message is not None and message.seq else []
    assert taken == list(range(2, 10))


def test_a_server_cannot_have_more_audio_than_was_sent() -> None:
    client = client_that_heard(1)
    client.audio(b"ab")
    client.resume()
    with pytest.raises(WireError, match="audio 2; 1 were sent") as caught:
        client.receive(encode(msgspec.structs.replace(RESUMED, number=2)))
    assert caught.value.code == "misnumbered"


def test_what_is_gone_ends_a_client() -> None:
    client = client_that_heard(1)
    client.resume()
    client.receive(encode(Error(code="gone", message="no such session", fatal=True)))
    assert client.state == "closed"
