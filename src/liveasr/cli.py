"""The command `liveasr`: what can be asked for, in words.

Each command imports its work when it runs, so that `--help` is quick.
"""

import io
import logging
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from liveasr.errors import LiveasrError
from liveasr.visible import visible

_log = logging.getLogger("liveasr")
_EXIT_FAILED = 1
_EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells count
_LANGUAGES = ("auto", "zh", "en", "yue", "ja", "ko")
# No checks here: the messages of the readers and writers name the cause and spare the other files.
_FILE = click.Path(path_type=Path, readable=False)
_FORMATS = ("txt", "json", "srt", "vtt", "tsv")
_Command = TypeVar("_Command", bound=Callable[..., Any])
_save_option = click.option(
    "--save", metavar="FILE", type=_FILE, multiple=True,
    help="Keep captions (.srt .vtt .json .txt .tsv) or sound (.wav); may be repeated.",
)  # fmt: skip
_hotword_option = click.option(
    "--hotword", "hotwords", metavar="WORD", multiple=True,
    help="A name or term to listen for, for a model that takes them, as fun-asr-nano; may be repeated.  "
         "[example: --hotword Lagrange --hotword 'Ada Lovelace']",
)  # fmt: skip
_token_option = click.option(
    "--token", metavar="SECRET", help="What the server wants to see.  [default: LIVEASR_TOKEN]"
)

_threads_option = click.option(
    "--threads",
    type=click.IntRange(1, 64),
    help="Threads of a decode that runs alone; several at a time share the cores.  "
    "[default: one a core, at most 4; small models: 1]",
)


def _forbid_fetching(_context: click.Context, _parameter: click.Parameter, offline: bool) -> None:
    if offline:
        os.environ["LIVEASR_OFFLINE"] = "1"


_offline_option = click.option(
    "--offline", is_flag=True, expose_value=False, callback=_forbid_fetching,
    help="Never fetch a model; else one that is named and not installed is fetched.  [env: LIVEASR_OFFLINE]",
)  # fmt: skip


def _one_line(_context: click.Context, _parameter: click.Parameter, text: str | None) -> str | None:
    from liveasr.provenance import MAX_CHARACTERS

    if text is not None and not (text.strip() and text.isprintable() and len(text) <= MAX_CHARACTERS):
        raise click.BadParameter(f"a text of one line and at most {MAX_CHARACTERS} characters was expected")
    return text


def _web_page(context: click.Context, parameter: click.Parameter, url: str | None) -> str | None:
    if url is not None and not url.startswith(("https://", "http://")):
        raise click.BadParameter(f"{url}: a URL was expected, as https://huggingface.co/OWNER/NAME")
    return _one_line(context, parameter, url)


_partials_option = click.option(
    "--partials", metavar="NAME[:VARIANT]|FILE.gguf|none",
    help="Another model for the text while someone speaks; --model then has the last word.  "
         "[default: none; with fun-asr-nano the best other model installed]",
)  # fmt: skip
_reconnect_option = click.option(
    "--reconnect-s",
    metavar="SECONDS",
    type=click.FloatRange(0),
    help="Try for so long to get a lost connection back.  [default: 60]",
)


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


def _vad_options(longest: str = "20000; fun-asr-nano: 15000") -> Callable[[_Command], _Command]:
    """The settings of the voice activity detection, which several commands share.

    Args:
        longest: what is said of the default of the longest segment.
    """
    options = (
        click.option("--end-silence-ms", type=click.IntRange(min=150), default=800, show_default=True,
                     help="A pause this long ends a segment."),
        click.option("--schedule", is_flag=True,
                     help="Instead: the longer a segment, the shorter the pause that ends it, from 2 s down to 0.1 s."),
        click.option("--max-segment-ms", type=click.IntRange(min=1000),
                     help=f"Longer segments are cut at their quietest point.  [default: {longest}]"),
        click.option("--speech-threshold", type=click.FloatRange(-1, 1, min_open=True, max_open=True),
                     help="How much likelier than silence speech must be.  [default: 0.6; with --schedule 0.5]"),
        click.option("--min-speech-ms", type=click.IntRange(min=0), default=0, show_default=True,
                     help="Drop segments with less speech than this."),
        click.option("--pad-before-ms", type=click.IntRange(0, 5000), default=0, show_default=True,
                     help="Begin segments this much earlier."),
        click.option("--pad-after-ms", type=click.IntRange(0, 5000), default=0, show_default=True,
                     help="End segments this much later, as far as the pause behind them allows."),
    )  # fmt: skip

    def add(command: _Command) -> _Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


@click.group(name="liveasr", context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="liveasr", message="%(prog)s %(version)s")
def _commands() -> None:
    """Speech to text on this computer, offline, with the FunASR models."""


@_commands.command()
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=_FILE)
@click.option("--model", metavar="NAME[:VARIANT]|FILE.gguf",
              help="Speech model; by default the best one installed. 'digits' is built in.")  # fmt: skip
@_offline_option
@click.option("--language", type=click.Choice(_LANGUAGES), default="auto", show_default=True, help="Spoken language.")
@click.option("--itn", is_flag=True, help="Write numbers as digits, with punctuation, where the model can.")
@_hotword_option
@click.option("--format", "-f", "formats", type=click.Choice(_FORMATS), multiple=True,
              help="Output format; may be given several times.  [default: as --output ends, else txt]")  # fmt: skip
@click.option("--output", "-o", metavar="FILE|FOLDER",
              help="Write there, not to stdout; several recordings or formats need a folder.")  # fmt: skip
@click.option("--force", is_flag=True, help="Replace files that exist.")
@click.option("--words", is_flag=True, help="In text, add a line with the times of every word (json always has them).")
@_threads_option
@click.option("--cmvn", metavar="FILE", type=_FILE, help="am.mvn to use instead of the model's.")
@click.option("--vad", type=click.Choice(["fsmn", "webrtc", "none"]), default="fsmn", show_default=True,
              help="Voice activity detector; none cuts windows of the longest segment.")  # fmt: skip
@_vad_options()
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
@click.argument("file", type=_FILE)
@click.option("--format", "-f", "format_", type=click.Choice(["json", "txt"]), default="json", show_default=True,
              help="Output format.")  # fmt: skip
@click.option("--plot", metavar="FILE.png", type=_FILE,
              help="Also draw waveform, speech scores and segments.")  # fmt: skip
@click.option("--vad", type=click.Choice(["fsmn", "webrtc"]), default="fsmn", show_default=True,
              help="Voice activity detector.")  # fmt: skip
@_vad_options("20000")
def vad(**settings: Any) -> int:
    """Print where in a recording there is speech.

    JSON is a list of {"start_ms", "end_ms", "forced_cut"}.
    """
    from liveasr.commands import vad as run

    return run(**settings)


@_commands.command()
@click.option("--device", metavar="NAME|NUMBER", help="Sound input, as `liveasr devices` lists them.")
@click.option("--model", metavar="NAME[:VARIANT]|FILE.gguf", help="Speech model; by default the best one installed.")
@_offline_option
@click.option("--language", type=click.Choice(_LANGUAGES), default="auto", show_default=True, help="Spoken language.")
@click.option("--itn", is_flag=True, help="Write numbers as digits, with punctuation, where the model can.")
@_hotword_option
@_save_option
@click.option("--force", is_flag=True, help="Replace files that exist.")
@click.option("--file", type=_FILE, help="Caption a recording instead, or - for stdin.")
@click.option("--realtime", is_flag=True, help="Play --file at the speed of speech.")
@click.option("--server", metavar="URL", help="Let a server find the words; --model is then a name on it.")
@_token_option
@_reconnect_option
@_partials_option
@_threads_option
@click.option("--cmvn", metavar="FILE", type=_FILE, help="am.mvn to use instead of the model's.")
@click.option("--vad", type=click.Choice(["fsmn", "webrtc"]), help="Voice activity detector.  [default: fsmn]")
@_vad_options()
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
@click.argument("file", type=_FILE)
@click.option("--server", metavar="URL", default="http://127.0.0.1:8765", show_default=True,
              help="Where `liveasr serve` runs.")  # fmt: skip
@click.option("--realtime", is_flag=True, help="Send it at the speed of speech.")
@click.option("--model", metavar="NAME", help="One of the server's models.  [default: its first]")
@click.option("--language", type=click.Choice(_LANGUAGES), default="auto", show_default=True, help="Spoken language.")
@click.option("--itn", is_flag=True, help="Write numbers as digits, with punctuation, where the model can.")
@_hotword_option
@_token_option
@_reconnect_option
@_save_option
@click.option("--force", is_flag=True, help="Replace files that exist.")
@_vad_options()
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
@_offline_option
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8765, show_default=True, help="0 takes any free one.")
@click.option("--token", envvar="LIVEASR_TOKEN", metavar="SECRET",
              help="What clients must know; better given in LIVEASR_TOKEN, where `ps` does not show it.")  # fmt: skip
@click.option("--no-auth", is_flag=True, help="Serve other computers without a token.")
@click.option("--allow-origin", "origins", metavar="URL", multiple=True,
              help="Pages of this origin may connect too, as in https://app.example.org; may be repeated.")  # fmt: skip
@click.option("--tls-cert", metavar="FILE", type=_FILE, help="Certificate chain, to serve https and wss.")
@click.option("--tls-key", metavar="FILE", type=_FILE, help="Its key.")
@click.option("--allow-pull", is_flag=True,
              help="Clients, as the page, may have models of the registry fetched, and use them at once.")  # fmt: skip
@_partials_option
@_threads_option
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


class _BenchGroup(click.Group):
    """A group whose first command needs no name: `bench FILE` is `bench files FILE`."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """Put the name where it is missing."""
        if args and args[0] not in self.commands:
            args = ["files", *args]
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Options of the unnamed command are not the group's."""
        if args and args[0] not in self.commands and args[0] not in ("-h", "--help"):
            args = ["files", *args]
        return super().parse_args(ctx, args)


@_commands.group(cls=_BenchGroup)
def bench() -> None:
    """Measure how fast this computer is.

    `liveasr bench FILE...` tells how fast it transcribes (`liveasr bench files --help` has its options), `liveasr bench
    live FILE...` how long captions take, `liveasr bench load FILE...` how many clients a server can serve. Measure on
    an idle machine.
    """


@bench.command()
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=_FILE)
@click.option("--model", metavar="NAME[:VARIANT]|FILE.gguf", help="Speech model; by default the best one installed.")
@_offline_option
@_threads_option
@click.option("--runs", type=click.IntRange(1, 100), default=3, show_default=True, help="The best of so many counts.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def files(**settings: Any) -> int:
    """Real-time factors of every stage, 1 being as fast as speech.

    fbank and vad count a second of the recording, encoder and head a second of speech in it, end_to_end everything from
    opening the file to the last word.
    """
    from liveasr.commands import bench_files as run

    return run(**settings)


@bench.command(name="live", short_help="Delays of live captions.")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=_FILE)
@click.option("--model", metavar="NAME[:VARIANT]|FILE.gguf", help="Speech model; by default the best one installed.")
@_offline_option
@_partials_option
@_threads_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def bench_live(**settings: Any) -> int:
    """Delays of live captions, with the recordings played at the speed of speech.

    first_partial: from the first word to the first text. commit: from the end of a word to when it stands.
    final_after_speech: from the end of the last word to the final, which waits for the pause that ends a segment;
    final_after_segment: from the end of that pause. loop_lag: how late the program's event loop runs. edit_overhead: of
    all words added and removed on the screen, the share that was not needed. unstable_partial_word_ratio: words shown
    and then changed, for each word of the finals.
    """
    from liveasr.commands import bench_live as run

    return run(**settings)


@bench.command(name="load")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=_FILE)
@click.option("--server", metavar="URL", help="Measure that one, not one that is started for it on this computer.")
@_token_option
@click.option(
    "--model", metavar="NAME[:VARIANT]|FILE.gguf", help="Speech model; by default the best one, or the server's first."
)
@_offline_option
@_threads_option
@click.option("-n", "--clients", type=click.IntRange(1), default=10, show_default=True, help="At once.")
@click.option("--find", is_flag=True, help="Search the most clients whose finals come within 1 s, from --clients on.")
@click.option("--seconds", type=click.FloatRange(0), default=60.0, show_default=True,
              help="Clients begin anew for so long.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def bench_load(**settings: Any) -> int:
    """Delays of captions while a server has many clients.

    Each client says one of the recordings at the speed of speech, over and over, each time as a session of its own;
    more than 150 are several processes. The delays are those of `bench live`; loop_lag tells how late the clients
    themselves were, which may share a computer with the server. plays: sessions begun. errors: sessions that failed.
    plays_unlike_transcribe: those whose finals are not what `liveasr transcribe` gives. lag_ms: how far the server said
    that it was behind, at most. server_cores: processor seconds of the server, a second.
    """
    from liveasr.commands import bench_load as run

    return run(**settings)


@_commands.group()
def models() -> None:
    """List, fetch, check, convert and remove models.

    NAME is as `liveasr models list` shows it; every --model takes it too.
    """


@models.command(name="list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_models(as_json: bool) -> int:
    """Show which models are installed, built in, or available.

    "to convert" is published nowhere in this program's format, "begun" is what `liveasr models pull` continues, and
    "damaged" is no whole model. Sizes of what is available are told when it is fetched. Models of your own are added by
    models.toml in the configuration folder (~/.config/liveasr, on macOS ~/Library/Application Support/liveasr), in the
    form of the program's own registry.toml.
    """
    from liveasr.model_list import list_models as run

    return run(as_json)


@models.command()
@click.argument("name", metavar="NAME[:VARIANT]")
@click.option("--from", "source", metavar="huggingface|modelscope|URL|DIR",
              help="Where to fetch it; a URL is that of the file, or of the folder of its files.  "
                   "[default: as the registry says, mostly huggingface]")  # fmt: skip
def pull(name: str, source: str | None) -> int:
    """Fetch a model and install it.

    What breaks off, or is ended by Ctrl-C, is continued by the same command. Every file is checked before it is
    used: its size and SHA-256 where they are known, and that it is a whole model. Of two processes that want the same
    model one fetches it.

    HF_ENDPOINT names a mirror of Hugging Face, as https://hf-mirror.com; HF_TOKEN says who you are there. HTTPS_PROXY
    names a proxy.

    \b
    Examples:
      liveasr models pull sensevoice-small
      liveasr models pull fun-asr-nano:q4km --from modelscope
      liveasr models pull paraformer:f16 --from /media/stick/models
    """  # noqa: D301 - \b is click's mark for a block to leave as it is
    from liveasr.pulling import pull as run

    return run(name, source)


@models.command()
@click.argument("name", metavar="NAME[:VARIANT]")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
def rm(name: str, yes: bool) -> int:
    """Remove an installed model, all of its variants or one.

    What is to go is listed first. A file that another installed variant needs stays.

    \b
    Examples:
      liveasr models rm sensevoice-small:f32
      liveasr models rm --yes fun-asr-nano
    """  # noqa: D301 - \b is click's mark for a block to leave as it is
    from liveasr.model_list import remove

    return remove(name, yes)


@models.command()
@click.argument("folder", metavar="DIR", type=_FILE)
@click.option("--type", "weight_type", type=click.Choice(["f32", "f16", "q8_0"]), default="f16", show_default=True,
              help="How matrices are stored.")  # fmt: skip
@click.option("--output", "-o", metavar="FILE.gguf", type=_FILE, required=True)
@click.option("--force", is_flag=True, help="Replace the output if it exists.")
@click.option("--name", callback=_one_line, help="What the model is called.")
@click.option("--author", callback=_one_line, help="Who made it.")
@click.option("--licence", callback=_one_line, help="Under which licence, as Apache-2.0.")
@click.option("--source", metavar="URL", callback=_web_page, help="Where the checkpoint is from.")
@click.option("--revision", callback=_one_line, help="Its version there, as a commit.")
def convert(**settings: Any) -> int:
    """Convert a released checkpoint to a GGUF file.

    DIR holds the weights, config.yaml, am.mvn and, for SenseVoice, *.bpe.model, for Paraformer, tokens.json.
    Fun-ASR-Nano has no am.mvn, but the folder of its language model, which is written beside FILE.gguf, to
    FILE-llm.gguf.

    The weights are model.pt, else model.safetensors, else the shards of model.safetensors.index.json. Nothing in
    model.pt is executed, and PyTorch is not needed. A front end that this program does not have is refused.

    The file tells where it is from, and `liveasr models inspect` shows it. What no option says is taken from README.md
    (its licence and languages), from configuration.json, and from the path of a folder in the cache of Hugging Face.
    What nobody says is left out.

    \b
    Examples:
      liveasr models convert SenseVoiceSmall/ -o sensevoice-small-f16.gguf
      liveasr models convert mine/ -o mine.gguf --name Mine --licence CC-BY-4.0
    """  # noqa: D301 - \b is click's mark for a block to leave as it is
    from liveasr.converting import convert as run

    return run(**settings)


@models.command()
@click.argument("model", metavar="ENCODER.gguf|NAME")
@click.argument("language_model", metavar="[LLM.gguf]", type=_FILE, required=False)
@click.option("--output", "-o", metavar="FILE.gguf", type=_FILE, required=True)
@click.option("--force", is_flag=True, help="Replace the output if it exists.")
def pack(**settings: Any) -> int:
    """Put both files of Fun-ASR-Nano into one.

    LLM.gguf is by default the language model that lies beside the encoder, as transcribe would take it. The new file is
    used like any other: nothing in it is copied when it is loaded, and nothing has to lie beside it.

    \b
    Examples:
      liveasr models pack fun-asr-nano -o nano.gguf
      liveasr models pack funasr-encoder-f16.gguf qwen3-0.6b-q4km.gguf -o nano-q4km.gguf
    """  # noqa: D301 - \b is click's mark for a block to leave as it is
    from liveasr.commands import pack as run

    return run(**settings)


@models.command(short_help="Tell what a model file is, and whether it runs here.")
@click.argument("model", metavar="NAME[:VARIANT]|FILE.gguf")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def inspect(**settings: Any) -> int:
    """Tell what a model file is: architecture, sizes, tensor types, metadata, and whether it runs here.

    Nothing is loaded but the file's own descriptions. Where it does not run, the reason is told, and what to do.

    \b
    Examples:
      liveasr models inspect digits
      liveasr models inspect --json ~/Downloads/sensevoice-small-q8.gguf
    """  # noqa: D301 - \b is click's mark for a block to leave as it is
    from liveasr.inspecting import inspect as run

    return run(**settings)


@models.command(short_help="Check that a model file is whole, and is computed correctly.")
@click.argument("model", metavar="NAME[:VARIANT]|FILE.gguf")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@_threads_option
def verify(**settings: Any) -> int:
    """Check that a model file is whole, and computes on this computer what its numbers say.

    It is read as a whole and compared with the SHA-256 of the registry, if that has one. Then it hears a known
    recording of spoken digits: the encoder's output is compared with that of plain arithmetic, which knows nothing of
    this computer's fast kernels, and the text is shown beside what is spoken. The built-in models have to hear just
    that. The exit code is 1 where something is wrong.

    \b
    Examples:
      liveasr models verify digits
      liveasr models verify ~/Downloads/sensevoice-small-q8.gguf
    """  # noqa: D301 - \b is click's mark for a block to leave as it is
    from liveasr.verifying import verify as run

    return run(**settings)


@models.command(short_help="Write a model again in fewer bits.")
@click.argument("model", metavar="FILE.gguf|NAME")
@click.argument("type_", metavar="TYPE", type=click.Choice(["f16", "q8_0", "q6_K", "q5_K", "q4_K_mix", "q4_K"]))
@click.option("--output", "-o", metavar="FILE.gguf", type=_FILE, help="[default: beside the model, NAME-TYPE.gguf]")
@click.option("--force", is_flag=True, help="Replace the output if it exists.")
@click.option("--check", "recordings", metavar="RECORDING", type=_FILE, multiple=True,
              help="Tell what changes in what is heard here, and the speed; may be repeated.")  # fmt: skip
@_threads_option
def quantize(**settings: Any) -> int:
    """Write a model again in fewer bits: smaller, a little less exact, and on most computers about as fast.

    The model is an f32 or f16 file. TYPE is how its matrices are stored, from the most exact to the smallest: f16,
    q8_0, q6_K, q5_K, q4_K_mix, q4_K. q4_K_mix has in q6_K the output layer and the outputs of attention, which suffer
    most for their size. Rows that do not divide into blocks stay longer, with a note; everything else stays as it is.

    It prints for all tensors of a kind how far their values moved: the root mean square of the differences, in percent
    of that of the values. What matters is what is recognised, which --check compares, with the seconds that took.

    \b
    Examples:
      liveasr models quantize sensevoice-small-f16.gguf q8_0
      liveasr models quantize sensevoice-small-f16 q4_K_mix --check talk.wav --check interview.mp3
    """  # noqa: D301 - \b is click's mark for a block to leave as it is
    from liveasr.quantizing import quantize as run

    return run(**settings)
