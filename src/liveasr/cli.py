"""The command `liveasr`. Every command imports what it needs when it runs, so that `--help` is quick."""

import logging
import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import click

from liveasr.errors import LiveasrError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from liveasr.clients.writers import Writer
    from liveasr.engines.base import Engine
    from liveasr.stream.detect import Detector
    from liveasr.types import Language
    from liveasr.vad.config import VadConfig

_log = logging.getLogger("liveasr")
_EXIT_FAILED = 1
_EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells count
_LANGUAGES = ("auto", "zh", "en", "yue", "ja", "ko")

_end_silence = click.option(
    "--end-silence-ms",
    type=click.IntRange(min=150),
    default=800,
    show_default=True,
    help="A pause this long ends a segment.",
)
_max_segment = click.option(
    "--max-segment-ms",
    type=click.IntRange(min=1000),
    default=20_000,
    show_default=True,
    help="Longer segments are cut.",
)


def main() -> None:
    """Run the command line; errors are one line on stderr and a non-zero exit code, never a traceback."""
    # numpy's matrices are small here; threads for them only fight with ggml's for the cores.
    for variable in ("OPENBLAS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"):
        os.environ.setdefault(variable, "1")
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("liveasr: %(message)s"))
    _log.addHandler(handler)
    try:
        sys.exit(_commands.main(standalone_mode=False))
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except LiveasrError as error:
        _log.error("%s", error)
        sys.exit(_EXIT_FAILED)
    except BrokenPipeError:  # the reader of our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(_EXIT_FAILED)
    except (KeyboardInterrupt, click.Abort):
        _log.error("interrupted")
        sys.exit(_EXIT_INTERRUPTED)


@click.group(name="liveasr", context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="liveasr", message="%(prog)s %(version)s")
def _commands() -> None:
    """Speech to text on this computer, offline, with the FunASR models."""


@_commands.command()
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--model", metavar="NAME|FILE.gguf", help="Speech model; by default the best one installed. 'digits' is built in."
)
@click.option(
    "--vad", type=click.Choice(["fsmn", "none"]), default="fsmn", show_default=True, help="Voice activity detector."
)
@click.option("--language", type=click.Choice(_LANGUAGES), default="auto", show_default=True, help="Spoken language.")
@click.option("--itn", is_flag=True, help="Write numbers as digits, with punctuation, where the model can.")
@click.option(
    "--format", "format_", type=click.Choice(["txt", "json"]), default="txt", show_default=True, help="Output format."
)
@click.option("--words", is_flag=True, help="In text, add a line with the times of every word (json always has them).")
@click.option(
    "--output", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False), help="Write here, not to stdout."
)
@click.option("--threads", type=click.IntRange(1, 64), help="For the model; by default one a core, at most four.")
@click.option(
    "--cmvn", metavar="FILE", type=click.Path(path_type=Path), help="am.mvn to use instead of the model's own."
)
@_end_silence
@_max_segment
def transcribe(
    paths: tuple[Path, ...],
    model: str | None,
    vad: str,
    language: str,
    itn: bool,
    format_: Literal["txt", "json"],
    words: bool,
    output: Path | None,
    threads: int | None,
    cmvn: Path | None,
    end_silence_ms: int,
    max_segment_ms: int,
) -> int:
    """Print what is said in recordings, segment by segment.

    Any format that FFmpeg or libsndfile reads, at any rate and with any number of channels.

    \b
    Examples:
      liveasr transcribe talk.mp3
      liveasr transcribe --language zh --itn --format json --output talk.json talk.mp4
      liveasr transcribe --model digits --words recording.wav
    """  # noqa: D301 - \b is click's mark for a block to leave as it is
    from liveasr.engines.base import DecodeOptions
    from liveasr.vad.config import VadConfig

    options = DecodeOptions(cast("Language", language), itn)
    config = VadConfig(end_silence_ms, max_segment_ms)
    failed = False
    engine, name = _open_engine(model, threads, cmvn)
    try:
        with _writer(output, format_, name, words=words, headings=len(paths) > 1) as writer, _Progress() as progress:
            for path in paths:
                failed |= not _transcribe_one(path, engine, _detector(vad, config), options, writer, progress)
    finally:
        engine.close()
    return _EXIT_FAILED if failed else 0


@_commands.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--format", "format_", type=click.Choice(["json", "txt"]), default="json", show_default=True, help="Output format."
)
@_end_silence
@_max_segment
def vad(file: Path, format_: Literal["json", "txt"], end_silence_ms: int, max_segment_ms: int) -> int:
    """Print where in a recording there is speech.

    JSON is a list of {"start_ms", "end_ms", "forced_cut"}.
    """
    import json

    from liveasr.clients.file import segments
    from liveasr.clients.render import timecode
    from liveasr.stream.decode import AudioFile
    from liveasr.types import SAMPLES_PER_MS
    from liveasr.vad.config import VadConfig

    detector = _detector("fsmn", VadConfig(end_silence_ms, max_segment_ms))
    found = []
    with AudioFile(file) as audio, _Progress() as progress:
        for segment in segments(audio, detector, progress.begin(file, audio.duration_ms)):
            start_ms, end_ms = segment.start_sample // SAMPLES_PER_MS, segment.end_sample // SAMPLES_PER_MS
            found.append({"start_ms": start_ms, "end_ms": end_ms, "forced_cut": segment.forced_cut})
    if format_ == "json":
        click.echo(json.dumps(found))
    else:
        for item in found:
            click.echo(
                f"{timecode(item['start_ms'])} --> {timecode(item['end_ms'])}{'  cut' if item['forced_cut'] else ''}"
            )
    return 0


@_commands.group()
def models() -> None:
    """Work with model files."""


@models.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--type", "weight_type", type=click.Choice(["f32", "f16", "q8_0"]), default="f16", show_default=True,
              help="How matrices are stored.")  # fmt: skip
@click.option("--output", metavar="FILE.gguf", type=click.Path(path_type=Path, dir_okay=False), required=True)
@click.option("--force", is_flag=True, help="Replace the output if it exists.")
def convert(folder: Path, weight_type: Literal["f32", "f16", "q8_0"], output: Path, force: bool) -> int:
    """Convert a released checkpoint to a GGUF file.

    DIR holds model.pt, config.yaml, am.mvn and, for SenseVoice, *.bpe.model. Nothing in model.pt is executed, and
    PyTorch is not needed.
    """
    from liveasr.engines.convert import convert as write_gguf

    if output.exists() and not force:
        raise LiveasrError(f"{output}: exists already; use --force to replace it")
    tensors = write_gguf(folder, output, weight_type)
    click.echo(f"{output}: {tensors} tensors, {output.stat().st_size / 1e6:.1f} MB")
    return 0


def _open_engine(model: str | None, threads: int | None, cmvn: Path | None) -> "tuple[Engine, str]":
    """The engine, and the name of its model."""
    from liveasr import store
    from liveasr.engines.registry import ARCHITECTURES, open_engine

    path = store.find(model) if model else store.best_installed(ARCHITECTURES)
    if path == store.built_in(store.DEMONSTRATION_MODEL):
        _log.warning(
            "'digits' is a demonstration: it knows ten words, zero to nine, in English. A full model: %s",
            store.download_command(),
        )
    return open_engine(path, threads, cmvn), path.stem


def _detector(kind: str, config: "VadConfig") -> "Detector":
    from liveasr import store
    from liveasr.gguf_file import GgufFile
    from liveasr.stream.detect import FsmnDetector, WindowDetector
    from liveasr.vad import weights

    if kind == "none":
        return WindowDetector(config)
    with GgufFile(store.built_in(store.VAD_MODEL)) as file:
        return FsmnDetector(weights.load(file), config)


def _transcribe_one(
    path: Path, engine: "Engine", detector: "Detector", options: Any, writer: "Writer", progress: "_Progress"
) -> bool:
    """Transcribe one recording; a failure is reported and leaves the others to be done. Tells whether it went well."""
    from liveasr.clients.file import transcribe as transcripts
    from liveasr.stream.decode import AudioFile

    heard_ms = 0
    problem: str | None = None
    writer.begin(path)
    try:
        with AudioFile(path) as audio:
            advance = progress.begin(path, audio.duration_ms)

            def heard(ms: int) -> None:
                nonlocal heard_ms
                heard_ms = ms
                advance(ms)

            for transcript in transcripts(audio, engine, detector, options, heard):
                writer.segment(transcript)
    except LiveasrError as error:
        problem = str(error)
        _log.error("%s", error)
    writer.end(heard_ms, problem)
    return problem is None


@contextmanager
def _writer(output: Path | None, format_: Literal["txt", "json"], model: str, **text: bool) -> "Iterator[Writer]":
    """The writer for a format, over a file or stdout; every piece is flushed, so that nothing said is lost."""
    from liveasr.clients.writers import JsonWriter, TextWriter

    try:
        stream = output.open("w", encoding="utf-8") if output else None
    except OSError as error:
        raise LiveasrError(f"{output}: cannot be written: {error.strerror}") from error

    def emit(piece: str) -> None:
        target = stream or sys.stdout
        target.write(piece)
        target.flush()

    writer = (
        JsonWriter(emit, model)
        if format_ == "json"
        else TextWriter(emit, words=text["words"], headings=text["headings"])
    )
    try:
        yield writer
    finally:
        writer.close()
        if stream:
            stream.close()


class _Progress:
    """A bar on stderr while a recording is read, on a terminal only."""

    def __enter__(self) -> "_Progress":
        self._bar: Any = None
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.fields[position]}"),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                console=Console(stderr=True),
                transient=True,
                redirect_stdout=sys.stdout.isatty(),  # only where both share the screen
            )
            self._bar.start()
        return self

    def begin(self, path: Path, duration_ms: int | None) -> Any:
        """Show a new recording; returns the function that takes the milliseconds heard so far."""
        from liveasr.clients.render import timecode

        if self._bar is None:
            return lambda _ms: None
        for task in self._bar.task_ids:
            self._bar.remove_task(task)
        task = self._bar.add_task(path.name, total=duration_ms, position="")
        total = f" / {timecode(duration_ms)[:-4]}" if duration_ms else ""
        return lambda ms: self._bar.update(task, completed=ms, position=f"{timecode(ms)[:-4]}{total}")

    def __exit__(self, *_error: object) -> None:
        if self._bar is not None:
            self._bar.stop()
