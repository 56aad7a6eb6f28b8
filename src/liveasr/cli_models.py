"""The commands `liveasr models ...`, in words.

Each imports its work when it runs, as those of `cli.py` do.
"""

from typing import Any

import click

from liveasr.cli_options import FILE, threads_option


def _one_line(_context: click.Context, _parameter: click.Parameter, text: str | None) -> str | None:
    from liveasr.provenance import MAX_CHARACTERS

    if text is not None and not (text.strip() and text.isprintable() and len(text) <= MAX_CHARACTERS):
        raise click.BadParameter(f"a text of one line and at most {MAX_CHARACTERS} characters was expected")
    return text


def _web_page(context: click.Context, parameter: click.Parameter, url: str | None) -> str | None:
    if url is not None and not url.startswith(("https://", "http://")):
        raise click.BadParameter(f"{url}: a URL was expected, as https://huggingface.co/OWNER/NAME")
    return _one_line(context, parameter, url)


@click.group()
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
@click.argument("folder", metavar="DIR", type=FILE)
@click.option("--type", "weight_type", type=click.Choice(["f32", "f16", "q8_0"]), default="f16", show_default=True,
              help="How matrices are stored.")  # fmt: skip
@click.option("--output", "-o", metavar="FILE.gguf", type=FILE, required=True)
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
@click.argument("language_model", metavar="[LLM.gguf]", type=FILE, required=False)
@click.option("--output", "-o", metavar="FILE.gguf", type=FILE, required=True)
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
@threads_option
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
@click.option(
    "--output",
    "-o",
    metavar="FILE.gguf",
    type=FILE,
    help="[default: beside the model, or here for one that is built in, NAME-TYPE.gguf]",
)
@click.option("--force", is_flag=True, help="Replace the output if it exists.")
@click.option("--check", "recordings", metavar="RECORDING", type=FILE, multiple=True,
              help="Tell what changes in what is heard here, and the speed; may be repeated.")  # fmt: skip
@threads_option
def quantize(**settings: Any) -> int:
    """Write a model again in fewer bits: smaller and a little less exact; on most computers q8_0 is the fastest.

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
