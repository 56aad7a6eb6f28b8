"""A client or a server before frames in any order at all: what is wrong is told, and nothing else ever comes out."""

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from liveasr.errors import UsageError, WireError
from liveasr.stream.messages import (
    Audio,
    Flush,
    Resume,
    ServerMessage,
    Start,
    Stop,
    Transcript,
    encode,
    encode_audio,
)
from liveasr.stream.protocol import ClientProtocol, ServerProtocol
from tests.wire import SERVER_MESSAGES, client_messages, server_messages

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
                case Start() | Resume():
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
            assert found.code in {"bad_message", "wrong_order", "misnumbered"}
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
        found = client.receive(frame)
        assert found is not None
        assert msgspec.structs.replace(found, seq=0) == message
    assert client.state == server.state
