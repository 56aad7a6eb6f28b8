"""What `liveasr live` and `liveasr stream` do, from their options to their exit codes."""

import contextlib
import os
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeAlias

from liveasr import options
from liveasr.clients import live as captions
from liveasr.clients.dial import TOKEN_VARIABLE
from liveasr.clients.keep import Keep
from liveasr.clients.playback import Recording
from liveasr.clients.ws import RECONNECT_S, connect
from liveasr.engines.base import MAX_SEGMENT_MS, DecodeOptions, Engine
from liveasr.errors import UsageError
from liveasr.stream import capture
from liveasr.stream.detect import DetectorKind, detector_maker
from liveasr.stream.live import run_loop
from liveasr.stream.live_recognizer import live_recognizer
from liveasr.stream.messages import AudioFormat, Start, VadSettings
from liveasr.types import Float32Array, Language
from liveasr.vad.config import VadConfig

_Opened: TypeAlias = AbstractAsyncContextManager[tuple[captions.Stream, str]]
"""A stream, and the name of its model."""
_Sound: TypeAlias = tuple[AsyncIterator[Float32Array], capture.Microphone | None]


def live(
    device: str | None,
    model: str | None,
    language: Language,
    itn: bool,
    hotwords: Sequence[str],
    save: Sequence[Path],
    force: bool,
    file: Path | None,
    realtime: bool,
    server: str | None,
    token: str | None,
    reconnect_s: float | None,
    partials: str | None,
    threads: int | None,
    cmvn: Path | None,
    vad: DetectorKind | None,
    **vad_settings: Any,
) -> int:
    """`liveasr live`."""
    if realtime and file is None:
        raise UsageError("--realtime plays a recording: add --file FILE")
    decoding = options.decode_options(language, itn, hotwords)
    if server is None:
        if token is not None:
            raise UsageError("--token is shown to a server: add --server URL")
        if reconnect_s is not None:
            raise UsageError("--reconnect-s is about a server: add --server URL")
        options.notice_webrtc(vad or "fsmn")
    else:
        for option, value in (("--partials", partials), ("--threads", threads), ("--cmvn", cmvn), ("--vad", vad)):
            if value is not None:
                raise UsageError(f"{option} cannot be set together with --server, which has its own engine")
    found = None if file else capture.find_device(device)
    with Recording(file) if file else contextlib.nullcontext() as recording:
        if server is None:
            engine, name = options.open_model(model, threads, cmvn, decoding)
            hearing = options.open_partials(options.partials_for(engine, name, partials), threads)
            config = options.vad_config(engine.max_segment_ms, **vad_settings)
            opened = _own(engine, hearing, name, decoding, vad or "fsmn", config)
        else:
            opened = _remote(server, model, decoding, token, reconnect_s, vad_settings)
        _caption(opened, recording, file, found, save, realtime=realtime, force=force)
    return 0


def stream(
    file: Path,
    server: str,
    realtime: bool,
    model: str | None,
    language: Language,
    itn: bool,
    hotwords: Sequence[str],
    token: str | None,
    reconnect_s: float | None,
    save: Sequence[Path],
    force: bool,
    **vad_settings: Any,
) -> int:
    """`liveasr stream`."""
    decoding = options.decode_options(language, itn, hotwords)
    with Recording(file) as recording:
        opened = _remote(server, model, decoding, token, reconnect_s, vad_settings)
        _caption(opened, recording, file, None, save, realtime=realtime, force=force)
    return 0


def _caption(
    opened: _Opened,
    recording: Recording | None,
    file: Path | None,
    device: capture.Device | None,
    save: Sequence[Path],
    *,
    realtime: bool,
    force: bool,
) -> None:
    """Caption a recording, or else the microphone."""

    @contextlib.contextmanager
    def sound() -> Iterator[_Sound]:
        if recording is not None:
            yield recording.blocks(realtime=realtime), None
        elif device is not None:
            with capture.Microphone(device) as microphone:
                yield microphone.blocks(), microphone

    async def work() -> None:
        async with opened as (stream, name):
            with sound() as (source, microphone):
                keep = Keep(save, file, name, force=force)
                await captions.run(stream, source, microphone, captions.view_for_stdout(), keep)

    run_loop(work())


@contextlib.asynccontextmanager
async def _own(
    engine: Engine,
    partials: Engine | None,
    name: str,
    decoding: DecodeOptions,
    vad: DetectorKind,
    config: VadConfig,
) -> AsyncIterator[tuple[captions.Stream, str]]:
    """A stream in this process."""
    async with live_recognizer(engine, detector_maker(vad), partials) as recognizer:
        yield recognizer.open(decoding, config), name


@contextlib.asynccontextmanager
async def _remote(
    server: str,
    model: str | None,
    decoding: DecodeOptions,
    token: str | None,
    reconnect_s: float | None,
    vad_settings: dict[str, Any],
) -> AsyncIterator[tuple[captions.Stream, str]]:
    """A stream on a server."""
    config = options.vad_config(MAX_SEGMENT_MS, **vad_settings)
    max_segment_ms = vad_settings["max_segment_ms"]  # which the server's model knows better than the default here
    start = Start(
        audio=AudioFormat(encoding="f32le"),  # so that the finals are exactly those of `liveasr transcribe`
        model=model,
        language=decoding.language,
        itn=decoding.itn,
        hotwords=decoding.hotwords,
        vad=VadSettings(**{**asdict(config), "max_segment_ms": max_segment_ms}),
    )
    token = token or os.environ.get(TOKEN_VARIABLE)
    patience_s = RECONNECT_S if reconnect_s is None else reconnect_s
    async with connect(server, start, token=token, reconnect_s=patience_s) as stream:
        chosen = stream.ready.model
        if any(offer.demonstration and offer.name == chosen for offer in stream.ready.models):
            others = [offer.name for offer in stream.ready.models if not offer.demonstration]
            more = f"The server has others: {', '.join(others)} (--model)" if others else "The server has no other."
            options.notice_demonstration(chosen, more)
        yield stream, chosen
