"""What is said to the language model around the audio."""

from pathlib import Path

import numpy as np
import pytest

from liveasr.engines.base import DecodeOptions
from liveasr.engines.prompt import LANGUAGE_NAMES, prompt_for


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("default", DecodeOptions(itn=True)),
        ("language", DecodeOptions("zh", itn=True)),
        ("noitn", DecodeOptions()),
        ("hotwords", DecodeOptions(itn=True, hotwords=("开放时间", "liveasr"))),
        ("all", DecodeOptions("zh", hotwords=("开放时间", "liveasr"))),
    ],
)
def test_the_words_of_the_user_are_those_of_the_reference(golden: Path, name: str, options: DecodeOptions) -> None:
    words = str(np.load(golden / "nano-tiny.npz")[f"prompt/{name}/text"])
    prompt = prompt_for(options)
    assert prompt.before == f"<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n{words}"
    assert prompt.after == "<|im_end|>\n<|im_start|>assistant\n"


def test_every_language_has_a_name_of_its_own() -> None:
    prompts = {prompt_for(DecodeOptions(language)).before for language in ("auto", *LANGUAGE_NAMES)}
    assert len(prompts) == 1 + len(LANGUAGE_NAMES)
