"""What is said to the language model of Fun-ASR-Nano around the audio: a turn of the system, a turn of the user.

The words are those that the model was trained with. Hot words, language and the writing of numbers are asked for in
the user's turn. Source: `get_prompt` and `data_load_speech` in `funasr/models/fun_asr_nano/model.py`.
"""

# ruff: noqa: RUF001 - Chinese punctuation is meant

from typing import NamedTuple

from liveasr.engines.base import DecodeOptions
from liveasr.types import Language

LANGUAGE_NAMES: dict[Language, str] = {"zh": "中文", "en": "英文", "ja": "日文"}
"""Of the languages that the released model knows, as it was told them in its training."""
_SYSTEM = "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n"
_HOTWORDS = (
    "请结合上下文信息，更加准确地完成语音转写任务。如果没有相关信息，我们会留空。\n\n\n**上下文信息：**\n\n\n"
    "热词列表：[{}]\n"
)


class Prompt(NamedTuple):
    """The text on both sides of the audio."""

    before: str
    after: str = "<|im_end|>\n<|im_start|>assistant\n"


def prompt_for(options: DecodeOptions) -> Prompt:
    """The prompt that asks for what a caller wants; hot words hold no special tokens, `DecodeOptions` sees to that."""
    wanted = _HOTWORDS.format(", ".join(options.hotwords)) if options.hotwords else ""
    wanted += "语音转写" if options.language == "auto" else f"语音转写成{LANGUAGE_NAMES[options.language]}"
    if not options.itn:
        wanted += "，不进行文本规整"
    return Prompt(f"{_SYSTEM}{wanted}：")
