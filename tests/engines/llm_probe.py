"""Looks at the language model from inside a process of its own, where llama.cpp may be loaded.

Reads one JSON object from stdin: {"model", "texts": [...], "before", "after", "rows": [[...]], "count"}. Writes one to
stdout: the ids of each text, the first logits after the prompt, `count` greedy ids, and which files of ggml and
llama.cpp are mapped.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np

from liveasr.engines.llm import LanguageModel, LlmContext


def main() -> None:
    """Answer one request."""
    asked: dict[str, Any] = json.load(sys.stdin)
    model = LanguageModel(Path(asked["model"]), 1)
    context = LlmContext(model)
    rows = np.asarray(asked["rows"], np.float32)
    ids = [context.begin(asked["before"], rows, asked["after"], asked["count"])]
    logits = context.logits()
    while len(ids) < asked["count"]:
        ids.append(context.next())
    maps = Path("/proc/self/maps")
    mapped = re.findall(r"/\S*lib(?:ggml|llama)\S*", maps.read_text()) if maps.exists() else []
    answer = {
        "texts": [model.tokenize(text) for text in asked["texts"]],
        "logits": logits.tolist(),
        "ids": ids,
        "mapped": sorted(set(mapped)),
    }
    context.close()
    model.close()
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main()
