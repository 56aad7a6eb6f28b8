"""The commands `liveasr bench ...`, in words.

Each imports its work when it runs, as those of `cli.py` do.
"""

from typing import Any

import click

from liveasr.cli_options import FILE, offline_option, partials_option, threads_option, token_option


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


@click.group(cls=_BenchGroup)
def bench() -> None:
    """Measure how fast this computer is.

    `liveasr bench FILE...` tells how fast it transcribes (`liveasr bench files --help` has its options), `liveasr bench
    live FILE...` how long captions take, `liveasr bench load FILE...` how many clients a server can serve. Measure on
    an idle machine.
    """


@bench.command()
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=FILE)
@click.option("--model", metavar="NAME[:VARIANT]|FILE.gguf", help="Speech model; by default the best one installed.")
@offline_option
@threads_option
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
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=FILE)
@click.option("--model", metavar="NAME[:VARIANT]|FILE.gguf", help="Speech model; by default the best one installed.")
@offline_option
@partials_option
@threads_option
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
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=FILE)
@click.option("--server", metavar="URL", help="Measure that one, not one that is started for it on this computer.")
@token_option
@click.option(
    "--model", metavar="NAME[:VARIANT]|FILE.gguf", help="Speech model; by default the best one, or the server's first."
)
@offline_option
@threads_option
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
