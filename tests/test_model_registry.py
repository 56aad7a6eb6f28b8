"""What a registry of models may say, and how it is told what is wrong with one."""

import re
from pathlib import Path

import pytest

from liveasr import store
from liveasr.errors import RegistryError
from liveasr.model_registry import RegisteredFile, parse

ORIGIN = Path("somewhere") / "models.toml"
HASH = "0123456789abcdef" * 4
MODEL = """
[mine]
languages = ["zh", "en"]
licence = "MIT"
default = "q8"

[mine.variants]
f16 = [{ name = "mine-f16.gguf", huggingface = "me/mine/below/other.gguf" }]
q8 = [{ name = "mine-q8.gguf", url = "https://example.org/m.gguf", folder = "/srv", size-bytes = 12, sha256 = "HASH" }]
"""


def test_a_model_has_its_variants_the_default_first() -> None:
    (model,) = parse(MODEL.replace("HASH", HASH.upper()), ORIGIN).values()
    assert (model.name, model.languages, model.licence) == ("mine", ("zh", "en"), "MIT")
    assert (model.built_in, model.instead) == (False, None)
    assert list(model.variants) == ["q8", "f16"]
    # The places in the order in which they are tried, whatever the order in the file.
    assert [list(file.sources) for file in model.variants["q8"]] == [["folder", "url"]]
    assert model.variants == {
        "q8": (RegisteredFile("mine-q8.gguf", {"folder": "/srv", "url": "https://example.org/m.gguf"}, 12, HASH),),
        "f16": (RegisteredFile("mine-f16.gguf", {"huggingface": "me/mine/below/other.gguf"}),),
    }


def test_an_only_variant_is_the_default() -> None:
    text = '[a]\nlanguages = []\nlicence = "MIT"\nvariants.x = [{ name = "a.gguf", folder = "/srv" }]'
    assert list(parse(text, ORIGIN)["a"].variants) == ["x"]


def test_a_model_may_have_checkpoints_and_no_licence_of_its_own() -> None:
    text = MODEL.replace("HASH", HASH).replace('licence = "MIT"', 'checkpoints = ["me/mine", "us/mine"]')
    (model,) = parse(text, ORIGIN).values()
    assert (model.licence, model.checkpoints) == (None, ("me/mine", "us/mine"))


def test_an_empty_registry_has_no_models() -> None:
    assert parse("", ORIGIN) == {}


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("[mine]", "[mine", r"is not TOML: Expected .*line 2"),
        ("[mine]", '["My:model"]', r"'My:model': a model's name has small letters"),
        ("[mine]", "other = 1\n[mine]", r"other: Expected `object`, got `int`"),
        ('licence = "MIT"', "licence = 1", r"mine\.licence: Expected `str \| null`, got `int`"),
        ("[mine]", '[mine]\ncheckpoints = ["me"]', r"mine\.checkpoints\[0\]: OWNER/REPO was expected"),
        ("[mine]", '[mine]\ncheckpoints = "me/mine"', r"mine\.checkpoints: Expected `array`, got `str`"),
        ('["zh", "en"]', '["zh", 1]', r"mine\.languages\[1\]: Expected `str`, got `int`"),
        ("default", "defualt", r"mine: Object contains unknown field `defualt`"),
        ('default = "q8"', "", r"mine\.default: one of f16, q8 was expected, and there is none$"),
        ('default = "q8"', 'default = "q9"', r"mine\.default: one of f16, q8 was expected, not 'q9'"),
        ('default = "q8"', "built-in = true", r"mine: needs one of variants, built-in = true and instead"),
        ('default = "q8"', 'instead = "x"', r"mine: needs one of variants, built-in = true and instead"),
        ("f16 = [{", "f16 = []\nx = [{", r"mine\.variants\.f16: has no files"),
        ('name = "mine-f16.gguf", ', "", r"mine\.variants\.f16\[0\]: Object missing required field `name`"),
        ("mine-f16.gguf", "../mine.gguf", r"mine\.variants\.f16\[0\]\.name: the name of a file, as mine-f16\.gguf, "),
        ("mine-f16.gguf", "mine.bin", r"mine\.variants\.f16\[0\]\.name: the name of a file, as mine-f16\.gguf, "),
        ("me/mine/below/other.gguf", "mine", r"mine\.variants\.f16\[0\]\.huggingface: OWNER/REPO or OWNER/REPO/PATH "),
        ("huggingface", "gopher", r"mine\.variants\.f16\[0\]: Object contains unknown field `gopher`"),
        (', huggingface = "me/mine/below/other.gguf"', "", r"mine\.variants\.f16\[0\]: needs one of folder, url"),
        ("https://example", "ftp://example", r"mine\.variants\.q8\[0\]\.url: the URL of a file, as https://"),
        ("size-bytes = 12", "size-bytes = -1", r"mine\.variants\.q8\[0\]\.size-bytes: Expected `int` >= 1"),
        ("HASH", "HASH0", r"mine\.variants\.q8\[0\]\.sha256: a number of 64 hexadecimal digits was expected"),
    ],
)
def test_a_malformed_registry_is_one_line_with_file_key_and_fault(old: str, new: str, complaint: str) -> None:
    text = MODEL.replace(old, new, 1).replace("HASH", HASH)
    assert text != MODEL.replace("HASH", HASH)
    with pytest.raises(RegistryError, match=f"^{re.escape(str(ORIGIN))}: {complaint}") as caught:
        parse(text, ORIGIN)
    assert str(caught.value).isprintable()


# The package's own, and the user's.


@pytest.fixture
def own_registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the user's registry would be; its folder is there."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    path = store.registry_path()
    if not path.is_relative_to(tmp_path):
        pytest.skip("this system's configuration folder cannot be moved")
    path.parent.mkdir(parents=True)
    return path


def test_the_packages_registry_names_what_is_published_and_what_is_built_in(own_registry: Path) -> None:
    assert not own_registry.exists()
    models = store.registry()
    assert {name for name, model in models.items() if model.built_in} == {*store.DEMONSTRATION_MODELS, store.VAD_MODEL}
    assert {name: next(iter(model.variants)) for name, model in models.items() if model.variants} == {
        "sensevoice-small": "q8",
        "paraformer": "q8",
        "fun-asr-nano": "q8_0",
    }
    assert "liveasr models convert" in str(models["paraformer-streaming"].instead)
    assert [file.name for file in models["fun-asr-nano"].variants["q4km"]] == [
        "funasr-encoder-f16.gguf",
        "qwen3-0.6b-q4km.gguf",
    ]
    files = [file for model in models.values() for variant in model.variants.values() for file in variant]
    assert {tuple(file.sources) for file in files} == {("huggingface", "modelscope")}


def test_the_users_registry_adds_models_and_replaces_them(own_registry: Path) -> None:
    ours = store.registry()
    own_registry.write_text(MODEL.replace("HASH", HASH) + MODEL.replace("mine", "paraformer").replace("HASH", HASH))
    both = store.registry()
    assert set(both) == {*ours, "mine"}
    assert set(both["paraformer"].variants) == {"q8", "f16"}
    assert both["sensevoice-small"] == ours["sensevoice-small"]


@pytest.mark.parametrize(
    "text",
    [
        "[mine]\nlanguages = []\nbuilt-in = true\n",
        "[digits]\nlanguages = []\nbuilt-in = true\n",
        MODEL.replace("mine", "digits").replace("HASH", HASH),
    ],
)
def test_what_is_built_in_is_not_for_the_users_registry_to_say(own_registry: Path, text: str) -> None:
    own_registry.write_text(text)
    name = "mine" if "mine" in text else "digits"
    with pytest.raises(RegistryError, match=f"^{re.escape(str(own_registry))}: {name}: built in are digits, "):
        store.registry()


@pytest.mark.parametrize("kind", ["malformed", "no text", "a folder", "too deep", "a number too long"])
def test_a_users_registry_that_cannot_be_read_is_named(own_registry: Path, kind: str) -> None:
    match kind:
        case "malformed":
            own_registry.write_text("[x]")
        case "no text":
            own_registry.write_bytes(b"\xff\xfe")
        case "a folder":
            own_registry.mkdir()
        case "too deep":
            own_registry.write_text(f"x = {'[' * 10_000}")
        case "a number too long":
            own_registry.write_text(f"x = {'9' * 10_000}")
    with pytest.raises(RegistryError, match=re.escape(str(own_registry))) as caught:
        store.registry()
    assert str(caught.value).isprintable()


def test_a_malformed_registry_is_no_hindrance_to_models_that_need_none(own_registry: Path) -> None:
    own_registry.write_text("[x]")
    assert store.find("digits").is_file()
    with pytest.raises(RegistryError):
        store.find("paraformer-none")
