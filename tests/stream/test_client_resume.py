"""The client's side of the conversation, over one connection after another."""

import pytest

from liveasr.errors import UsageError, WireError
from liveasr.stream.messages import Error, Limits, Ready, Resume, Resumed, ServerMessage, Start, encode
from liveasr.stream.protocol import ClientProtocol

READY = Ready(
    seq=1, session="s", model="m", limits=Limits(message_bytes=9, idle_s=9, resume_s=9, session_s=9), models=()
)


def broken(*, stopped: bool = False) -> ClientProtocol:
    """A client of a session that sent two frames, and whose connection broke."""
    client = ClientProtocol()
    client.start(Start())
    client.receive(encode(READY))
    client.audio(b"ab")
    client.audio(b"cd")
    if stopped:
        client.stop()
    assert client.resume() == encode(Resume(session="s", seq=1))
    return client


def resumed(number: int, *, stopping: bool = False) -> str:
    return encode(Resumed(session="s", number=number, flushes=0, stopping=stopping))


def test_audio_goes_on_with_what_the_server_has_not_got() -> None:
    client = broken()
    client.receive(resumed(1))
    assert client.audio(b"cd")[:4] == b"\x02\0\0\0"


def test_a_stop_that_got_lost_is_said_again() -> None:
    client = broken(stopped=True)
    client.receive(resumed(2))
    client.stop()
    client.resume()
    client.receive(resumed(2, stopping=True))
    with pytest.raises(UsageError, match="the conversation is stopping"):
        client.stop()


def test_a_server_has_got_no_more_than_was_sent() -> None:
    with pytest.raises(WireError, match="has audio 3; 2 were sent"):
        broken().receive(resumed(3))


def error(code: str) -> ServerMessage:
    return Error(code=code, message="no", fatal=True)


def test_a_connection_that_is_refused_leaves_the_session_to_the_next() -> None:
    client = broken()
    client.receive(encode(error("too_many_sessions")))
    assert client.resume() == encode(Resume(session="s", seq=1))
    client.receive(resumed(2))
    assert client.state == "open"


def test_a_session_that_is_gone_is_over() -> None:
    client = broken()
    client.receive(encode(error("gone")))
    with pytest.raises(UsageError, match="no session to resume"):
        client.resume()
