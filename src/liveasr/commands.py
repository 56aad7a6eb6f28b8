"""What the commands of the command line do, from their options to their exit codes."""

import contextlib
import json
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import numpy as np

from liveasr import store
from liveasr.clients import batch, targets
from liveasr.clients import bench as measuring
from liveasr.clients import bench_live as live_measuring
from liveasr.clients import bench_load as load_measuring
from liveasr.clients.dial import TOKEN_VARIABLE
from liveasr.clients.file import segments
from liveasr.clients.file import transcribe as transcribe_samples
from liveasr.clients.load_clients import Clients, LoadFigures, Recording
from liveasr.clients.playback import paced
from liveasr.clients.plot import Envelope, Span, draw
from liveasr.clients.progress import ProgressBar
from liveasr.clients.render import timecode
from liveasr.clients.writers import Format
from liveasr.clients.ws import connect
from liveasr.engines._library import build
from liveasr.engines.base import MAX_SEGMENT_MS, AutoregressiveEngine, DecodeOptions
from liveasr.engines.kernels import kernels_name
from liveasr.engines.lanes import more_lanes
from liveasr.engines.pack import pack as write_packed
from liveasr.errors import AudioError, LiveasrError, ModelNotFoundError, UsageError
from liveasr.options import (
    NO_PARTIALS,
    check_output,
    decode_options,
    notice_webrtc,
    open_model,
    open_partials,
    partials_for,
    vad_config,
)
from liveasr.stream import capture
from liveasr.stream.detect import DetectorKind, detector_maker, detectors
from liveasr.stream.live import run_loop
from liveasr.stream.live_recognizer import live_recognizer
from liveasr.stream.messages import Start
from liveasr.stream.recognize import Recognizer
from liveasr.types import SAMPLES_PER_MS, Float32Array, Language
from liveasr.vad.config import VadConfig

_log = logging.getLogger("liveasr")


def transcribe(
    paths: Sequence[Path],
    model: str | None,
    language: Language,
    itn: bool,
    hotwords: Sequence[str],
    formats: Sequence[Format],
    output: str | None,
    force: bool,
    words: bool,
    threads: int | None,
    cmvn: Path | None,
    vad: DetectorKind,
    **vad_settings: Any,
) -> int:
    """`liveasr transcribe`; every conflict is found before the first recording is read."""
    decoding = decode_options(language, itn, hotwords)
    notice_webrtc(vad)
    if any(path == Path() for path in paths):
        raise UsageError("an empty PATH; for the recordings of this folder say ./")
    problems, recordings = targets.find_recordings(paths)
    for problem in problems:
        _log.error("%s", problem)
    jobs = targets.plan(recordings, list(dict.fromkeys(formats)), output, force=force)
    if not jobs:
        return 1
    engine, name = open_model(model, threads, cmvn, decoding)
    with contextlib.ExitStack() as lanes:
        lanes.callback(engine.close)
        others = more_lanes(engine)
        for other in others:
            lanes.callback(other.close)
        recognizers = [Recognizer(each, decoding) for each in (engine, *others)]
        config = vad_config(engine.max_segment_ms, **vad_settings)
        failures = batch.run(jobs, recognizers, detectors(vad, config), name, words=words)
    return 1 if problems or failures else 0


def vad(file: Path, format_: Literal["json", "txt"], plot: Path | None, vad: DetectorKind, **vad_settings: Any) -> int:
    """`liveasr vad`."""
    notice_webrtc(vad)
    scores: list[Float32Array] = [np.empty(0, np.float32)]
    envelope = Envelope()
    keep = plot is not None
    detector = detectors(
        vad, vad_config(MAX_SEGMENT_MS, **vad_settings), scores.append if keep else lambda _silence: None
    )()
    spans = []
    problem: AudioError | None = None
    with batch.open_audio(file) as audio, ProgressBar() as progress:
        blocks = _observed(audio.blocks(), envelope.accept) if keep else audio.blocks()
        try:
            for segment in segments(blocks, detector, progress.begin(file, audio.duration_ms)):
                start_ms, end_ms = segment.start_sample // SAMPLES_PER_MS, segment.end_sample // SAMPLES_PER_MS
                spans.append(Span(start_ms, end_ms, segment.forced_cut))
        except AudioError as error:  # what was found before the damage is still worth having
            problem = error
    if format_ == "json":
        sys.stdout.write(json.dumps([asdict(span) for span in spans]) + "\n")
    else:
        for span in spans:
            mark = "  cut" if span.forced_cut else ""
            sys.stdout.write(f"{timecode(span.start_ms)} --> {timecode(span.end_ms)}{mark}\n")
    if plot is not None:
        draw(plot, file.name, envelope.columns(), np.concatenate(scores), spans)
    if problem is not None:
        raise problem
    return 0


def _observed(blocks: Iterator[Float32Array], see: Callable[[Float32Array], None]) -> Iterator[Float32Array]:
    for block in blocks:
        see(block)
        yield block


def devices() -> int:
    """`liveasr devices`."""
    found = capture.input_devices()
    if not found:
        raise LiveasrError("this computer has no sound input")
    for device in found:
        mark = "*" if device.is_default else " "
        sys.stdout.write(f"{mark} {device.index:3}  {device.rate_hz:6} Hz  {device.channels:2} ch  {device.name}\n")
    return 0


def bench_live(
    files: Sequence[Path], model: str | None, partials: str | None, threads: int | None, as_json: bool
) -> int:
    """`liveasr bench live`."""
    engine, name = open_model(model, threads, None, DecodeOptions())
    partials_path = partials_for(engine, name, partials)
    hearing = open_partials(partials_path, threads)
    figures = live_measuring.LiveFigures()

    async def play() -> None:
        async with live_recognizer(engine, detector_maker("fsmn"), hearing) as recognizer:
            for file in files:
                with batch.open_audio(file) as audio:
                    stream = recognizer.open(DecodeOptions(), VadConfig(max_segment_ms=engine.max_segment_ms))
                    await live_measuring.measure(stream, paced(audio.blocks(), realtime=True), figures)

    begun_s, begun_cpu_s = time.monotonic(), time.process_time()
    run_loop(play())
    cpu = (time.process_time() - begun_cpu_s) / (time.monotonic() - begun_s)
    partials_name = None if partials_path is None else store.name_of(partials_path)
    about = {
        "model": name,
        "partials": partials_name,
        "threads": engine.threads,
        "ggml": build(),
        "kernels": kernels_name(),
        **measuring.machine(),
    }
    summary = {**figures.summary(), "cpu_s_per_s_of_audio": round(cpu, 3)}
    if as_json:
        sys.stdout.write(json.dumps({**about, **summary}, indent=1) + "\n")
    else:
        sys.stdout.write("\n".join(live_measuring.table(summary)) + "\n")
        about["partials"] = partials_name or NO_PARTIALS
        sys.stdout.write("".join(f"{key}: {value}\n" for key, value in about.items()))
    return 0


def bench_load(
    files: Sequence[Path],
    server: str | None,
    token: str | None,
    model: str | None,
    threads: int | None,
    clients: int,
    find: bool,
    seconds: float,
    as_json: bool,
) -> int:
    """`liveasr bench load`."""
    if server is None and token is not None:
        raise UsageError("--token is shown to a server: add --server URL")
    if server is not None and threads is not None:
        raise UsageError("--threads cannot be set together with --server, which has its own engine")
    figures: list[LoadFigures] = []

    async def work(url: str, cpu_s: Callable[[], float | None]) -> None:
        secret = None if server is None else token or os.environ.get(TOKEN_VARIABLE)
        async with connect(url, Start(model=None if server is None else model), token=secret) as stream:
            name = stream.ready.model
        recordings = _spoken(files, name if server else model)

        async def holds(count: int) -> bool:
            group = Clients(url, secret, name, recordings, seconds, count, range(count))
            figures.append(await load_measuring.load(group, cpu_s))
            if find and not as_json:
                sys.stdout.write(f"{figures[-1]}\n")
                sys.stdout.flush()
            return figures[-1].holds

        if find:
            most = await load_measuring.find_most(holds, clients)
            figures.sort(key=lambda each: each.clients == most)  # to come last
        else:
            await holds(clients)

    if server is None:
        with load_measuring.own_server(model, threads) as (url, cpu_s):
            run_loop(work(url, cpu_s))
    else:
        run_loop(work(server, lambda: None))
    summary = {**figures[-1].summary(), **measuring.machine()}
    sys.stdout.write("\n".join([json.dumps(summary, indent=1)] if as_json else load_measuring.table(summary)) + "\n")
    return 1 if figures[-1].errors else 0


def _spoken(files: Sequence[Path], model: str | None) -> list[Recording]:
    """Recordings, and what a model hears in them, if it is installed here."""
    recordings = []
    try:
        if model is not None:
            store.find(model)  # a server's model is not worth being fetched for this
        engine, _ = open_model(model, None, None, DecodeOptions())
    except ModelNotFoundError as error:
        _log.warning("%s; what the server hears is not compared", error)
        engine = None
    with contextlib.nullcontext() if engine is None else contextlib.closing(engine):
        for file in files:
            with batch.open_audio(file) as audio:
                samples = np.concatenate(list(audio.blocks()))
            expected = None
            if engine is not None:
                recognizer = Recognizer(engine, DecodeOptions())
                detector = detectors("fsmn", VadConfig(max_segment_ms=engine.max_segment_ms))()
                expected = list(transcribe_samples([samples], recognizer, detector))
            recordings.append(Recording(samples, expected))
    return recordings


def bench_files(files: Sequence[Path], model: str | None, threads: int | None, runs: int, as_json: bool) -> int:
    """`liveasr bench`."""
    engine, name = open_model(model, threads, None, DecodeOptions())
    measurements = []
    try:
        new_detector = detectors("fsmn", VadConfig(max_segment_ms=engine.max_segment_ms))
        if not as_json:
            sys.stdout.write("real-time factors: seconds of work for a second of audio, 1 being as fast as speech\n")
        for file in files:
            measurements.append(measuring.measure(file, Recognizer(engine, DecodeOptions()), new_detector, runs))
            if not as_json:
                lines = measuring.table(measurements)
                shown = lines if len(measurements) == 1 else lines[-1:]
                sys.stdout.write("\n".join([*shown, *measuring.writing_line(measurements[-1])]) + "\n")
        # The language model of an engine that writes has a process of its own.
        helpers_mb = measuring.helpers_peak_memory_mb() if isinstance(engine, AutoregressiveEngine) else None
    finally:
        engine.close()
    about = {
        "model": name,
        "threads": engine.threads,
        "ggml": build(),
        "kernels": kernels_name(),
        **measuring.machine(),
    }
    peak_mb = round(measuring.peak_memory_mb(), 1)
    if helpers_mb is not None:
        about["language_model_peak_mb"] = round(helpers_mb, 1)
    if as_json:
        rows = [{**asdict(item), "real_time_factors": item.real_time_factors} for item in measurements]
        sys.stdout.write(json.dumps({**about, "peak_memory_mb": peak_mb, "recordings": rows}, indent=1) + "\n")
    else:
        sys.stdout.write("".join(f"{key}: {value}\n" for key, value in about.items()))
        sys.stdout.write(f"peak memory: {peak_mb} MB\n")
    return 0


def pack(model: str, language_model: Path | None, output: Path, force: bool) -> int:
    """`liveasr models pack`."""
    check_output(output, force=force)
    write_packed(store.find(model), language_model, output)
    sys.stdout.write(f"{output}: {output.stat().st_size / 1e6:.1f} MB\n")
    return 0
