"""What a file says of itself: put together from what is known, written, and read without believing everything."""

from pathlib import Path
from typing import Any

import gguf
import pytest

from liveasr import provenance, store
from liveasr.gguf_file import GgufFile
from liveasr.provenance import KEYS, LANGUAGES_KEY, UNKNOWN, Provenance, of_page
from tests.helpers import write_gguf

HUB = "https://huggingface.co/me/mine"


def said(path: Path, **metadata: Any) -> Provenance:
    """What a file of some general.* keys says; _ stands for a dot."""
    write_gguf(path / "m.gguf", "x", {f"general.{key.replace('_', '.')}": value for key, value in metadata.items()}, {})
    with GgufFile(path / "m.gguf") as file:
        return provenance.read(file)


def test_keys_are_those_of_the_gguf_package() -> None:
    known = gguf.Keys.General
    assert {field: keys[0] for field, keys in KEYS.items() if field != "revision"} == {
        "name": known.NAME,
        "author": known.AUTHOR,
        "organization": known.ORGANIZATION,
        "licence": known.LICENSE,
        "licence_name": known.LICENSE_NAME,
        "licence_link": known.LICENSE_LINK,
        "source": known.SOURCE_URL,
        "repository": known.SOURCE_REPO_URL,
    }
    assert known.LANGUAGES == LANGUAGES_KEY


def test_a_file_without_words_says_nothing(tmp_path: Path) -> None:
    assert said(tmp_path) == UNKNOWN


def test_keys_of_others_are_understood(tmp_path: Path) -> None:
    found = said(tmp_path, basename="Ten", url="https://example.org", source_huggingface_repository="a/b")
    assert (found.name, found.source, found.repository) == ("Ten", "https://example.org", "a/b")


def test_what_a_file_says_cannot_write_on_the_terminal_nor_fill_it(tmp_path: Path) -> None:
    found = said(tmp_path, name="\x1b[2Jgone\nruns", license="L" * 9000, languages=["en\x1b[2J", "zh", "x" * 9000, ""])
    assert found.name == " [2Jgone runs"
    assert found.licence == "L" * 300 + " ..."
    assert found.languages == ("zh",)


@pytest.mark.parametrize("value", [7, True, 0.5, ["a"]])
def test_what_is_no_text_is_passed_over(tmp_path: Path, value: object) -> None:
    assert said(tmp_path, name=value, license=value) == UNKNOWN
    assert said(tmp_path, languages=7) == UNKNOWN


@pytest.mark.parametrize(
    ("identifier", "name", "link", "words"),
    [
        (None, None, None, None),
        ("MIT", None, None, "MIT"),
        ("MIT", "the MIT licence", None, "MIT"),
        ("other", "the house's own", None, "the house's own"),
        ("Other", None, None, "Other"),
        ("other", "own", "https://example.org", "own, https://example.org"),
        (None, "own", None, "own"),
        (None, None, "https://example.org", "https://example.org"),
    ],
)
def test_a_licence_is_told_in_its_best_words(
    identifier: str | None, name: str | None, link: str | None, words: str | None
) -> None:
    assert Provenance(licence=identifier, licence_name=name, licence_link=link).licence_words == words


# Put together.


def test_what_is_not_known_comes_from_the_other() -> None:
    one = Provenance(name="one", revision="1f", languages=("en",))
    other = Provenance(name="other", author="Ann", licence="MIT", repository=HUB, revision="2e", languages=("zh",))
    assert one.or_else(other) == Provenance("one", "Ann", None, "MIT", repository=HUB, revision="1f", languages=("en",))
    assert UNKNOWN.or_else(other) == other
    assert other.or_else(UNKNOWN) == other


def test_a_licence_is_not_put_together_from_two() -> None:
    other = Provenance(licence="other", licence_name="own", licence_link="https://example.org")
    assert Provenance(licence="MIT").or_else(other) == Provenance(licence="MIT")
    assert Provenance(licence_link="https://mine").or_else(other) == Provenance(licence_link="https://mine")


def test_a_revision_belongs_to_its_source() -> None:
    other = Provenance(repository=HUB, revision="2e")
    page = Provenance(source="https://example.org")
    assert page.or_else(other) == page
    assert Provenance(repository=f"{HUB}2").or_else(other).revision is None
    assert Provenance(repository=HUB).or_else(other).revision == "2e"


@pytest.mark.parametrize(
    ("url", "repository"),
    [
        ("https://huggingface.co/me/mine", HUB),
        ("http://www.huggingface.co/me/mine/tree/main?x=1", HUB),
        ("https://www.modelscope.cn/models/me/mine/summary", "https://modelscope.cn/models/me/mine"),
        ("https://huggingface.co/me", None),
        ("https://huggingface.co.example.org/me/mine", None),
        ("https://example.org/https://huggingface.co/me/mine", None),
    ],
)
def test_a_page_of_a_repository_is_known_as_one(url: str, repository: str | None) -> None:
    if repository is None:
        assert of_page(url) == Provenance(source=url)
    else:
        assert of_page(url) == Provenance(name="mine", organization="me", repository=repository)
        assert provenance.repository_name(repository) == "me/mine"


# The models of the package.


@pytest.mark.parametrize("name", [*store.DEMONSTRATION_MODELS, store.VAD_MODEL])
def test_built_in_models_say_their_licence_as_the_registry_does(name: str) -> None:
    with GgufFile(store.built_in(name)) as file:
        found = provenance.read(file)
    registered = store.registry()[name]
    assert found.licence == registered.licence
    assert found.languages == registered.languages
    assert found.name is not None
    assert found.author is not None


def test_the_detector_keeps_its_name_and_names_its_source() -> None:
    """As its licence demands."""
    with GgufFile(store.built_in(store.VAD_MODEL)) as file:
        found = provenance.read(file)
    assert found.name == "speech_fsmn_vad_zh-cn-16k-common-pytorch"
    assert found.author == "Alibaba Group / FunASR"
    assert found.repository == f"https://modelscope.cn/models/iic/{found.name}"
