"""Which model a name means, and which one is taken when none is named."""

import re
import shlex
from pathlib import Path

import pytest

from liveasr import store
from liveasr.errors import ModelNotFoundError
from liveasr.gguf_file import GgufFile
from tests.helpers import write_gguf
from tests.models import write_model

KNOWN = ("sensevoice-small",)
FETCHED = "to be fetched: sensevoice-small, paraformer, fun-asr-nano"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of models."""
    monkeypatch.setenv(store.FOLDER_VARIABLE, str(tmp_path))
    return tmp_path


def add(folder: Path, name: str, kind: str = "f32", architecture: str = "sensevoice-small") -> Path:
    """A small model whose matrices have one type."""
    return write_model(folder / f"{name}.gguf", architecture, kind)


# Where models lie.


def test_variable_names_the_folder(folder: Path) -> None:
    assert store.models_folder() == folder


@pytest.mark.parametrize("value", [None, ""])
def test_without_the_variable_the_folder_is_the_users_own(monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
    if value is None:
        monkeypatch.delenv(store.FOLDER_VARIABLE, raising=False)
    else:
        monkeypatch.setenv(store.FOLDER_VARIABLE, value)
    assert store.models_folder().parts[-2:] == ("liveasr", "models")
    assert store.models_folder().is_absolute()


def test_commands_that_download_name_the_folder_where_it_is_another_one(folder: Path) -> None:
    assert store.download_command() == "liveasr models pull sensevoice-small"
    assert store.nano_download_command() == store.nano_download_command(folder) == "liveasr models pull fun-asr-nano"
    elsewhere = folder / "Ann's else where"
    first, *command = shlex.split(store.nano_download_command(elsewhere))
    assert first == f"LIVEASR_MODELS={elsewhere}"
    assert command == ["liveasr", "models", "pull", "fun-asr-nano"]


@pytest.mark.parametrize(
    ("name", "architecture"),
    [("digits", "sensevoice-small"), ("digits-paraformer", "paraformer"), ("fsmn-vad", "fsmn-vad")],
)
def test_built_in_model_is_found_wherever_the_folder_is(folder: Path, name: str, architecture: str) -> None:
    add(folder, name)  # a file of that name does not hide it
    with GgufFile(store.find(name)) as file:
        assert file.architecture == architecture
        assert file.path.parent != folder


# Which file a name means.


def test_name_means_a_file_in_the_folder(folder: Path) -> None:
    path = add(folder, "sensevoice-small-q8")
    assert store.find("sensevoice-small-q8") == path


def test_path_means_that_file(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    path = add(elsewhere, "mine")
    add(folder, "mine")
    assert store.find(str(path)) == path


def test_file_name_means_a_file_in_the_working_directory(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "here").mkdir()
    monkeypatch.chdir(add(folder / "here", "mine").parent)
    assert store.find("mine.gguf").resolve() == (folder / "here" / "mine.gguf").resolve()


def test_unknown_name_lists_what_is_known(folder: Path) -> None:
    add(folder, "zulu")
    add(folder, "alpha")
    (folder / "notes.txt").write_text("no model", encoding="utf-8")
    with pytest.raises(ModelNotFoundError, match="no model named nothing") as caught:
        store.find("nothing")
    assert str(caught.value).endswith(f"known here: digits, digits-paraformer, alpha, zulu; {FETCHED}")
    assert str(folder) in str(caught.value)


def test_unknown_name_without_a_folder_lists_the_demonstration(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(store.FOLDER_VARIABLE, str(folder / "not" / "there"))
    with pytest.raises(ModelNotFoundError, match=f"known here: digits, digits-paraformer; {FETCHED}$"):
        store.find("nothing")


def test_an_installed_file_has_the_names_that_the_registry_has_for_it(folder: Path, tmp_path: Path) -> None:
    assert store.also_called(add(folder, "sensevoice-small-q8")) == ["sensevoice-small", "sensevoice-small:q8"]
    assert store.also_called(add(folder, "mine")) == []
    assert store.also_called(store.built_in("digits")) == []
    (tmp_path / "elsewhere").mkdir()
    assert store.also_called(add(tmp_path / "elsewhere", "sensevoice-small-q8")) == []
    assert store.also_called(add(folder, "funasr-encoder-f16")) == []  # a part of several variants


@pytest.mark.parametrize("name", ["none.gguf", "./none", "folder/"])
def test_path_to_no_file_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    (folder / "folder").mkdir()
    monkeypatch.chdir(folder)
    with pytest.raises(ModelNotFoundError, match=re.escape(f"{Path(name)}: no such model file")):
        store.find(name)


# Names of the registry.


@pytest.mark.parametrize(
    ("installed", "meant"),
    [
        (["sensevoice-small-q8"], "sensevoice-small-q8"),
        (["sensevoice-small-f16"], "sensevoice-small-f16"),
        (["sensevoice-small-f16", "sensevoice-small-q8", "sensevoice-small-q4"], "sensevoice-small-q8"),
        (["sensevoice-small-q8", "sensevoice-small"], "sensevoice-small"),  # a file's own name always means that file
    ],
)
def test_name_of_the_registry_means_its_default_variant_or_another(
    folder: Path, installed: list[str], meant: str
) -> None:
    for name in installed:
        add(folder, name)
    assert store.find("sensevoice-small") == folder / f"{meant}.gguf"


def test_name_of_the_registry_that_is_not_installed_says_how_to_get_it(folder: Path) -> None:
    add(folder, "sensevoice-small-q4")  # no variant that the registry knows
    with pytest.raises(ModelNotFoundError, match="sensevoice-small is not in ") as caught:
        store.find("sensevoice-small")
    assert str(caught.value).endswith("get it with: liveasr models pull sensevoice-small")
    with pytest.raises(ModelNotFoundError, match=r"nobody publishes it as GGUF; .* liveasr models convert DIR"):
        store.find("paraformer-streaming")


def test_the_name_of_a_published_file_that_is_not_here_says_how_to_get_it(folder: Path) -> None:
    for name, way in (("sensevoice-small-q8", "sensevoice-small:q8"), ("funasr-encoder-f16", "fun-asr-nano:q8_0")):
        with pytest.raises(ModelNotFoundError, match=f"^{name} is not in .*; get it with: liveasr models pull {way}$"):
            store.find(name)
    assert store.find(add(folder, "sensevoice-small-q8").stem) == folder / "sensevoice-small-q8.gguf"


def test_a_variant_that_is_named_is_meant_whatever_else_is_installed(folder: Path) -> None:
    for name in ("sensevoice-small-q8", "sensevoice-small-f16"):
        add(folder, name)
    assert store.find("sensevoice-small:f16") == folder / "sensevoice-small-f16.gguf"
    with pytest.raises(
        ModelNotFoundError, match=r"sensevoice-small:f32 is not in .* models pull sensevoice-small:f32$"
    ):
        store.find("sensevoice-small:f32")
    with pytest.raises(ModelNotFoundError, match="sensevoice-small has no variant q2; known are q8, f16, f32"):
        store.find("sensevoice-small:q2")
    with pytest.raises(ModelNotFoundError, match="no model named nonesuch in the registry"):
        store.find("nonesuch:f16")


def test_a_variant_that_shares_its_encoder_is_not_taken_for_the_other(folder: Path) -> None:
    add(folder, "funasr-encoder-f16", architecture=store.NANO_ARCHITECTURE)
    add(folder, "qwen3-0.6b-q4km", architecture="qwen3")
    assert store.find("fun-asr-nano:q4km") == folder / "funasr-encoder-f16.gguf"
    add(folder, "qwen3-0.6b-q8_0", architecture="qwen3")
    assert store.find("fun-asr-nano:q8_0") == folder / "funasr-encoder-f16.gguf"
    with pytest.raises(
        ModelNotFoundError, match=r"q8_0, which is installed too and goes first; .* models rm"
    ) as caught:
        store.find("fun-asr-nano:q4km")
    command = f"{folder / 'funasr-encoder-f16.gguf'} {folder / 'qwen3-0.6b-q4km.gguf'} -o fun-asr-nano-q4km.gguf"
    assert str(caught.value).endswith(f"liveasr models pack {command}")


# Fun-ASR-Nano, whose published files are called otherwise.


@pytest.mark.parametrize(
    ("installed", "meant"),
    [
        ({"funasr-encoder-f16": "f16"}, "funasr-encoder-f16"),
        ({"funasr-encoder": "f32", "funasr-encoder-q8": "q8_0"}, "funasr-encoder-q8"),
        ({"funasr-encoder-f16": "f16", "fun-asr-nano": "q8_0"}, "fun-asr-nano"),
    ],
)
def test_nano_means_its_encoder_whatever_it_is_called(folder: Path, installed: dict[str, str], meant: str) -> None:
    for name, kind in installed.items():
        add(folder, name, kind, architecture=store.NANO_ARCHITECTURE)
        add(folder, f"{name}-llm", "f16", architecture="qwen3")
    add(folder, "qwen3-0.6b-q8_0", "q8_0", architecture="qwen3")
    assert store.find("fun-asr-nano") == folder / f"{meant}.gguf"
    assert store.name_of(store.find("fun-asr-nano")) == "fun-asr-nano"


@pytest.mark.parametrize("content", ["nothing", "no folder", "half", "foreign", "the language model"])
def test_where_nano_is_missing_both_of_its_files_are_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    match content:
        case "no folder":
            monkeypatch.setenv(store.FOLDER_VARIABLE, str(folder / "none"))
        case "half":
            (folder / "funasr-encoder-f16.gguf").write_bytes(b"GGUF")
        case "foreign":
            add(folder, "funasr-encoder-f16", architecture="paraformer")
        case "the language model":
            add(folder, "qwen3-0.6b-q8_0", architecture="qwen3")
    with pytest.raises(ModelNotFoundError, match="fun-asr-nano is not in ") as caught:
        store.find("fun-asr-nano")
    message = str(caught.value)
    assert store.nano_download_command() in message
    assert str(store.models_folder()) in message


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("funasr-encoder-f16.gguf", "fun-asr-nano"),
        ("funasr-encoder.gguf", "fun-asr-nano"),
        ("funasr-encoder-f16-llm.gguf", "funasr-encoder-f16-llm"),
        ("sensevoice-small-q8.gguf", "sensevoice-small-q8"),
        ("my-funasr-encoder.gguf", "my-funasr-encoder"),
        ("funasr-encoder/mine.gguf", "mine"),
    ],
)
def test_a_model_is_called_as_its_file_and_the_published_nano_as_the_whole(file: str, name: str) -> None:
    assert store.name_of(Path("somewhere") / file) == name


def test_names_that_are_known_are_those_that_clients_see(folder: Path) -> None:
    add(folder, "funasr-encoder-f16", architecture=store.NANO_ARCHITECTURE)
    add(folder, "funasr-encoder-f32", architecture=store.NANO_ARCHITECTURE)
    with pytest.raises(ModelNotFoundError, match=f"known here: digits, digits-paraformer, fun-asr-nano; {FETCHED}$"):
        store.find("nothing")


# Which model is best.


@pytest.mark.parametrize(
    ("installed", "best"),
    [
        ({"a": "f32"}, "a"),
        ({"a": "q8_0", "b": "f16", "c": "f32"}, "b"),
        ({"a": "f32", "b": "q8_0"}, "b"),
        ({"a": "q4_0", "b": "f32"}, "b"),
        ({"a": "q4_0"}, "a"),
        ({"b": "f16", "a": "f16"}, "a"),
    ],
)
def test_best_model_is_exact_and_fast(folder: Path, installed: dict[str, str], best: str) -> None:
    for name, kind in installed.items():
        add(folder, name, kind)
    assert store.best_installed(KNOWN) == folder / f"{best}.gguf"


def test_broken_and_foreign_files_do_not_hide_a_good_one(folder: Path) -> None:
    good = add(folder, "good", "f32")
    add(folder, "llama", "f16", architecture="llama")
    add(folder, "vad", "f16", architecture="fsmn-vad")
    add(folder, "nameless", "f16", architecture="")
    whole = add(folder, "download", "f16").read_bytes()
    (folder / "download.gguf").write_bytes(whole[: len(whole) // 2])
    (folder / "empty.gguf").write_bytes(b"")
    (folder / "page.gguf").write_bytes(b"<!DOCTYPE html>")
    (folder / "folder.gguf").mkdir()
    (folder / "dangling.gguf").symlink_to(folder / "gone")
    assert store.best_installed(KNOWN) == good


def test_any_architecture_that_is_asked_for_will_do(folder: Path) -> None:
    path = add(folder, "other", architecture="paraformer")
    assert store.best_installed(("sensevoice-small", "paraformer")) == path


def test_architecture_counts_for_more_than_the_weights(folder: Path) -> None:
    add(folder, "paraformer-f16", "f16", architecture="paraformer")
    path = add(folder, "sensevoice-small-q8", "q8_0")
    assert store.best_installed(("sensevoice-small", "paraformer")) == path


def test_a_model_without_all_that_it_needs_is_passed_over(folder: Path) -> None:
    add(folder, "alone", "f16")
    path = add(folder, "whole", "q8_0")
    assert store.best_installed(KNOWN, lambda file: file.path == path) == path
    with pytest.raises(ModelNotFoundError, match="alone is installed, but lacks something; --model alone says what"):
        store.best_installed(KNOWN, lambda _file: False)


def test_what_is_a_circle_of_links_is_no_model_of_the_registry(folder: Path) -> None:
    (folder / "sensevoice-small-q8.gguf").symlink_to("sensevoice-small-q8.gguf")
    assert store.model_of(add(folder, "mine")) is None


def test_built_in_speech_models_are_demonstrations_and_copies_of_them_are_not(folder: Path) -> None:
    for name in store.DEMONSTRATION_MODELS:
        assert store.is_demonstration(store.find(name))
        copied = folder / f"{name}.gguf"
        copied.write_bytes(store.find(name).read_bytes())
        assert not store.is_demonstration(copied)
    assert not store.is_demonstration(store.find(store.VAD_MODEL))


def test_model_without_tensors_ranks_as_f32(folder: Path) -> None:
    write_gguf(folder / "a.gguf", "sensevoice-small", {"x": 1}, {})
    other = add(folder, "b", "q8_0")
    assert store.best_installed(KNOWN) == other
    other.unlink()
    assert store.best_installed(KNOWN) == folder / "a.gguf"


@pytest.mark.parametrize("content", ["nothing", "no folder", "foreign", "broken"])
def test_none_installed_says_how_to_get_one(folder: Path, monkeypatch: pytest.MonkeyPatch, content: str) -> None:
    if content == "no folder":
        monkeypatch.setenv(store.FOLDER_VARIABLE, str(folder / "none"))
    elif content == "foreign":
        add(folder, "vad", architecture="fsmn-vad")
    elif content == "broken":
        (folder / "half.gguf").write_bytes(b"GGUF")
    with pytest.raises(ModelNotFoundError) as caught:
        store.best_installed(KNOWN)
    message = str(caught.value)
    assert store.download_command() in message
    assert "--model digits" in message
    assert message.isprintable()
