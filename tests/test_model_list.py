"""Which models are told to be here, and what is removed when one is to go."""

import errno
import json
import os
import pty
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.cells import cell_len

from liveasr import store
from liveasr.errors import ModelNotFoundError, UsageError
from liveasr.model_list import list_models, listed, remove
from tests.helpers import Metadata, edited
from tests.models import write_model


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of models, and no registry of the user's."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    models = tmp_path / "models"
    models.mkdir()
    monkeypatch.setenv(store.FOLDER_VARIABLE, str(models))
    return models


def add(folder: Path, name: str, kind: str = "f32", architecture: str = "sensevoice-small") -> Path:
    return write_model(folder / f"{name}.gguf", architecture, kind)


def states() -> dict[str, str]:
    return {row.name if row.variant is None else f"{row.name}:{row.variant}": row.state for row in listed()}


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


# list


def test_an_empty_folder_has_what_is_built_in_and_what_can_be_had(folder: Path) -> None:
    del folder
    assert states() == {
        **{f"sensevoice-small:{variant}": "available" for variant in ("q8", "f16", "f32")},
        **{f"paraformer:{variant}": "available" for variant in ("q8", "f16", "f32")},
        "paraformer-streaming": "to convert",
        **{f"fun-asr-nano:{variant}": "available" for variant in ("q8_0", "q5km", "q4km")},
        **dict.fromkeys(("fsmn-vad", "digits", "digits-paraformer"), "built-in"),
    }
    assert [f"{row.name}:{row.variant}" for row in listed() if row.default] == [
        "sensevoice-small:q8",
        "paraformer:q8",
        "fun-asr-nano:q8_0",
    ]


def test_what_is_installed_begun_converted_or_damaged_is_told(folder: Path) -> None:
    add(folder, "sensevoice-small")
    add(folder, "funasr-encoder-f16")  # without a language model it is none of the variants
    add(folder, "paraformer-streaming")
    (folder / "paraformer-f16.gguf.part").write_bytes(b"GGUF")
    (folder / "half.gguf").write_bytes(b"GGUF")
    add(folder, "mine", "q8_0")
    found = states()
    assert found["sensevoice-small:f32"] == "installed"
    assert found["sensevoice-small:q8"] == "available"
    assert found["fun-asr-nano:q8_0"] == "available"
    assert found["paraformer-streaming"] == "installed"
    assert found["paraformer:f16"] == "begun"
    assert found["half"] == "damaged"
    assert found["mine"] == "installed"


def test_both_files_of_nano_count(folder: Path) -> None:
    paths = [add(folder, "funasr-encoder-f16"), add(folder, "qwen3-0.6b-q4km")]
    assert states()["fun-asr-nano:q4km"] == "installed"
    (row,) = (row for row in listed() if row.variant == "q4km")
    assert row.size_bytes == sum(path.stat().st_size for path in paths)
    assert row.files == tuple(map(str, paths))


def test_the_table_has_a_line_a_variant(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = add(folder, "sensevoice-small-q8")
    assert list_models(as_json=False) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["STATE", "MODEL", "SIZE", "LANGUAGES", "LICENCE"]
    (line,) = (line for line in lines if "sensevoice-small:q8" in line)
    size = f"{path.stat().st_size / 1e6:.1f} MB"
    assert (
        line.split()
        == f"installed sensevoice-small:q8 (default) {size} zh yue en ja ko FunASR Model License 1.1".split()
    )
    assert len(lines) == 1 + len(listed())
    columns = {lines[0].index("LICENCE")}
    for row, text in zip(listed(), lines[1:], strict=True):
        if row.licence:
            columns.add(text.rindex(row.licence))
    assert len(columns) == 1


def test_a_file_of_ones_own_tells_its_languages_and_licence(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said: Metadata = {"general.license": "MIT", "general.languages": ["fr", "de"]}
    edited(store.built_in("digits"), folder / "mine.gguf", metadata=said)
    edited(store.built_in("digits"), folder / "silent.gguf")
    rows = {row.name: row for row in listed()}
    assert (rows["mine"].weights, rows["mine"].languages, rows["mine"].licence) == ("f32", ("fr", "de"), "MIT")
    assert (rows["silent"].languages, rows["silent"].licence) == ((), None)
    assert list_models(as_json=False) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "fr de" in lines[-2]
    assert lines[-2].endswith("MIT")


def test_a_converted_file_tells_more_than_the_registry(folder: Path) -> None:
    path = edited(store.built_in("digits"), folder / "paraformer-streaming.gguf")
    (row,) = (row for row in listed() if row.name == "paraformer-streaming")
    assert (row.state, row.variant, row.files) == ("installed", None, (str(path),))
    assert (row.languages, row.licence) == (("zh", "en"), "as its model card says")
    edited(store.built_in("digits"), path, metadata={"general.license": "MIT", "general.languages": ["fr"]})
    (row,) = (row for row in listed() if row.name == "paraformer-streaming")
    assert (row.languages, row.licence, row.size_bytes) == (("fr",), "MIT", path.stat().st_size)
    path.write_bytes(b"GGUF")
    assert states()["paraformer-streaming"] == "damaged"


def test_what_a_file_says_cannot_break_the_table(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said: Metadata = {"general.license": "\x1b[2J\n" + "L" * 9000, "general.languages": ["en\n", "fr"]}
    edited(store.built_in("digits"), folder / "mine.gguf", metadata=said)
    assert list_models(as_json=False) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert len(out.splitlines()) == 1 + len(listed())
    assert "L" * 301 not in out


def test_no_name_of_a_file_breaks_the_table(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("line\nend", "esc\x1b[31m", "模型", "mine", os.fsdecode(b"\xff")):
        add(folder, name)
    assert list_models(as_json=False) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + len(listed())
    assert all(line.isprintable() for line in lines)
    shown = [line.split()[1] for line in lines[-5:]]
    assert sorted(shown) == ["\\udcff", "esc\\x1b[31m", "line\\nend", "mine", "模型"]
    assert len({cell_len(line) for line in lines[-5:]}) == 1


def test_json_has_every_variant_whole(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = add(folder, "sensevoice-small-q8")
    assert list_models(as_json=True) == 0
    rows = json.loads(capsys.readouterr().out)
    assert len(rows) == len(listed())
    assert rows[0] == {
        "name": "sensevoice-small",
        "variant": "q8",
        "default": True,
        "state": "installed",
        "files": [str(path)],
        "size_bytes": path.stat().st_size,
        "languages": ["zh", "yue", "en", "ja", "ko"],
        "licence": "FunASR Model License 1.1",
        "instead": None,
        "weights": None,
    }


def test_what_is_listed_is_a_name_to_use_and_to_remove(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("mine", "a:b", "sp ace", "sensevoice-small-q8"):
        add(folder, name)
    assert list_models(as_json=False) == 0
    listing = [line.partition("  ")[2].strip() for line in capsys.readouterr().out.splitlines()]
    shown = [line.partition("  ")[0].partition(" (")[0] for line in listing]
    installed = [name for name in shown if name in {"mine", "a:b", "sp ace", "sensevoice-small:q8"}]
    assert len(installed) == len(names(folder))
    for name in installed:
        path = store.find(name)
        assert path.is_file()
        assert remove(name, yes=True) == 0
        assert not path.exists()


def test_only_files_are_models(folder: Path) -> None:
    (folder / "folder.gguf").mkdir()
    (folder / "gone.gguf").symlink_to(folder / "nothing")
    os.mkfifo(folder / "pipe.gguf")  # which would be waited for
    add(folder, "mine", architecture=store.NANO_ARCHITECTURE)
    assert [row.name for row in listed() if row.state in ("installed", "damaged")] == ["mine"]
    with pytest.raises(ModelNotFoundError, match="no speech model is installed"):
        store.best_installed(("paraformer",))


def test_a_folder_that_may_not_be_read_is_no_empty_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_folder: Path) -> Iterator[Path]:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))

    monkeypatch.setattr(Path, "iterdir", refuse)  # nothing is forbidden to root
    with pytest.raises(PermissionError):
        store.best_installed(("paraformer",))


# Names.


def test_names_of_the_registry_have_variants() -> None:
    model, variant = store.registered("fun-asr-nano:q4km")
    assert (model.name, variant) == ("fun-asr-nano", "q4km")
    assert store.registered("paraformer")[1] is None
    with pytest.raises(ModelNotFoundError, match=r"^no model named none in the registry; known are sensevoice-small, "):
        store.registered("none")
    with pytest.raises(ModelNotFoundError, match=r"^paraformer has no variant q9; known are q8, f16, f32$"):
        store.registered("paraformer:q9")
    with pytest.raises(ModelNotFoundError, match=r"^digits has no variants; say just digits$"):
        store.registered("digits:f32")


# rm


@pytest.mark.parametrize(
    ("name", "stay"),
    [
        ("sensevoice-small", {"a.gguf", "funasr-encoder-f16.gguf", "qwen3-0.6b-q8_0.gguf", "qwen3-0.6b-q4km.gguf"}),
        ("sensevoice-small:q8", {"a.gguf", "sensevoice-small.gguf", "funasr-encoder-f16.gguf", "qwen3-0.6b-q8_0.gguf",
                                 "qwen3-0.6b-q4km.gguf"}),
        # Its encoder is the other variant's too.
        ("fun-asr-nano:q4km", {"a.gguf", "sensevoice-small.gguf", "sensevoice-small-q8.gguf", "funasr-encoder-f16.gguf",
                               "qwen3-0.6b-q8_0.gguf"}),
        ("fun-asr-nano", {"a.gguf", "sensevoice-small.gguf", "sensevoice-small-q8.gguf"}),
    ],
)  # fmt: skip
def test_a_model_goes_with_what_only_it_needs(folder: Path, name: str, stay: set[str]) -> None:
    for file in ("a", "sensevoice-small", "sensevoice-small-q8", "funasr-encoder-f16", "qwen3-0.6b-q8_0",
                 "qwen3-0.6b-q4km"):  # fmt: skip
        add(folder, file)
    assert remove(name, yes=True) == 0
    assert names(folder) == stay


def test_a_file_that_another_model_needs_stays(folder: Path) -> None:
    registry = store.registry_path()
    registry.parent.mkdir(parents=True)
    encoder, own = (
        "{ name = 'funasr-encoder-f16.gguf', url = 'http://x/y' }",
        "{ name = 'own.gguf', url = 'http://x/y' }",
    )
    registry.write_text(
        f"[mine]\nlanguages = []\nvariants.all = [{encoder}, {own}]\n[too]\nlanguages = []\nvariants.all = [{own}]\n"
    )
    for name in ("funasr-encoder-f16", "qwen3-0.6b-q8_0", "own"):
        add(folder, name)
    assert remove("mine", yes=True) == 0
    assert names(folder) == {"funasr-encoder-f16.gguf", "qwen3-0.6b-q8_0.gguf"}
    assert remove("fun-asr-nano", yes=True) == 0
    assert names(folder) == set()


def test_a_file_goes_by_its_own_name_with_its_language_model_and_what_was_begun(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    going = [add(folder, "mine"), add(folder, "mine-llm")]
    for ending in (".part", ".part.id"):
        going.append(folder / f"mine.gguf{ending}")
        going[-1].write_bytes(b"GGUF")
    staying = {add(folder, name).name for name in ("mine2", "sensevoice-small-q8")}
    size_bytes = sum(path.stat().st_size for path in going)
    assert remove("mine", yes=True) == 0
    assert names(folder) == staying
    lines = capsys.readouterr().out.splitlines()
    assert set(lines[:-1]) == set(map(str, going))
    assert lines[-1] == f"removed, {size_bytes / 1e6:.1f} MB"


@pytest.mark.parametrize("name", ["digits", "fsmn-vad"])
def test_what_is_built_in_stays(folder: Path, name: str) -> None:
    path = add(folder, name)
    with pytest.raises(UsageError, match=f"{name} is built in"):
        remove(name, yes=True)
    assert path.exists()
    assert store.built_in(name).exists()


@pytest.mark.parametrize("name", ["nothing", "paraformer", "paraformer-streaming", "sensevoice-small:f16"])
def test_what_is_not_installed_cannot_be_removed(folder: Path, name: str) -> None:
    add(folder, "sensevoice-small-q8")
    with pytest.raises(ModelNotFoundError, match=f"no model named {name} in "):
        remove(name, yes=True)
    assert names(folder) == {"sensevoice-small-q8.gguf"}


def test_a_path_is_no_name(folder: Path, tmp_path: Path) -> None:
    elsewhere = add(tmp_path, "precious")
    for name in (str(elsewhere.with_suffix("")), "../precious"):
        with pytest.raises(UsageError, match="rm takes the name of an installed model"):
            remove(name, yes=True)
    assert elsewhere.exists()
    assert names(folder) == set()


def test_where_nobody_can_be_asked_nothing_is_removed(folder: Path) -> None:
    path = add(folder, "mine")
    command = [sys.executable, "-m", "liveasr", "models", "rm", "mine"]
    result = subprocess.run(command, input="y\n", capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 1
    assert result.stderr == "liveasr: nothing was removed: nobody is here to be asked; add --yes\n"
    assert path.exists()


@pytest.mark.parametrize(("answer", "code"), [(b"y\n", 0), (b"n\n", 1), (b"\n", 1), (b"\x03", 130)])
def test_somebody_is_asked_first(folder: Path, answer: bytes, code: int) -> None:
    path = add(folder, "mine")
    controller, terminal = pty.openpty()
    command = [sys.executable, "-m", "liveasr", "models", "rm", "mine"]
    # A session of its own, whose terminal this becomes, so that Ctrl-C reaches it.
    with subprocess.Popen(
        [sys.executable, "-c", CLAIM_TERMINAL, *command], stdin=terminal, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, start_new_session=True,
    ) as process:  # fmt: skip
        os.close(terminal)
        assert process.stdout is not None
        assert process.stdout.readline().decode() == f"{path}\n"
        assert process.stderr is not None
        asked = b""
        while not asked.endswith(b"Remove 0.0 MB? [y/N]: "):
            piece = os.read(process.stderr.fileno(), 1)
            assert piece, asked
            asked += piece
        os.write(controller, answer)
        while (
            answer == b"\x03" and process.poll() is None
        ):  # pressed again: one just before the read begins is not seen
            time.sleep(0.2)
            os.write(controller, answer)
        _out, err = process.communicate(timeout=60)
    os.close(controller)
    assert process.returncode == code, err
    assert b"Traceback" not in err
    assert path.exists() == (code != 0)


CLAIM_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""
