"""How the models of the package are made of their checkpoints, which are no part of the repository.

    LIVEASR_SHARED=../shared python -m tests.built_in_models

writes them again, for instance when there is more to say of them in their metadata.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from liveasr import store
from liveasr.engines.convert import WeightType, convert
from liveasr.provenance import Provenance

_CC_BY_SA = "https://creativecommons.org/licenses/by-sa/4.0/"


@dataclass(frozen=True, slots=True)
class Recipe:
    checkpoint: str
    """Folder below the reference material's models."""
    weight_type: WeightType
    told: Provenance
    """What the folder does not tell."""


def _digits(name: str) -> Provenance:
    return Provenance(
        name=f"{name}, a demonstration: ten English words",
        author="liveasr",
        licence="CC BY-SA 4.0",
        licence_link=_CC_BY_SA,
        languages=("en",),
    )


RECIPES = {
    "digits": Recipe("digits/sensevoice", "f32", _digits("digits")),
    "digits-paraformer": Recipe("digits/paraformer", "f16", _digits("digits-paraformer")),
    "fsmn-vad": Recipe("fsmn-vad", "f32", Provenance(author="Alibaba Group / FunASR")),
}


def make(name: str, shared: Path, output: Path) -> None:
    """Write one of them."""
    recipe = RECIPES[name]
    convert(shared / "models" / recipe.checkpoint, output, recipe.weight_type, recipe.told)


def main() -> None:
    shared = Path(os.environ.get("LIVEASR_SHARED", Path(__file__).resolve().parents[2] / "shared"))
    for name in RECIPES:
        make(name, shared, store.built_in(name))
        print(store.built_in(name))  # noqa: T201 - a command


if __name__ == "__main__":
    main()
