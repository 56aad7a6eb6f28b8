"""The adaptor of Fun-ASR-Nano, which the tests of the whole engine compare with the reference."""

from pathlib import Path

import numpy as np
import pytest

from liveasr.engines.adaptor import Adaptor, audio_rows
from liveasr.errors import ModelFileError
from liveasr.gguf_file import GgufFile
from tests.engines.conftest import ConvertedNano
from tests.helpers import edited

TINY = {"prefix": "audio_adaptor.", "input_size": 32, "hidden_size": 64, "output_size": 64, "blocks": 2, "heads": 4}


def test_as_many_rows_are_read_as_in_the_reference(golden: Path) -> None:
    expected = np.load(golden / "nano-tiny.npz")["audio_tokens"]
    assert [audio_rows(frames) for frames in range(1, 601)] == expected.tolist()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"heads": 3}, "an adaptor of width 64 cannot have 3 heads"),
        ({"blocks": 1 << 20}, "more than tensors"),
        ({"blocks": 3}, "audio_adaptor.blocks.2"),
        ({"hidden_size": 65}, "audio_adaptor.linear1.weight"),
    ],
)
def test_sizes_that_do_not_fit_the_tensors_are_named(
    tiny_nano: ConvertedNano, changed: dict[str, int], message: str
) -> None:
    adaptor = Adaptor(**{**TINY, **changed})  # type: ignore[arg-type] # names and numbers, as above
    with GgufFile(tiny_nano()) as file, pytest.raises(ModelFileError, match=message):
        adaptor.check(file)


@pytest.mark.parametrize("part", ["linear2.bias", "blocks.0.norm2.weight", "blocks.1.self_attn.linear_v.weight"])
def test_a_missing_tensor_is_named(tiny_nano: ConvertedNano, tmp_path: Path, part: str) -> None:
    name = f"audio_adaptor.{part}"
    broken = edited(tiny_nano(), tmp_path / "broken.gguf", tensors={name: None})
    with GgufFile(broken) as file, pytest.raises(ModelFileError, match=f"broken.gguf.*{name}"):
        Adaptor(**TINY).check(file)  # type: ignore[arg-type]
