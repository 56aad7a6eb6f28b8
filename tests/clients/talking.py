"""What tests of the client over the wire share: how a stream is used, and what is heard."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

import pytest

from liveasr.clients.live import Stream
from liveasr.clients.ws import Output, connect
from liveasr.errors import LiveasrError
from liveasr.stream.messages import AudioFormat, Start
from liveasr.types import Float32Array, LiveTranscript, Transcript
from tests.clients.scripted import Script, scripted
from tests.sounds import silence

SPOKEN = ["three one four", "one five nine two", "six five"]
"""In digits-clean.wav."""
EXACT = Start(audio=AudioFormat(encoding="f32le"))
"""A session whose samples are not rounded on their way."""
_LIMIT_S = 60


def run(work: Callable[[], Awaitable[Any]]) -> None:
    """Run it, within a bound; nothing that it began may outlast it."""

    async def bounded() -> None:
        async with asyncio.timeout(_LIMIT_S):
            await work()
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    threads = threading.active_count()
    asyncio.run(bounded())
    assert threading.active_count() <= threads


async def heard(stream: Stream, outputs: list[Output] | None = None) -> list[Output]:
    """All outputs; what comes before an error stands in the list that is given."""
    outputs = [] if outputs is None else outputs
    async for output in stream.outputs():
        outputs.append(output)
    return outputs


def finals(outputs: Sequence[Output]) -> list[Transcript]:
    return [output.final for output in outputs if isinstance(output, LiveTranscript) and output.final]


async def say(stream: Stream, blocks: Iterator[Float32Array]) -> list[Output]:
    """What is heard of a stream of nothing else."""
    for block in blocks:
        await stream.feed(block)
    await stream.finish()
    return await heard(stream)


async def fails(script: Script, words: str, told: int = 0, **settings: Any) -> LiveasrError:
    """The error of a session whose outputs end with it, after so many of them."""
    async with scripted(script) as url, connect(url, **settings) as stream:
        await stream.feed(silence(0.2))
        outputs = stream.outputs()
        for _ in range(told):
            await anext(outputs)
        with pytest.raises(LiveasrError, match=words) as caught:
            await anext(outputs)
        assert str(caught.value).startswith(f"{url}: ")
        await stream.feed(silence(0.2))  # taken no more, and no error either, as LiveStream has it
        await stream.flush()
        await stream.finish()
        return caught.value
