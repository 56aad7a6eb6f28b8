"""The client over the wire with a real server: it hears what is heard in its own process."""

import asyncio
import contextlib
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx
import pytest
import soundfile
import soxr

from liveasr import store
from liveasr.clients.file import transcribe
from liveasr.clients.ws import Output, connect
from liveasr.engines.base import DecodeOptions
from liveasr.engines.registry import open_engine
from liveasr.errors import LiveasrError, UsageError, WireError
from liveasr.stream.decode import AudioFile
from liveasr.stream.detect import detectors
from liveasr.stream.live import Flushed, LiveStream
from liveasr.stream.messages import AudioFormat, Done, Encoding, Start
from liveasr.stream.recognize import Recognizer
from liveasr.stream.session import LiveConfig, Session
from liveasr.stream.worker import DecodePool
from liveasr.types import Float32Array, LiveTranscript, SpeechEnd, SpeechStart, Transcript
from liveasr.vad.config import VadConfig
from tests.chunking import pieces
from tests.clients.talking import SPOKEN, finals, heard, run, say
from tests.servers import ServerProcess
from tests.sounds import silence

TOKEN = "sesame"  # noqa: S105 - of a server that the tests start


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with ServerProcess() as process:
        yield process.url


def transcripts_of(path: Path) -> list[Transcript]:
    """What `liveasr transcribe` hears in a recording."""
    engine = open_engine(store.find("digits"))
    with AudioFile(path) as audio, contextlib.closing(engine):
        recognizer = Recognizer(engine, DecodeOptions())
        return list(transcribe(audio.blocks(), recognizer, detectors("fsmn", VadConfig())()))


@pytest.mark.parametrize("size", [37, 320, 1600, 50_000, 1_000_000])
def test_finals_over_the_wire_are_the_file_transcribers_in_pieces_of_any_size(
    size: int, server: str, data: Path, clean: Float32Array
) -> None:
    async def work() -> None:
        async with connect(server, Start(model="digits")) as stream:
            outputs = await say(stream, pieces(clean, size))
            assert finals(outputs) == transcripts_of(data / "digits-clean.wav")
            assert stream.heard_ms == 8628
            assert stream.summary == Done(reason="stop", number=87, heard_ms=8628, speech_ms=5940, segments=3)

    run(work)


@pytest.mark.parametrize("rate_hz", [8000, 44100])
def test_finals_over_the_wire_are_the_file_transcribers_at_any_rate(
    rate_hz: int, server: str, clean: Float32Array, tmp_path: Path
) -> None:
    path = tmp_path / "talk.wav"
    soundfile.write(path, soxr.resample(clean, 16_000, rate_hz), rate_hz)

    async def heard_as(encoding: Encoding) -> list[Transcript]:
        with AudioFile(path) as audio:
            async with connect(server, Start(audio=AudioFormat(encoding=encoding))) as stream:
                return finals(await say(stream, audio.blocks()))

    async def work() -> None:
        expected = transcripts_of(path)
        assert await heard_as("f32le") == expected
        # 16 bits round what was resampled, which moves a time by a few frames.
        assert [final.text for final in await heard_as("s16le")] == [final.text for final in expected]

    run(work)


def test_a_remote_stream_gives_what_a_live_stream_gives(server: str, clean: Float32Array) -> None:
    async def in_process() -> list[Output]:
        engine = open_engine(store.find("digits"))
        pool = DecodePool([engine])
        try:
            session = Session(detectors("fsmn", VadConfig())(), engine.front_end, LiveConfig())
            return await say(LiveStream(session, pool, DecodeOptions()), pieces(clean, 320))
        finally:
            await pool.close()

    def events(outputs: Sequence[Output]) -> list[tuple[object, ...]]:
        return [
            (type(output), output.sample, getattr(output, "forced_cut", None))
            for output in outputs
            if isinstance(output, SpeechStart | SpeechEnd)
        ]

    async def work() -> None:
        async with connect(server) as stream:
            remote = await say(stream, pieces(clean, 320))
        here = await in_process()
        assert finals(remote) == finals(here)
        assert events(remote) == events(here)

    run(work)


def test_text_comes_before_a_segment_ends_and_what_is_committed_grows(server: str, clean: Float32Array) -> None:
    async def work() -> None:
        async with connect(server) as stream:
            outputs = asyncio.create_task(heard(stream))
            for block in pieces(clean, 1600):
                await stream.feed(block)
                await asyncio.sleep(0.01)  # ten times the speed of speech, so that there is time for partials
            await stream.finish()
        live = [output for output in await outputs if isinstance(output, LiveTranscript)]
        assert sum(not transcript.is_final for transcript in live) >= 3
        for before, after in itertools.pairwise(live):
            if before.segment_id == after.segment_id:
                assert after.revision > before.revision
                assert after.committed.startswith(before.committed)

    run(work)


def test_a_flush_ends_the_open_segment_and_is_answered(server: str, clean: Float32Array) -> None:
    async def work() -> None:
        async with connect(server) as stream:
            await stream.feed(clean[: 2 * 16_000])  # in the middle of the pause that would end the segment
            await stream.flush()
            outputs: list[Output] = []
            async for output in stream.outputs():
                outputs.append(output)
                if isinstance(output, Flushed):
                    break
            assert [final.text for final in finals(outputs)] == SPOKEN[:1]
            await stream.feed(clean[2 * 16_000 :])
            await stream.finish()
            assert [final.text for final in finals(await heard(stream))] == SPOKEN[1:]

    run(work)


def test_a_stream_knows_its_session(server: str) -> None:
    async def work() -> None:
        async with connect(server) as stream, connect(server) as other:
            assert stream.ready.model == "digits"
            assert [(offer.name, offer.demonstration) for offer in stream.ready.models] == [("digits", True)]
            assert stream.ready.session != other.ready.session
            assert (stream.heard_ms, stream.lag_ms, stream.summary) == (0, 0, None)
            assert await say(other, pieces(silence(0.5), 320)) == []

    run(work)


def test_leaving_early_ends_the_session_and_the_outputs(server: str, clean: Float32Array) -> None:
    async def work() -> None:
        async with connect(server) as stream:
            outputs = asyncio.create_task(heard(stream))
            await stream.feed(clean[:40_000])
        assert finals(await outputs) == []
        async with httpx.AsyncClient() as client:
            while (await client.get(f"{server}/ready")).json()["sessions"]:  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.01)

    run(work)


def test_an_error_of_the_caller_leaves_nothing_open(server: str, clean: Float32Array) -> None:
    async def work() -> None:
        with pytest.raises(ZeroDivisionError):  # noqa: PT012 - the block is what is tested
            async with connect(server) as stream:
                await stream.feed(clean[:40_000])
                raise ZeroDivisionError

    run(work)


@pytest.mark.parametrize(
    ("start", "words"),
    [
        (Start(model="parrot"), r"^http://127\.0\.0\.1:\d+: no model named parrot; there is: digits$"),
        (Start(hotwords=("liveasr",)), "digits takes no hot words"),
    ],
)
def test_what_the_server_refuses_is_told_in_its_words(start: Start, words: str, server: str) -> None:
    async def work() -> None:
        with pytest.raises(WireError, match=words) as caught:
            async with connect(server, start):
                pass
        assert caught.value.code == "unsupported"

    run(work)


def test_a_token_opens_a_server_that_wants_one(clean: Float32Array) -> None:
    async def work(url: str) -> None:
        async with connect(url, token=TOKEN) as stream:
            assert [final.text for final in finals(await say(stream, pieces(clean, 1600)))] == SPOKEN
        with pytest.raises(LiveasrError, match="wants a token; give it with --token or LIVEASR_TOKEN"):
            async with connect(url):
                pass
        with pytest.raises(LiveasrError, match="does not take this token; check --token or LIVEASR_TOKEN"):
            async with connect(url, token=TOKEN[1:]):
                pass

    with ServerProcess(token=TOKEN) as process:
        run(lambda: work(process.url))


def test_a_finished_stream_takes_nothing(server: str) -> None:
    async def work() -> None:
        async with connect(server) as stream:
            await stream.finish()
            await stream.finish()
            with pytest.raises(UsageError, match="feed: the stream is finished"):
                await stream.feed(silence(0.01))
            with pytest.raises(UsageError, match="flush: the stream is finished"):
                await stream.flush()

    run(work)
