"""docs/protocol.md tells the truth: its examples decode and are complete, its tables are those of the code."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from liveasr.engines import hotwords
from liveasr.engines.base import MAX_SEGMENT_MS
from liveasr.errors import WireError
from liveasr.stream import pull_routes
from liveasr.stream.messages import (
    CLOSE_CODES,
    MAX_MESSAGE_BYTES,
    NORMAL_CLOSE,
    SUBPROTOCOL,
    TOKEN_SUBPROTOCOL,
    ErrorCode,
    Start,
    decode_client,
    decode_server,
    encode,
)
from liveasr.stream.pull_state import PullInfo, PullState
from tests.wire import CLIENT_MESSAGES, SERVER_MESSAGES, tag

PAGE = (Path(__file__).parents[1] / "docs" / "protocol.md").read_text(encoding="utf-8")
CLIENT_TYPES = {tag(message) for message in CLIENT_MESSAGES}
SERVER_TYPES = {tag(message) for message in SERVER_MESSAGES}


def examples() -> Iterator[dict[str, Any]]:
    """The objects of the blocks of JSON, which may hold several, and those within the text."""
    decoder = json.JSONDecoder()
    for block in re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL):
        rest = block.strip()
        while rest:
            found, end = decoder.raw_decode(rest)
            yield found
            rest = rest[end:].strip()
    for inline in re.findall(r'`(\{"type": .*?\})`', PAGE):
        yield json.loads(inline)


def table(heading: str) -> list[list[str]]:
    """The cells of the rows under a heading of columns."""
    lines = PAGE.splitlines()
    first = next(index for index, line in enumerate(lines) if line.startswith(heading)) + 2
    rows = []
    for line in lines[first:]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def flat(fields: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in fields.items():
        found |= flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return found


EXAMPLES = list(examples())
DEFAULTS = {name: value for name, value in flat(json.loads(encode(Start()))).items() if name != "type"}


def test_every_type_of_message_has_an_example() -> None:
    assert {example["type"] for example in EXAMPLES} == CLIENT_TYPES | SERVER_TYPES


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: str(example["type"]))
def test_an_example_decodes_and_shows_every_field(example: dict[str, Any]) -> None:
    decode: Any = decode_client if example["type"] in CLIENT_TYPES else decode_server
    message = decode(json.dumps(example))
    assert message is not None
    assert json.loads(encode(message)) == example


def test_the_example_of_start_is_the_default_but_for_its_model() -> None:
    (start,) = (example for example in EXAMPLES if example["type"] == "start")
    assert msgspec.structs.replace(decode_client(json.dumps(start)), model=None) == Start()


def documented_fields() -> Iterator[tuple[str, str, str]]:
    """(name, default, meaning) of each field of start."""
    for names, default, meaning in table("| field | default |"):
        for name in re.findall(r"`([a-z_.]+)`", names):
            yield name, default.strip("`"), meaning


def test_the_table_of_start_has_every_field_with_its_default() -> None:
    assert {name: json.loads(default) for name, default, _ in documented_fields()} == DEFAULTS


def takes(path: str, value: float) -> bool:
    *outer, name = path.split(".")
    fields: dict[str, Any] = {name: value}
    try:
        decode_client(json.dumps({"type": "start", **({outer[0]: fields} if outer else fields)}))
    except WireError:
        return False
    return True


@pytest.mark.parametrize(
    ("path", "low", "high"),
    [
        (name, *(int(number.replace(",", "")) for number in (match[1] or "0", match[2])))
        for name, _, meaning in documented_fields()
        if (match := re.search(r"(?:([\d,]+) to|up to) ([\d,]+\d|\d)", meaning))
    ],
)
def test_the_limits_that_the_table_of_start_tells_are_the_limits(path: str, low: int, high: int) -> None:
    assert [takes(path, value) for value in (low - 1, low, high, high + 1)] == [False, True, True, False]


def test_the_other_limits_of_start_are_those_of_the_code() -> None:
    meanings = {name: meaning for name, _, meaning in documented_fields()}
    rates = [rate for rate in range(1000, 200_000, 50) if takes("audio.rate_hz", rate)]
    assert [int(rate) for rate in re.findall(r"\d+", meanings["audio.rate_hz"])] == rates
    assert re.findall(r"`(\w+)`", meanings["language"]) == list(get_args(Start.__annotations__["language"]))
    assert "between -1 and 1" in meanings["vad.speech_threshold"]
    limits = [hotwords.MAX_WORDS, hotwords.MAX_WORD_CHARS, hotwords.MAX_CHARS]
    assert re.findall(r"[\d,]+\d", meanings["hotwords"]) == [f"{limit:,}" for limit in limits]
    assert f"{MAX_SEGMENT_MS:,} at most" in meanings["vad.max_segment_ms"]


def test_the_table_of_errors_has_every_code_with_what_it_closes_with() -> None:
    rows = {code.strip("`"): closes for code, closes, _ in table("| code | closes with |")}
    assert rows.keys() == set(get_args(ErrorCode))
    assert rows.pop("unknown_type") == "not fatal"
    assert {code: int(closes) for code, closes in rows.items()} == CLOSE_CODES


def test_what_is_told_of_models_that_are_fetched_is_that_of_the_code() -> None:
    (block,) = re.findall(r'```\n(\{"name": .*?)```', PAGE, re.DOTALL)
    example = json.loads(block)
    assert json.loads(msgspec.json.encode(msgspec.json.decode(block, type=PullInfo))) == example
    meanings = {field.strip("`"): meaning for field, meaning in table("| field | meaning |")}
    assert meanings.keys() == example.keys() - {"languages", "licence"}
    assert re.findall(r"`(\w+)`", meanings["state"]) == list(get_args(PullState))
    assert {code.strip("`"): int(status) for code, status, _ in table("| code | status |")} == pull_routes.STATUSES


def test_the_other_numbers_and_names_of_the_page_are_those_of_the_code() -> None:
    (ready,) = (example for example in EXAMPLES if example["type"] == "ready")
    assert ready["limits"]["message_bytes"] == MAX_MESSAGE_BYTES
    assert f"closes with {NORMAL_CLOSE}" in PAGE
    assert f'["{SUBPROTOCOL}", "{TOKEN_SUBPROTOCOL}" + token]' in PAGE
