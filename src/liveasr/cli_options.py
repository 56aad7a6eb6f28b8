"""The options that several commands of the command line share, in words."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

# No checks here: the messages of the readers and writers name the cause and spare the other files.
FILE = click.Path(path_type=Path, readable=False)
_Command = TypeVar("_Command", bound=Callable[..., Any])

save_option = click.option(
    "--save", metavar="FILE", type=FILE, multiple=True,
    help="Keep captions (.srt .vtt .json .txt .tsv) or sound (.wav); may be repeated.",
)  # fmt: skip
hotword_option = click.option(
    "--hotword", "hotwords", metavar="WORD", multiple=True,
    help="A name or term to listen for, for a model that takes them, as fun-asr-nano; may be repeated.  "
         "[example: --hotword Lagrange --hotword 'Ada Lovelace']",
)  # fmt: skip
token_option = click.option("--token", metavar="SECRET", help="What the server wants to see.  [default: LIVEASR_TOKEN]")
threads_option = click.option(
    "--threads",
    type=click.IntRange(1, 64),
    help="Threads of a decode that runs alone; several at a time share the cores.  "
    "[default: one a core, at most 4; small models: 1]",
)


def _forbid_fetching(_context: click.Context, _parameter: click.Parameter, offline: bool) -> None:
    if offline:
        os.environ["LIVEASR_OFFLINE"] = "1"


offline_option = click.option(
    "--offline", is_flag=True, expose_value=False, callback=_forbid_fetching,
    help="Never fetch a model; else one that is named and not installed is fetched.  [env: LIVEASR_OFFLINE]",
)  # fmt: skip
partials_option = click.option(
    "--partials", metavar="NAME[:VARIANT]|FILE.gguf|none",
    help="Another model for the text while someone speaks; --model then has the last word.  "
         "[default: none; with fun-asr-nano the best other model installed]",
)  # fmt: skip
reconnect_option = click.option(
    "--reconnect-s",
    metavar="SECONDS",
    type=click.FloatRange(0),
    help="Try for so long to get a lost connection back.  [default: 60]",
)


def vad_options(longest: str = "20000; fun-asr-nano: 15000") -> Callable[[_Command], _Command]:
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
