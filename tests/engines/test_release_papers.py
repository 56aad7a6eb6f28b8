"""What a checkpoint's folder tells of itself gets into the file; what nobody tells does not, and nothing is guessed."""

import json
import logging
import shutil
from pathlib import Path

import pytest

from liveasr import provenance, store
from liveasr.engines.convert import convert
from liveasr.engines.release_papers import provenance_of
from liveasr.gguf_file import GgufFile
from liveasr.provenance import UNKNOWN, Provenance

COMMIT = "3eb3b4eeffc2f2dde6051b853983753db33e35c3"
CARD = """\
---
license: other
license_name: model-license
license_link: https://github.com/modelscope/FunASR/blob/main/MODEL_LICENSE
language:
- en
- zh
- no
tags: [speech, 2]
pipeline_tag: automatic-speech-recognition
---

# A model
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder without papers, and no registry of the user's."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "checkpoint").mkdir()
    return tmp_path / "checkpoint"


def put(path: Path, content: str) -> None:
    path.write_text(content, encoding="utf-8")


def named(folder: Path, **names: object) -> None:
    """A configuration.json with the names of the model on the hubs."""
    put(folder / "configuration.json", json.dumps({"framework": "pytorch", "model_name_in_hub": names}))


# What is found.


def test_folder_without_papers_tells_nothing(folder: Path) -> None:
    assert provenance_of(folder, UNKNOWN) == UNKNOWN


def test_card_tells_licence_and_languages(folder: Path) -> None:
    put(folder / "README.md", CARD)
    assert provenance_of(folder, UNKNOWN) == Provenance(
        licence="other",
        licence_name="model-license",
        licence_link="https://github.com/modelscope/FunASR/blob/main/MODEL_LICENSE",
        languages=("en", "zh", "no"),
    )


@pytest.mark.parametrize(
    ("card", "licence", "languages"),
    [
        ("---\nlicense: Apache License 2.0\nlanguage: cn\n---\n", "Apache License 2.0", ("zh",)),  # ModelScope's way
        ("---\r\nlicense: mit\r\nlanguage: [ja, ja]\r\n---\r\n", "mit", ("ja",)),
        ("\ufeff---\nlicense: mit\n---\n", "mit", ()),
        ("---\nlicense: 1.0\n---", "1.0", ()),
        ("---\nlicense:\nlanguage:\n---\n", None, ()),
        ("---\nlicense: [a, b]\nlanguage: {a: b}\n---\n", None, ()),
        ('---\nlicense: "two\\nlines"\nlanguage: [中文, "", 7, "a b", en]\n---\n', None, ("en",)),
        (f"---\nlicense: {'L' * 400}\n---\n", None, ()),
        ("---\n- license\n---\n", None, ()),
        ("# No front matter\n---\nlicense: mit\n---\n", None, ()),
        ("---\nlicense: mit\n", None, ()),
        ("", None, ()),
    ],
)
def test_cards_of_all_kinds(folder: Path, card: str, licence: str | None, languages: tuple[str, ...]) -> None:
    (folder / "README.md").write_bytes(card.encode())
    assert provenance_of(folder, UNKNOWN) == Provenance(licence=licence, languages=languages)


def test_configuration_tells_the_repository(folder: Path) -> None:
    named(folder, ms="someone/something", hf="")
    assert provenance_of(folder, UNKNOWN) == Provenance(
        name="something", organization="someone", repository="https://modelscope.cn/models/someone/something"
    )
    named(folder, ms="someone/something", hf="other/thing")
    assert provenance_of(folder, UNKNOWN).repository == "https://huggingface.co/other/thing"


@pytest.mark.parametrize("name", ["", "a", "a/b/c", "../x", "a/..", "a/b\n", 1, None, ["a/b"]])
def test_what_is_no_repository_is_passed_over(folder: Path, name: object) -> None:
    named(folder, ms=name)
    assert provenance_of(folder, UNKNOWN) == UNKNOWN


def in_cache(tmp_path: Path, name: str, revision: str = COMMIT) -> Path:
    folder = tmp_path / "hub" / f"models--{name}" / "snapshots" / revision
    folder.mkdir(parents=True)
    return folder


def test_path_in_the_cache_of_hugging_face_tells_repository_and_revision(tmp_path: Path) -> None:
    folder = in_cache(tmp_path, "some-one--Some.Thing")
    (tmp_path / "link").symlink_to(folder)
    for way in (folder, tmp_path / "link"):
        assert provenance_of(way, UNKNOWN) == Provenance(
            name="Some.Thing",
            organization="some-one",
            repository="https://huggingface.co/some-one/Some.Thing",
            revision=COMMIT,
        )


def test_path_tells_more_truly_than_configuration(tmp_path: Path) -> None:
    """The revision is of the repository that the folder was fetched from."""
    folder = in_cache(tmp_path, "someone--else")
    named(folder, ms="iic/SenseVoiceSmall")
    found = provenance_of(folder, UNKNOWN)
    assert (found.name, found.repository) == ("else", "https://huggingface.co/someone/else")
    assert found.licence is None


@pytest.mark.parametrize(("name", "revision"), [("a--b", "main"), ("a--b", "x" * 40), ("a", COMMIT), ("a--", COMMIT)])
def test_other_paths_tell_nothing(tmp_path: Path, name: str, revision: str) -> None:
    assert provenance_of(in_cache(tmp_path, name, revision), UNKNOWN) == UNKNOWN


# What the registry adds.


@pytest.mark.parametrize(
    ("repository", "licence", "languages"),
    [
        ("iic/SenseVoiceSmall", "FunASR Model License 1.1", ("zh", "yue", "en", "ja", "ko")),
        ("iic/speech_paraformer-large_asr_nat-zh-cn-16k-common-vocab8404-pytorch", None, ("zh", "en")),
        ("iic/speech_paraformer-large_asr_nat-zh-cn-16k-common-vocab8404-online", None, ("zh", "en")),
        ("FunAudioLLM/Fun-ASR-Nano-2512", "Apache-2.0", ("zh", "en", "ja")),
        ("iic/speech_fsmn_vad_zh-cn-16k-common-pytorch", "FunASR Model License 1.1", ()),
        ("someone/SenseVoiceSmall", None, ()),
    ],
)
def test_registry_knows_released_checkpoints_and_no_others(
    folder: Path, repository: str, licence: str | None, languages: tuple[str, ...]
) -> None:
    named(folder, ms=repository)
    found = provenance_of(folder, UNKNOWN)
    assert (found.licence, found.languages) == (licence, languages)


def test_card_stands_above_the_registry(tmp_path: Path) -> None:
    folder = in_cache(tmp_path, "FunAudioLLM--SenseVoiceSmall")
    put(folder / "README.md", CARD)
    found = provenance_of(folder, UNKNOWN)
    assert found.licence_words == "model-license, https://github.com/modelscope/FunASR/blob/main/MODEL_LICENSE"
    assert found.languages == ("en", "zh", "no")


def test_what_the_caller_tells_stands_above_everything(tmp_path: Path) -> None:
    folder = in_cache(tmp_path, "FunAudioLLM--SenseVoiceSmall")
    put(folder / "README.md", CARD)
    told = Provenance("Mine", "Me", "us", licence="MIT", source="https://example.org", languages=("fr",))
    assert provenance_of(folder, told) == told
    assert provenance_of(folder, Provenance(revision="v2")).revision == "v2"


def test_registry_of_the_users_own_counts_too(folder: Path) -> None:
    registry = store.registry_path()
    if not registry.is_relative_to(folder.parent):
        pytest.skip("this system's configuration folder cannot be moved")
    registry.parent.mkdir(parents=True)
    put(registry, '[mine]\nlanguages = ["fr"]\nlicence = "MIT"\ninstead = "ask"\ncheckpoints = ["me/mine"]\n')
    named(folder, hf="me/mine")
    found = provenance_of(folder, UNKNOWN)
    assert (found.licence, found.languages) == ("MIT", ("fr",))


# Broken papers are no reason not to convert.


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("README.md", b"---\nlicense: [\n---\n"),
        ("README.md", b"---\n\xff\n---\n"),
        ("README.md", b"---\n" + b"[" * 5000 + b"\n---\n"),
        ("configuration.json", b"{"),
        ("configuration.json", b"[" * 100_000),
        ("configuration.json", b"\xff"),
    ],
)
def test_broken_papers_are_passed_over_with_a_line(
    folder: Path, name: str, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / name).write_bytes(content)
    with caplog.at_level(logging.WARNING, "liveasr"):
        assert provenance_of(folder, UNKNOWN) == UNKNOWN
    (message,) = caplog.messages
    assert message.startswith(f"{folder / name}: cannot be read and is passed over: ")
    assert message.isprintable()


def test_objects_in_a_card_are_not_made(folder: Path, tmp_path: Path) -> None:
    marker = tmp_path / "made"
    put(folder / "README.md", f"---\nlicense: !!python/object/apply:os.mkdir [{marker}]\n---\n")
    assert provenance_of(folder, UNKNOWN) == UNKNOWN
    assert not marker.exists()


@pytest.mark.parametrize("name", ["README.md", "configuration.json"])
def test_papers_that_are_large_or_folders_are_passed_over(folder: Path, name: str) -> None:
    (folder / name).write_bytes(b"---\nlicense: mit\n---\n" + b" " * (2 << 20))
    assert provenance_of(folder, UNKNOWN) == UNKNOWN
    (folder / name).unlink()
    (folder / name).mkdir()
    assert provenance_of(folder, UNKNOWN) == UNKNOWN


# In the files.


def test_both_files_of_nano_tell_it(golden: Path, tmp_path: Path) -> None:
    folder = in_cache(tmp_path, "FunAudioLLM--Fun-ASR-Nano-2512")
    shutil.copytree(golden / "nano-tiny", folder, copy_function=shutil.copyfile, dirs_exist_ok=True)
    output = tmp_path / "nano.gguf"
    convert(folder, output)
    for path in (output, store.language_model_path(output)):
        with GgufFile(path) as file:
            assert provenance.read(file) == Provenance(
                name="Fun-ASR-Nano-2512",
                organization="FunAudioLLM",
                licence="Apache-2.0",
                repository="https://huggingface.co/FunAudioLLM/Fun-ASR-Nano-2512",
                revision=COMMIT,
                languages=("zh", "en", "ja"),
            )
