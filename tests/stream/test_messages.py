"""The codec: what is well formed goes through unchanged, and each limit holds to the last value."""

import json
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from liveasr.engines.base import MAX_SEGMENT_MS
from liveasr.errors import UsageError, WireError
from liveasr.stream import messages
from liveasr.stream.messages import (
    CLOSE_CODES,
    LAST_NUMBER,
    Audio,
    ClientMessage,
    ErrorCode,
    Ping,
    Ready,
    Resume,
    ServerMessage,
    Start,
    Transcript,
    VadSettings,
    decode_audio,
    decode_client,
    decode_server,
    encode,
    encode_audio,
)
from liveasr.vad.config import VadConfig
from tests.wire import CLIENT_MESSAGES, SERVER_MESSAGES, client_messages, server_messages, tag, vad_settings


def refusal(text: str) -> WireError:
    with pytest.raises(WireError) as caught:
        decode_client(text)
    return caught.value


def start_with(path: str, value: Any) -> str:
    """A start whose only field, or whose only field of `audio` or `vad`, is this."""
    *outer, name = path.split(".")
    fields: dict[str, Any] = {name: value}
    return json.dumps({"type": "start", **({outer[0]: fields} if outer else fields)})


def value_at(message: Any, path: str) -> Any:
    for name in path.split("."):
        message = getattr(message, name)
    return message


# Round trips.


@given(client_messages)
@settings(max_examples=150)
def test_what_a_client_encodes_a_server_decodes(message: ClientMessage) -> None:
    assert decode_client(encode(message)) == message


@given(server_messages)
@settings(max_examples=300)
def test_what_a_server_encodes_a_client_decodes(message: ServerMessage) -> None:
    assert decode_server(encode(message)) == message


@given(client_messages | server_messages)
@settings(max_examples=150)
def test_a_message_is_a_json_object_that_any_other_library_writes_as_well(
    message: ClientMessage | ServerMessage,
) -> None:
    decode: Any = decode_client if isinstance(message, get_args(ClientMessage)) else decode_server
    found = json.loads(encode(message))
    assert found["type"] == tag(message)
    for ascii_only in (True, False):
        assert decode(json.dumps(found, ensure_ascii=ascii_only, indent=1)) == message


@given(number=st.integers(0, LAST_NUMBER), payload=st.binary(max_size=100))
def test_audio_goes_through_unchanged(number: int, payload: bytes) -> None:
    assert decode_audio(encode_audio(Audio(number, payload))) == Audio(number, payload)


def test_the_number_of_audio_is_little_endian() -> None:
    assert encode_audio(Audio(0x01020304, b"ab")) == b"\x04\x03\x02\x01ab"


def test_the_tables_of_this_test_have_every_type() -> None:
    assert {type(message) for message in CLIENT_MESSAGES} == set(get_args(ClientMessage))
    assert {type(message) for message in SERVER_MESSAGES} == set(get_args(ServerMessage))
    assert set(messages._CLIENT_TYPES) == set(get_args(ClientMessage))
    assert set(messages._SERVER_TYPES) == set(get_args(ServerMessage))


# Limits.

EDGES: list[tuple[str, list[Any], list[Any]]] = [
    ("version", [1], [0, 2, -1, "1", 1.0, True, None]),
    ("model", [None, "", "m" * 200, "語" * 200, "😀" * 200], ["m" * 201, "😀" * 201, 1, ["digits"]]),
    ("language", ["auto", "zh", "en", "yue", "ja", "ko"], ["", "EN", "de", "en ", None, 0]),
    ("itn", [True, False], [0, 1, "true", None]),
    ("partials", [True, False], [0, 1, "true", None]),
    (
        "hotwords",
        [[], ["x"], ["字" * 64], ["x"] * 100, ["x" * 50] * 20],
        [[""], [" "], ["x" * 65], ["x"] * 101, ["x" * 51] * 20, ["a\nb"], ["<|x|>"], None, "x", {}, [None], [1]],
    ),
    ("audio", [{}], [None, [], "s16le", 1]),
    ("audio.encoding", ["s16le", "f32le"], ["S16LE", "s16be", "pcm", "", None, 16]),
    ("audio.rate_hz", [8000, 16000, 24000, 44100, 48000], [0, -16000, 7999, 8001, 11025, 96000, 16000.0, "8000", None]),
    ("audio.channels", [1, 8], [0, 9, -1, 1.0, True, None]),
    ("vad", [{}], [None, [], 1]),
    ("vad.end_silence_ms", [None, 150, 10_000], [149, 10_001, 0, -150, 800.0, True]),
    ("vad.max_segment_ms", [None, 1000, 60_000], [999, 60_001, 0, 2000.0]),
    ("vad.speech_threshold", [None, -0.999999, 0, 0.6, 0.999999], [-1, 1, -1.0, 1.0, 1.5, 1e308, "0.5", True]),
    ("vad.min_speech_ms", [0, 10_000], [-1, 10_001, None, 0.0]),
    ("vad.pad_before_ms", [0, 5000], [-1, 5001, None, 0.0]),
    ("vad.pad_after_ms", [0, 5000], [-1, 5001, None, 0.0]),
]
"""(field of start, what it may just be, what it may not)."""


def test_every_field_of_start_stands_in_the_table_of_edges() -> None:
    fields = msgspec.to_builtins(Start())
    leaves = {f"{outer}.{name}" for outer in ("audio", "vad") for name in fields[outer]}
    assert {path for path, _, _ in EDGES} == (fields.keys() - {"type"}) | leaves


@pytest.mark.parametrize(("path", "good", "_bad"), EDGES, ids=[path for path, _, _ in EDGES])
def test_a_field_of_start_takes_its_last_values(path: str, good: list[Any], _bad: list[Any]) -> None:
    for value in good:
        if isinstance(value, dict):
            assert decode_client(start_with(path, value)) == Start()
        else:
            found = value_at(decode_client(start_with(path, value)), path)
            assert (list(found) if isinstance(found, tuple) else found) == value


@pytest.mark.parametrize(("path", "_good", "bad"), EDGES, ids=[path for path, _, _ in EDGES])
def test_a_field_of_start_refuses_the_values_behind_them(path: str, _good: list[Any], bad: list[Any]) -> None:
    for value in bad:
        error = refusal(start_with(path, value))
        assert (error.code, error.fatal) == ("bad_message", True), value
        assert path in str(error), "the message says which field it is"


@pytest.mark.parametrize("number", [0, 1, 2**53 - 1])
def test_the_id_of_a_ping_is_what_javascript_counts_exactly(number: int) -> None:
    assert decode_client(f'{{"type":"ping","id":{number}}}') == Ping(id=number)


@pytest.mark.parametrize("number", ["-1", str(2**53), "1" + "0" * 5000, "1.0", "1e2", "true", "null", '"1"', "NaN"])
def test_other_ids_are_refused(number: str) -> None:
    assert refusal(f'{{"type":"ping","id":{number}}}').code == "bad_message"


@pytest.mark.parametrize("seq", [0, 1, 2**53 - 1])
@pytest.mark.parametrize("session", ["", "s", "s" * 100, "😀" * 100])
def test_a_resume_takes_its_last_values(session: str, seq: int) -> None:
    assert decode_client(json.dumps({"type": "resume", "session": session, "seq": seq})) == Resume(
        session=session, seq=seq
    )


@pytest.mark.parametrize("seq", [-1, 2**53, 2**64, 1.0, "1", True, None])
def test_a_resume_refuses_other_numbers(seq: Any) -> None:
    error = refusal(json.dumps({"type": "resume", "session": "s", "seq": seq}))
    assert (error.code, error.fatal) == ("bad_message", True)


@pytest.mark.parametrize(
    "fields", [{"session": "s"}, {"seq": 1}, {"session": "s" * 101, "seq": 1}, {"session": 1, "seq": 1}]
)
def test_a_resume_without_its_key_or_its_number_is_refused(fields: dict[str, Any]) -> None:
    assert refusal(json.dumps({"type": "resume", **fields})).code == "bad_message"


@given(message=server_messages, seq=st.integers(0, 2**53 - 1))
@settings(max_examples=100)
def test_the_number_of_a_server_message_goes_through_unchanged(message: ServerMessage, seq: int) -> None:
    numbered = msgspec.structs.replace(message, seq=seq)
    assert decode_server(encode(numbered)) == numbered
    assert json.loads(encode(numbered))["seq"] == seq


def test_fields_left_out_have_their_defaults() -> None:
    assert decode_client('{"type":"start"}') == Start()
    assert decode_client('{"type":"ping"}') == Ping(id=0)


@given(vad_settings)
def test_whatever_a_server_grants_the_detector_takes(granted: VadSettings) -> None:
    config = granted.config(15_000)  # raises UsageError where it does not
    assert config.max_segment_ms == (granted.max_segment_ms or 15_000) <= granted.longest_segment_ms
    for name in set(VadSettings.__struct_fields__) - {"max_segment_ms"}:
        assert getattr(config, name) == getattr(granted, name)


def test_the_defaults_are_those_of_the_detector() -> None:
    assert VadSettings().config(MAX_SEGMENT_MS) == VadConfig()
    assert VadSettings().longest_segment_ms == MAX_SEGMENT_MS


def test_a_hot_word_that_is_none_is_named() -> None:
    error = refusal(encode(Start(hotwords=("good", "<|im_end|>"))))
    assert str(error).startswith("start: the hot word <|im_end|> holds <|")
    assert "$.hotwords" in str(error)


def test_a_server_that_does_not_tell_the_longest_segment_has_the_usual_one() -> None:
    fields = msgspec.to_builtins(SERVER_MESSAGES[0])
    del fields["models"][0]["max_segment_ms"]
    ready = decode_server(json.dumps(fields))
    assert isinstance(ready, Ready)
    assert ready.models[0].max_segment_ms == MAX_SEGMENT_MS


# What is not known.


@pytest.mark.parametrize("message", CLIENT_MESSAGES, ids=tag)
@given(name=st.text(max_size=20))
@settings(max_examples=20)
def test_a_field_that_does_not_exist_is_refused_from_a_client(message: ClientMessage, name: str) -> None:
    fields = json.loads(encode(message))
    error = refusal(json.dumps({**fields, f"{name}_": 1}))
    assert (error.code, error.fatal) == ("bad_message", True)
    for outer in ("audio", "vad"):
        if outer in fields:
            error = refusal(json.dumps({**fields, outer: {**fields[outer], f"{name}_": 1}}))
            assert (error.code, error.fatal) == ("bad_message", True)


def with_more(value: Any) -> Any:
    """The same with a field more in every object."""
    if isinstance(value, dict):
        return {"from_the_future": [{"a": None}], **{name: with_more(item) for name, item in value.items()}}
    return [with_more(item) for item in value] if isinstance(value, list) else value


@given(server_messages)
@settings(max_examples=100)
def test_fields_that_a_server_adds_are_ignored(message: ServerMessage) -> None:
    assert decode_server(json.dumps(with_more(json.loads(encode(message))))) == message


@given(name=st.text(max_size=60).filter(lambda name: name not in {tag(message) for message in CLIENT_MESSAGES}))
def test_a_type_that_nobody_knows_is_no_reason_to_close(name: str) -> None:
    error = refusal(json.dumps({"type": name, "id": 1}))
    assert (error.code, error.fatal) == ("unknown_type", False)


@given(name=st.text(max_size=60).filter(lambda name: name not in {tag(message) for message in SERVER_MESSAGES}))
def test_a_type_from_the_future_is_ignored_by_a_client(name: str) -> None:
    assert decode_server(json.dumps({"type": name, "id": 1})) is None


@pytest.mark.parametrize("message", SERVER_MESSAGES, ids=tag)
def test_a_server_may_leave_out_only_what_has_a_default(message: ServerMessage) -> None:
    fields = json.loads(encode(message))
    optional = {"seq", "version", "text", "words", "forced_cut", "language", "emotion", "event"}
    optional -= set() if isinstance(message, Transcript) else {"forced_cut"}
    for name in fields.keys() - {"type"}:
        text = json.dumps({key: value for key, value in fields.items() if key != name})
        if name in optional:
            assert decode_server(text) is not None
        else:
            with pytest.raises(WireError, match=f"missing required field `{name}`"):
                decode_server(text)


def test_every_fatal_error_has_a_close_code_of_its_own() -> None:
    assert CLOSE_CODES.keys() == set(get_args(ErrorCode)) - {"unknown_type"}
    assert len(set(CLOSE_CODES.values())) == len(CLOSE_CODES)


def test_text_that_is_not_unicode_is_the_callers_mistake() -> None:
    with pytest.raises(UsageError, match=r"not Unicode: .*\\udcff"):
        encode(Start(model="\udcff"))
