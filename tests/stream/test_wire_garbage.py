"""Whatever comes in over the wire is a message or a WireError, never anything else."""

import json
from typing import Any, get_args

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from liveasr.errors import WireError
from liveasr.stream.messages import (
    ClientMessage,
    Error,
    ServerMessage,
    Start,
    decode_audio,
    decode_client,
    decode_seq,
    decode_server,
    encode,
    encode_audio,
)
from tests.wire import CLIENT_MESSAGES, SERVER_MESSAGES, client_messages, server_messages, tag

DEEP = 100_000
NAMES = sorted({name for message in (*CLIENT_MESSAGES, *SERVER_MESSAGES) for name in json.loads(encode(message))})


def assert_is_a_proper_error(error: WireError) -> None:
    assert (error.code, error.fatal) in {("bad_message", True), ("unknown_type", False)}
    assert str(error).isprintable(), "one line, and nothing that a terminal obeys"
    assert len(str(error)) <= 400, "it does not send back all that came in"
    encode(Error(code=error.code, message=str(error), fatal=error.fatal))


def survive(text: str) -> None:
    """Decode as both sides do; what is a message goes through once more unchanged."""
    sides = ((decode_client, get_args(ClientMessage)), (decode_server, (*get_args(ServerMessage), type(None))))
    for decode, kinds in sides:
        try:
            message: Any = decode(text)
        except WireError as error:
            assert_is_a_proper_error(error)
        else:
            assert isinstance(message, kinds)
            if message is not None:
                assert decode(encode(message)) == message
    try:
        assert isinstance(decode_seq(text), int)
    except WireError as error:
        assert_is_a_proper_error(error)


def refuse(text: str) -> None:
    """Decode as both sides do: neither takes it."""
    for decode in (decode_client, decode_server):
        with pytest.raises(WireError) as caught:
            decode(text)
        assert caught.value.code == "bad_message"
        assert_is_a_proper_error(caught.value)


@given(st.text(st.characters()))  # surrogates that stand alone included
@settings(max_examples=200)
def test_any_text(text: str) -> None:
    survive(text)


scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20))
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3)
)


@given(values)
@settings(max_examples=150)
def test_any_json(value: Any) -> None:
    survive(json.dumps(value))  # with NaN and Infinity, which are not JSON
    if not isinstance(value, dict):
        refuse(json.dumps(value))


@given(
    kind=st.sampled_from([tag(message) for message in (*CLIENT_MESSAGES, *SERVER_MESSAGES)]),
    fields=st.dictionaries(st.sampled_from(NAMES), values, max_size=6),
)
@settings(max_examples=300)
def test_any_values_in_the_fields_of_any_type(kind: str, fields: dict[str, Any]) -> None:
    survive(json.dumps({**fields, "type": kind}))


@given(
    fields=st.dictionaries(
        st.sampled_from(["encoding", "rate_hz", "channels", "end_silence_ms", "speech_threshold", "x"]), scalars
    ),
    outer=st.sampled_from(["audio", "vad", "limits", "models", "words"]),
    kind=st.sampled_from(["start", "ready", "transcript"]),
)
@settings(max_examples=100)
def test_any_values_in_the_inner_fields(fields: dict[str, Any], outer: str, kind: str) -> None:
    survive(json.dumps({"type": kind, outer: fields}))
    survive(json.dumps({"type": kind, outer: [fields]}))


@pytest.mark.parametrize("message", [*CLIENT_MESSAGES, *SERVER_MESSAGES], ids=tag)
def test_a_message_cut_off_anywhere_is_refused(message: ClientMessage | ServerMessage) -> None:
    text = encode(message)
    for end in range(len(text)):
        refuse(text[:end])


@given(
    message=client_messages | server_messages,
    edits=st.lists(
        st.tuples(
            st.floats(0, 1), st.integers(0, 4), st.sampled_from([*'{}[]",:\\0-1eEtfn \n\0', "\ud800", "é"]) | st.text()
        ),
        min_size=1,
        max_size=6,
    ),
)
@settings(max_examples=400)
def test_valid_messages_with_random_damage(
    message: ClientMessage | ServerMessage, edits: list[tuple[float, int, str]]
) -> None:
    text = encode(message)
    for place, removed, added in edits:
        at = int(place * len(text))
        text = text[:at] + added + text[at + removed :]
        survive(text)


@pytest.mark.parametrize(
    "text",
    [
        "[" * DEEP,
        '{"a":' * DEEP,
        '{"type":"ping","id":' + "[" * DEEP,
        '{"type":"ping","id":' + "[" * DEEP + "]" * DEEP + "}",
        '{"type":"pong","id":1,"more":' + '{"a":' * DEEP + "1" + "}" * DEEP + "}",
        '{"type":"start","vad":' * DEEP,
    ],
    ids=lambda text: text[:24],
)
def test_deep_nesting_is_refused(text: str) -> None:
    refuse(text)


@pytest.mark.parametrize("depth", [10, 100, 500, 900, 950, 990, 1000, 1100])
def test_nesting_of_any_depth_ends_in_the_same_way(depth: int) -> None:
    nested = "[" * depth + "]" * depth
    for kind in ("ping", "pong", "nobody"):
        survive(f'{{"type":"{kind}","id":1,"more":{nested}}}')


@pytest.mark.parametrize(
    "escape",
    [
        r"\ud800",
        r"\udc00",
        r"\udfff",
        r"\ud800\ud800",
        r"\udc00\ud800",
        r"\ud83dx",
        r"\ud83d\n",
        r"\ud83d\u0041",
        r"\u12",
    ],
)
def test_half_a_character_is_refused(escape: str) -> None:
    refuse(f'{{"type":"start","model":"{escape}"}}')
    refuse(f'{{"type":"{escape}"}}')
    refuse(f'{{"type":"ping","{escape}":1}}')


@pytest.mark.parametrize("text", ["\ud800", '{"type":"start","model":"\udcff"}', '{"type":"\udcff"}'])
def test_text_that_is_no_unicode_is_refused(text: str) -> None:
    refuse(text)


@pytest.mark.parametrize(
    "number", ["NaN", "Infinity", "-Infinity", "nan", "1e999", "-1e999", "0x10", "01", "+1", ".5", "1."]
)
def test_numbers_that_json_does_not_have_are_refused(number: str) -> None:
    for text in (
        f'{{"type":"start","vad":{{"speech_threshold":{number}}}}}',
        f'{{"type":"ping","id":{number}}}',
        f'{{"type":"lag","lag_ms":{number}}}',
    ):
        with pytest.raises(WireError):
            (decode_server if "lag" in text else decode_client)(text)
        survive(text)


@pytest.mark.parametrize("digits", [19, 20, 39, 309, 4300, 4301, 100_000])
def test_numbers_of_any_length_are_survived(digits: int) -> None:
    for sign in ("", "-"):
        survive(f'{{"type":"ping","id":{sign}{"9" * digits}}}')
        survive(f'{{"type":"lag","lag_ms":{sign}{"9" * digits}}}')
        survive(f'{{"type":"start","vad":{{"speech_threshold":{sign}0.{"9" * digits}}}}}')


@pytest.mark.parametrize(
    "text",
    [
        '{"type":"ping","type":"stop"}',
        '{"type":"stop","type":"ping"}',
        '{"type":"done","type":"lag","lag_ms":1}',
        '{"type":"lag","lag_ms":1,"type":"done"}',
    ],
)
def test_a_message_of_two_types_is_refused(text: str) -> None:
    with pytest.raises(WireError) as caught:
        (decode_server if "lag" in text else decode_client)(text)
    assert caught.value.code == "bad_message"


def test_of_a_field_given_twice_each_is_checked() -> None:
    assert decode_client('{"type":"start","itn":true,"itn":false}') == Start()
    survive('{"type":"ping","id":1,"id":2}')
    with pytest.raises(WireError, match="id"):
        decode_client('{"type":"ping","id":-1,"id":2}')


@pytest.mark.parametrize(
    "text", ["", " ", "\ufeff{}", "\ufeff" + '{"type":"stop"}', '{"type":"stop"}x', "{}{}", "//", "'a'"]
)
def test_what_is_nearly_json_is_refused(text: str) -> None:
    refuse(text)


@pytest.mark.parametrize("filler", ["a" * 1_000_000, "\n" * 1000, "\x1b[2J", "\u202e", "語" * 1000, "'\"`"])
def test_an_error_quotes_what_came_in_only_as_far_as_a_person_needs_it(filler: str) -> None:
    quoted = json.dumps(filler)
    for text in (
        f'{{"type":"ping",{quoted}:1}}',
        f'{{"type":"start","language":{quoted}}}',
        f'{{"type":{quoted}}}',
        f"{{{quoted}:1}}",
    ):
        survive(text)


@given(st.binary(max_size=40))
@example(b"")
@example(b"abc")
@example(b"abcd")
def test_any_binary_frame(frame: bytes) -> None:
    if len(frame) < 4:
        with pytest.raises(WireError, match=f"has {len(frame)}") as caught:
            decode_audio(frame)
        assert_is_a_proper_error(caught.value)
    else:
        assert encode_audio(decode_audio(frame)) == frame
