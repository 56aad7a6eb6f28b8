"""A converted file tells how its features are made, and a checkpoint that wants them otherwise is refused."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from liveasr import __version__, store
from liveasr.engines.convert import convert
from liveasr.errors import ModelFileError
from liveasr.gguf_file import GgufFile
from tests.engines.conftest import Converted, ConvertedNano
from tests.engines.spoiled import setting

FRONT_END = {
    "fs": 16_000, "window": "hamming", "n_mels": 80, "frame_length": 25, "frame_shift": 10, "lfr_m": 7, "lfr_n": 6,
}  # fmt: skip


def own_keys(path: Path) -> dict[str, object]:
    with GgufFile(path) as file:
        return {key: value for key, value in file.metadata.items() if key.startswith(("liveasr.", "general."))}


def front_end(keys: dict[str, object]) -> dict[str, object]:
    prefix = "liveasr.frontend."
    return {key.removeprefix(prefix): value for key, value in keys.items() if key.startswith(prefix)}


def test_front_end_normalisation_and_converter_are_told(
    tiny: Converted, tiny_paraformer: Converted, tiny_streaming: Converted
) -> None:
    for converted in (tiny, tiny_paraformer, tiny_streaming):
        keys = own_keys(converted("f32"))
        assert front_end(keys) == FRONT_END
        assert keys["liveasr.cmvn"] == "applied"
        assert keys["liveasr.converter"] == f"liveasr {__version__}"


def test_detector_has_its_own_stacks() -> None:
    assert front_end(own_keys(store.built_in("fsmn-vad"))) == FRONT_END | {"lfr_m": 5, "lfr_n": 1}


def test_encoder_of_nano_is_not_normalised_and_its_language_model_hears_nothing(tiny_nano: ConvertedNano) -> None:
    keys = own_keys(tiny_nano("f32"))
    assert front_end(keys) == FRONT_END
    assert keys["liveasr.cmvn"] == "none"
    written = own_keys(tiny_nano.language_model("f32"))
    assert front_end(written) == {}
    assert "liveasr.cmvn" not in written
    assert written["liveasr.converter"] == f"liveasr {__version__}"


def test_what_nobody_told_is_left_out(tiny: Converted) -> None:
    assert {key for key in own_keys(tiny("f32")) if key.startswith("general.")} == {"general.architecture"}
    assert "liveasr.revision" not in own_keys(tiny("f32"))


def test_settings_that_are_missing_are_those_of_the_reference(golden: Path, tmp_path: Path, tiny: Converted) -> None:
    folder = shutil.copytree(golden / "sensevoice-tiny", tmp_path / "c", copy_function=shutil.copyfile)
    for line in ("fs: 16000", "window: hamming", "frame_length: 25", "frame_shift: 10"):
        setting(f"  {line}\n", "")(folder)
    convert(folder, tmp_path / "model.gguf")
    assert (tmp_path / "model.gguf").read_bytes() == tiny("f32").read_bytes()


OTHERS: dict[str, tuple[Callable[[Path], object], str]] = {
    "another class": (setting("WavFrontend", "WhisperFrontend"), "frontend 'WhisperFrontend'; only WavFrontend or Wav"),
    "no class": (setting("frontend: WavFrontend\n", ""), "has the frontend None; only WavFrontend or"),
    "telephone sound": (setting("fs: 16000", "fs: 8000"), "has frontend_conf.fs 8000; only 16000 is known"),
    "another window": (setting("hamming", "povey"), "has frontend_conf.window 'povey'; only hamming is known"),
    "more bins": (setting("n_mels: 80", "n_mels: 128"), "has frontend_conf.n_mels 128; only 80 is known"),
    "longer frames": (setting("_length: 25", "_length: 32"), "has frontend_conf.frame_length 32; only 25 is known"),
    "more frames": (setting("_shift: 10", "_shift: 5"), "has frontend_conf.frame_shift 5; only 10 is known"),
    "smaller stacks": (setting("lfr_m: 7", "lfr_m: 5"), "has frontend_conf.lfr_m 5; only 7 is known"),
    "no stacks": (setting("  lfr_m: 7\n", ""), "has no whole number frontend_conf.lfr_m"),
    "shorter steps": (setting("lfr_n: 6", "lfr_n: 1"), "has frontend_conf.lfr_n 1; only 6 is known"),
    "padded edges": (setting("fs: 16000", "snip_edges: false"), "has frontend_conf.snip_edges False; only True is"),
    "small samples": (setting("fs: 16000", "upsacle_samples: false"), "has frontend_conf.upsacle_samples False; only"),
}


@pytest.mark.parametrize("name", ["sensevoice-tiny", "nano-tiny"])
@pytest.mark.parametrize(("change", "reason"), OTHERS.values(), ids=OTHERS)
def test_another_front_end_is_refused(
    golden: Path, tmp_path: Path, name: str, change: Callable[[Path], object], reason: str
) -> None:
    folder = shutil.copytree(golden / name, tmp_path / "checkpoint", copy_function=shutil.copyfile)
    change(folder)
    with pytest.raises(ModelFileError) as caught:
        convert(folder, tmp_path / "model.gguf")
    message = str(caught.value)
    assert message.startswith(f"{folder / 'config.yaml'}: ")
    assert reason in message
    assert not list(tmp_path.glob("*.gguf"))
