from pathlib import Path

import numpy as np
import pytest

from liveasr import store
from liveasr.errors import ModelFileError
from liveasr.gguf_file import GgufFile
from liveasr.vad import weights
from tests.helpers import edited

GOOD = store.built_in(store.VAD_MODEL)


def refused(path: Path, reason: str) -> None:
    with GgufFile(path) as file, pytest.raises(ModelFileError, match=reason) as caught:
        weights.load(file)
    assert str(path) in str(caught.value)


def test_the_built_in_file_loads() -> None:
    with GgufFile(GOOD) as file:
        loaded = weights.load(file)
    assert (loaded.lfr_m, loaded.lfr_n, len(loaded.layers)) == (5, 1, 4)
    assert loaded.in_linear1.weight.shape == (400, 140)
    assert loaded.out_linear2.bias.shape == (248,)


def test_weights_outlive_the_file() -> None:
    with GgufFile(GOOD) as file:
        loaded = weights.load(file)
        before = loaded.in_linear1.weight.copy()
    assert np.array_equal(loaded.in_linear1.weight, before)


def test_a_file_written_again_unchanged_gives_the_same_weights(tmp_path: Path) -> None:
    with GgufFile(GOOD) as file, GgufFile(edited(GOOD, tmp_path / "same.gguf")) as again:
        for name in file.tensors:
            assert np.array_equal(file.array(name), again.array(name))
        assert weights.load(again).lfr_m == weights.load(file).lfr_m


def test_another_architecture_is_refused(tmp_path: Path) -> None:
    refused(edited(GOOD, tmp_path / "x.gguf", architecture="llama"), "is a llama model; a fsmn-vad model was expected")


@pytest.mark.parametrize(
    "name",
    [
        "cmvn.shift",
        "cmvn.scale",
        "encoder.in_linear1.linear.weight",
        "encoder.in_linear2.linear.bias",
        "encoder.fsmn.0.linear.linear.weight",
        "encoder.fsmn.3.fsmn_block.conv_left.weight",
        "encoder.fsmn.2.affine.linear.bias",
        "encoder.out_linear2.linear.weight",
    ],
)
class TestTensor:
    def test_that_is_missing_is_refused(self, name: str, tmp_path: Path) -> None:
        refused(edited(GOOD, tmp_path / "x.gguf", tensors={name: None}), f"{name} is missing")

    def test_of_another_shape_is_refused(self, name: str, tmp_path: Path) -> None:
        with GgufFile(GOOD) as file:
            good = file.array(name)
        for bad in (good[:-1], good.reshape(1, *good.shape), np.repeat(good, 2, axis=-1)):
            refused(edited(GOOD, tmp_path / "x.gguf", tensors={name: bad}), f"{name} has the shape")

    @pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
    def test_with_values_that_are_no_numbers_is_refused(self, name: str, value: float, tmp_path: Path) -> None:
        with GgufFile(GOOD) as file:
            bad = file.array(name)
        bad.flat[-1] = value
        refused(edited(GOOD, tmp_path / "x.gguf", tensors={name: bad}), f"{name} has values that are no numbers")


def test_a_transposed_matrix_is_refused(tmp_path: Path) -> None:
    name = "encoder.in_linear1.linear.weight"
    with GgufFile(GOOD) as file:
        transposed = np.ascontiguousarray(file.array(name).T)
    refused(edited(GOOD, tmp_path / "x.gguf", tensors={name: transposed}), f"{name} has the shape")


@pytest.mark.parametrize("key", ["vad.input_dim", "vad.lorder", "vad.fsmn_layers", "vad.lfr_m", "vad.n_mels"])
def test_a_missing_size_is_refused(key: str, tmp_path: Path) -> None:
    refused(edited(GOOD, tmp_path / "x.gguf", metadata={key: None}), f"no whole number {key}")


@pytest.mark.parametrize(
    ("key", "size", "reason"),
    [
        ("vad.fsmn_layers", 0, "at least 1"),
        ("vad.fsmn_layers", 5, "is missing"),
        ("vad.fsmn_layers", 4_000_000_000, "more than there are tensors"),
        ("vad.lorder", 19, "has the shape"),
        ("vad.input_dim", 560, "is not n_mels x lfr_m"),
        ("vad.lfr_m", 7, "is not n_mels x lfr_m"),
        ("vad.n_mels", 4_000_000_000, "is not n_mels x lfr_m"),
        ("vad.lfr_n", 6, "wants features of 80 mels, 5 frames stacked every 6"),
        ("vad.output_dim", 2, "has the shape"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(key: str, size: int, reason: str, tmp_path: Path) -> None:
    refused(edited(GOOD, tmp_path / "x.gguf", metadata={key: size}), reason)
