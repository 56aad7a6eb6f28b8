"""Converted files hold what another writer of the layout makes of the same checkpoint: the reference tools' to_gguf.py.

They have more keys, of where the model is from; without these they are the other writer's byte for byte.
"""

import hashlib
from pathlib import Path

import gguf
import pytest

from liveasr import provenance, store
from liveasr.engines.convert import WeightType, convert
from liveasr.gguf_file import GgufFile
from liveasr.provenance import KEYS, LANGUAGES_KEY, Provenance
from tests.built_in_models import RECIPES, make

# SHA-256 of what to_gguf.py writes of the goldens' checkpoints: gguf 0.19.0, torch 2.13.0.
TINY = {
    ("sensevoice-tiny", "f32"): "b9e078a930db459478f444016dd3ab8bb4f60227d765cbbd2921a4c0b211bdf2",
    ("sensevoice-tiny", "f16"): "d9d2d7d54d39a3198dfd6a84b49eee6485f72d0a41db14d7ab5069c403991972",
    ("sensevoice-tiny", "q8_0"): "aae81c7838ed7cd7940b9b2ac5d4d99ce363a2f082ed0caf83e8eb862b4aa87f",
    ("paraformer-tiny", "f32"): "a7d0a7ac026a2310dc118ab17ef0af3d88820edb7b6f87758df90d323b523ba7",
    ("paraformer-tiny", "f16"): "acb1b8bc6e66284e8a83993568ba632e67265e127f4a76fd912285c92e26523c",
    ("paraformer-tiny", "q8_0"): "84bb4b59673873d2b8d2d074cdeefea3789e8799c57b58c7bcf6f89b48e71472",
}
NANO: dict[WeightType, tuple[str, str]] = {
    "f32": (
        "2f5de3c0c18e5725faca3b08be93b0bbb9934941db233b12803d378002beda56",
        "1988c4c488f277b5bf423690bb79e919c0056b9d03365212aa46c97a014bbdd9",
    ),
    "f16": (
        "ae9ba712c7e3926183a9b17af129e938ce07b5aa529c55672687b6512a7eae3c",
        "08bdf9e3975dbb5fc26be46ce7b9484d4e403bf6fbd2b8ddaeff8b192173dbea",
    ),
    "q8_0": (
        "071c2b47187606db66ee4b5f3c710f0a2b1463fd698a830d6e14629de8029b5c",
        "39a855e8c2621c9ab3ec8b30adf9b5e59a97d7fea8d80ee3d48c1de2e8f22287",
    ),
}
# Of the checkpoints that the built-in models are made of.
BUILT_IN = {
    "digits": "b90d619508af6e0c3daacfe0e6c315d753d28e1e6c9dbc3da2fd1ba4833a0587",
    "digits-paraformer": "ae49e9930308af7516a24bfa459724692106f978d6c5e0db0341a6900953fdfc",
    "fsmn-vad": "1270f2559c495f4e7b6e739541151027d360761a3fda43fc147034f5719f5479",
}
FULL = Provenance(
    name="Ten Words",
    author="Someone",
    organization="somewhere",
    licence="other",
    licence_name="a licence",
    licence_link="https://example.org/licence",
    repository="https://huggingface.co/somewhere/ten-words",
    revision="1f2e3d",
    languages=("en", "zh"),
)
OWN_KEYS = {LANGUAGES_KEY, *(key for keys in KEYS.values() for key in keys)}


def without_own_keys(path: Path) -> bytes:
    """A GGUF file as it would be without the keys that the published layout does not have."""
    reader = gguf.GGUFReader(path)
    fields = [field for name, field in reader.fields.items() if not name.startswith("GGUF.")]
    kept = [field for field in fields if field.name not in OWN_KEYS and not field.name.startswith("liveasr.")]
    assert len(kept) < len(fields)
    head = b"GGUF" + (3).to_bytes(4, "little")
    head += len(reader.tensors).to_bytes(8, "little") + len(kept).to_bytes(8, "little")
    head += b"".join(map(raw, (*kept, *(tensor.field for tensor in reader.tensors))))
    head += bytes(-len(head) % reader.alignment)
    return head + path.read_bytes()[reader.data_offset :]


def raw(field: gguf.ReaderField) -> bytes:
    return b"".join(part.tobytes() for part in field.parts)


def digest(path: Path) -> str:
    return hashlib.sha256(without_own_keys(path)).hexdigest()


@pytest.mark.parametrize("told", [Provenance(), FULL], ids=["unknown", "known"])
@pytest.mark.parametrize(("name", "weight_type"), TINY)
def test_encoder_files_are_those_of_another_writer(
    golden: Path, tmp_path: Path, name: str, weight_type: WeightType, told: Provenance
) -> None:
    output = tmp_path / "model.gguf"
    convert(golden / name, output, weight_type, told)
    assert digest(output) == TINY[name, weight_type]


@pytest.mark.parametrize("told", [Provenance(), FULL], ids=["unknown", "known"])
@pytest.mark.parametrize("weight_type", NANO)
def test_both_files_of_nano_are_those_of_another_writer(
    golden: Path, tmp_path: Path, weight_type: WeightType, told: Provenance
) -> None:
    output = tmp_path / "model.gguf"
    language_model = tmp_path / "model-llm.gguf"
    assert convert(golden / "nano-tiny", output, weight_type, told) == {output: 105, language_model: 24}
    assert (digest(output), digest(language_model)) == NANO[weight_type]
    assert set(tmp_path.iterdir()) == {output, language_model}


@pytest.mark.parametrize("name", BUILT_IN)
def test_built_in_models_are_those_of_another_writer(name: str) -> None:
    """So nothing that is said of them in their metadata changed a byte of their weights."""
    assert digest(store.built_in(name)) == BUILT_IN[name]


@pytest.mark.parametrize("name", RECIPES)
def test_built_in_models_are_what_their_checkpoints_become(shared: Path, tmp_path: Path, name: str) -> None:
    made = tmp_path / "made.gguf"
    make(name, shared, made)
    assert without_own_keys(made) == without_own_keys(store.built_in(name))
    with GgufFile(made) as new, GgufFile(store.built_in(name)) as shipped:
        assert provenance.read(new) == provenance.read(shipped)
        assert list(new.metadata) == list(shipped.metadata)
