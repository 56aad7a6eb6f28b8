"""The command `liveasr`: what can be asked for, in words, and how it ends.

Each command imports its work when it runs, so that `--help` is quick. The groups of commands have modules of their own.
"""

import io
import logging
import os
import signal
import sys
from pathlib import Path
from typing import Any

import click

from liveasr.cli_bench import bench
from liveasr.cli_models import models
from liveasr.cli_options import (
    FILE,
    hotword_option,
    offline_option,
    partials_option,
    reconnect_option,
    save_option,
    threads_option,
    token_option,
    vad_options,
)
from liveasr.errors import LiveasrError
from liveasr.visible import visible

_log = logging.getLogger("liveasr")
_EXIT_FAILED = 1
_EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells count
_LANGUAGES = ("auto", "zh", "en", "yue", "ja", "ko")
_FORMATS = ("txt", "json", "srt", "vtt", "tsv")


def main() -> None:
    """Run the command line; errors are one line on stderr and a non-zero exit code, never a traceback."""
    _open_standard_streams()
    _be_ended_as_by_ctrl_c()
    # numpy's matrices are small here; threads for them only fight with ggml's for the cores.
    for variable in ("OPENBLAS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"):
        os.environ.setdefault(variable, "1")
    handler = logging.StreamHandler()
    handler.setFormatter(_OneLineFormatter("liveasr: %(message)s"))
    _log.addHandler(handler)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # file names need not be UTF-8, nor need the terminal
    try:
        code = _commands.main(standalone_mode=False)
        sys.stdout.flush()  # here, so that a full disk is told like any other fault
        sys.exit(code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except LiveasrError as error:
        _log.error("%s", error)
        sys.exit(_EXIT_FAILED)
    except MemoryError:
        _log.error("there is not enough memory for this")
        sys.exit(_EXIT_FAILED)
    except OSError as error:
        if not isinstance(error, BrokenPipeError):  # which means that the reader of our output has seen enough
            _log.error("%s", f"{error.filename}: {error.strerror}" if error.filename else error.strerror)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left has nowhere to go
        sys.exit(_EXIT_FAILED)
    except (KeyboardInterrupt, click.Abort):
        _log.error("interrupted")
        sys.exit(_EXIT_INTERRUPTED)


def _be_ended_as_by_ctrl_c() -> None:
    """What was transcribed is completed and kept, whoever ends the program."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
            signal.signal(number, signal.default_int_handler)


class _OneLineFormatter(logging.Formatter):
    """Shows names of files and texts of a stranger's checkpoint, whatever is in them."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the library's name
        """The line, without a traceback that may follow."""
        return visible(super().formatMessage(record))


def _open_standard_streams() -> None:
    """Open what our caller closed, or the next file to be opened would take its number and be written into."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number
    if sys.stdout is None:
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - stays open as long as the program
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115


@click.group(name="liveasr", context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="liveasr", message="%(prog)s %(version)s")
def _commands() -> None:
    """Speech to text on this computer, offline, with the FunASR models."""


_commands.add_command(bench)
_commands.add_command(models)


@_commands.command()
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=FILE)
@click.option("--model", metavar="NAME[:VARIANT]|FILE.gguf",
              help="Speech model; by default the best one installed. 'digits' is built in.")  # fmt: skip
@offline_option
@click.option("--language", type=click.Choice(_LANGUAGES), default="auto", show_default=True, help="Spoken language.")
@click.option("--itn", is_flag=True, help="Write numbers as digits, with punctuation, where the model can.")
@hotword_option
@click.option("--format", "-f", "formats", type=click.Choice(_FORMATS), multiple=True,
              help="Output format; may be given several times.  [default: as --output ends, else txt]")  # fmt: skip
@click.option("--output", "-o", metavar="FILE|FOLDER",
              help="Write there, not to stdout; several recordings or formats need a folder.")  # fmt: skip
@click.option("--force", is_flag=True, help="Replace files that exist.")
@click.option("--words", is_flag=True, help="In text, add a line with the times of every word (json always has them).")
@threads_option
@click.option("--cmvn", metavar="FILE", type=FILE, help="am.mvn to use instead of the model's.")
@click.option("--vad", type=click.Choice(["fsmn", "webrtc", "none"]), default="fsmn", show_default=True,
              help="Voice activity detector; none cuts windows of the longest segment.")  # fmt: skip
@vad_options()
def transcribe(**settings: Any) -> int:
    """Print what is said in recordings, segment by segment.

    PATH is a recording in any format that FFmpeg or libsndfile reads, at any rate and with any number of channels; a
    video, of which the sound is read; a folder, of which all recordings are; or - for stdin.

    \b
    Examples:
      liveasr transcribe talk.mp3
      liveasr transcribe --language zh --itn -f srt -o talk.srt talk.mp4
      liveasr transcribe -f txt -f json -f vtt -o transcripts/ recordings/
      ffmpeg -i rtsp://camera -f wav - | liveasr transcribe -
    """  # noqa: D301 - \b is click's mark for a block to leave as it is
    from liveasr.commands import transcribe as run

    return run(**settings)


@_commands.command()
@click.argument("file", type=FILE)
@click.option("--format", "-f", "format_", type=click.Choice(["json", "txt"]), default="json", show_default=True,
              help="Output format.")  # fmt: skip
@click.option("--plot", metavar="FILE.png", type=FILE,
              help="Also draw waveform, speech scores and segments.")  # fmt: skip
@click.option("--vad", type=click.Choice(["fsmn", "webrtc"]), default="fsmn", show_default=True,
              help="Voice activity detector.")  # fmt: skip
@vad_options("20000")
def vad(**settings: Any) -> int:
    """Print where in a recording there is speech.

    JSON is a list of {"start_ms", "end_ms", "forced_cut"}.
    """
    from liveasr.commands import vad as run

    return run(**settings)


@_commands.command()
@click.option("--device", metavar="NAME|NUMBER", help="Sound input, as `liveasr devices` lists them.")
@click.option("--model", metavar="NAME[:VARIANT]|FILE.gguf", help="Speech model; by default the best one installed.")
@offline_option
@click.option("--language", type=click.Choice(_LANGUAGES), default="auto", show_default=True, help="Spoken language.")
@click.option("--itn", is_flag=True, help="Write numbers as digits, with punctuation, where the model can.")
@hotword_option
@save_option
@click.option("--force", is_flag=True, help="Replace files that exist.")
@click.option("--file", type=FILE, help="Caption a recording instead, or - for stdin.")
@click.option("--realtime", is_flag=True, help="Play --file at the speed of speech.")
@click.option("--server", metavar="URL", help="Let a server find the words; --model is then a name on it.")
@token_option
@reconnect_option
@partials_option
@threads_option
@click.option("--cmvn", metavar="FILE", type=FILE, help="am.mvn to use instead of the model's.")
@click.option("--vad", type=click.Choice(["fsmn", "webrtc"]), help="Voice activity detector.  [default: fsmn]")
@vad_options()
def live(**settings: Any) -> int:
    """Caption what the microphone hears, as it is spoken.

    Dim text may still change; the rest stands while its segment lasts. Ctrl-C finishes the last words.

    \b
    Examples:
      liveasr live
      liveasr live --save talk.srt --save talk.wav
      liveasr live --file talk.mp3 --realtime
      liveasr live --server https://captions.example.org
    """  # noqa: D301 - \b is click's mark for a block to leave as it is
    from liveasr.captioning import live as run

    return run(**settings)


@_commands.command(short_help="Caption a recording by a server.")
@click.argument("file", type=FILE)
@click.option("--server", metavar="URL", default="http://127.0.0.1:8765", show_default=True,
              help="Where `liveasr serve` runs.")  # fmt: skip
@click.option("--realtime", is_flag=True, help="Send it at the speed of speech.")
@click.option("--model", metavar="NAME", help="One of the server's models.  [default: its first]")
@click.option("--language", type=click.Choice(_LANGUAGES), default="auto", show_default=True, help="Spoken language.")
@click.option("--itn", is_flag=True, help="Write numbers as digits, with punctuation, where the model can.")
@hotword_option
@token_option
@reconnect_option
@save_option
@click.option("--force", is_flag=True, help="Replace files that exist.")
@vad_options()
def stream(**settings: Any) -> int:
    """Caption a recording by a server, as it would be captioned if it were being spoken.

    FILE is a recording or a video in any format; or - for stdin, which may go on for as long as it likes.

    \b
    Examples:
      liveasr stream talk.mp3
      liveasr stream --server https://captions.example.org --realtime --save talk.srt talk.mp4
      ffmpeg -loglevel error -i rtsp://camera -f wav - | liveasr stream -
    """  # noqa: D301 - \b is click's mark for a block to leave as it is
    from liveasr.captioning import stream as run

    return run(**settings)


@_commands.command(short_help="Serve captions: a page, and a WebSocket for programs.")
@click.option("--model", "models", metavar="NAME[:VARIANT]|FILE.gguf", multiple=True,
              help="A model to offer; may be repeated, the first is the default.  [default: the best one]")  # fmt: skip
@offline_option
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8765, show_default=True, help="0 takes any free one.")
@click.option("--token", envvar="LIVEASR_TOKEN", metavar="SECRET",
              help="What clients must know; better given in LIVEASR_TOKEN, where `ps` does not show it.")  # fmt: skip
@click.option("--no-auth", is_flag=True, help="Serve other computers without a token.")
@click.option("--allow-origin", "origins", metavar="URL", multiple=True,
              help="Pages of this origin may connect too, as in https://app.example.org; may be repeated.")  # fmt: skip
@click.option("--tls-cert", metavar="FILE", type=FILE, help="Certificate chain, to serve https and wss.")
@click.option("--tls-key", metavar="FILE", type=FILE, help="Its key.")
@click.option("--allow-pull", is_flag=True,
              help="Clients, as the page, may have models of the registry fetched, and use them at once.")  # fmt: skip
@partials_option
@threads_option
@click.option("--vad", type=click.Choice(["fsmn", "webrtc"]), default="fsmn", show_default=True,
              help="Voice activity detector.")  # fmt: skip
@click.option("--max-sessions", type=click.IntRange(1), default=64, show_default=True, help="At a time.")
@click.option("--idle-s", metavar="SECONDS", type=click.FloatRange(0, min_open=True), default=60.0, show_default=True,
              help="End sessions whose client says nothing for so long.")  # fmt: skip
@click.option("--resume-s", metavar="SECONDS", type=click.FloatRange(0), default=30.0, show_default=True,
              help="Keep the session of a connection that broke for so long.")  # fmt: skip
@click.option("--session-s", metavar="SECONDS", type=click.FloatRange(0, min_open=True), default=86_400.0,
              show_default=True, help="End sessions that last so long.")  # fmt: skip
def serve(**settings: Any) -> int:
    """Serve captions over a WebSocket, and a page that captions a browser's microphone.

    Only this computer may connect unless --host says otherwise, which takes a token or --no-auth. Ctrl-C or SIGTERM
    takes no new session, finishes what is being said, and ends after 10 s at the latest.

    With --allow-pull whoever may connect may also have models fetched, those that `liveasr models list` calls
    available: into this computer's folder of models, and from where the registry says. The page has a button for it.

    \b
    Examples:
      liveasr serve
      liveasr serve --allow-pull
      liveasr serve --model sensevoice-small --model digits --port 9000
      LIVEASR_TOKEN=secret liveasr serve --host 0.0.0.0 --tls-cert chain.pem --tls-key key.pem
    """  # noqa: D301 - \b is click's mark for a block to leave as it is
    from liveasr.serving import serve as run

    return run(**settings)


@_commands.command()
def devices() -> int:
    """List the sound inputs of this computer."""
    from liveasr.commands import devices as run

    return run()
