"""Metadata that every converted file has beside its layout: where it is from, how its features are made.

docs/converting.md names the keys.
"""

from collections.abc import Mapping

import gguf

from liveasr import __version__
from liveasr.engines.base import FrontEnd
from liveasr.engines.checkpoint_folder import CheckpointFolder, Settings
from liveasr.provenance import KEYS, LANGUAGES_KEY, Provenance

CONVERTER_KEY = "liveasr.converter"
QUANTIZED_KEY = "liveasr.quantized"
_CMVN_KEY = "liveasr.cmvn"
_FRONT_END_KEY = "liveasr.frontend"
_FRONT_END_PARTS = {"frontend": ("WavFrontend", "WavFrontendOnline")}
# As the features are made here, whatever the model, and as the reference makes them where a setting is missing.
_FRAMES: Mapping[str, int | str] = {"fs": 16_000, "window": "hamming", "frame_length": 25, "frame_shift": 10}
_UNWRITTEN: Mapping[str, bool] = {"snip_edges": True, "upsacle_samples": True}


def program() -> str:
    """This program and its version."""
    return f"liveasr {__version__}"


def add_provenance(writer: gguf.GGUFWriter, provenance: Provenance) -> None:
    """What is known of the model, and who converted it."""
    for field, (key, *_) in KEYS.items():
        if value := getattr(provenance, field):
            writer.add_string(key, value)
    if provenance.languages:
        writer.add_array(LANGUAGES_KEY, list(provenance.languages))
    writer.add_string(CONVERTER_KEY, program())


def add_front_end(writer: gguf.GGUFWriter, folder: CheckpointFolder, front_end: FrontEnd, has_cmvn: bool) -> None:
    """How the features of a checkpoint are made.

    Raises:
        ModelFileError: otherwise than this program makes them.
    """
    stacked = {"n_mels": front_end.mel_bins, "lfr_m": front_end.lfr_m, "lfr_n": front_end.lfr_n}
    folder.require_parts(_FRONT_END_PARTS)
    folder.require_settings(_settings({**_FRAMES, **_UNWRITTEN}))
    folder.require_settings(_settings(stacked), even_if_missing=True)
    for key, value in {**_FRAMES, **stacked}.items():
        if isinstance(value, str):
            writer.add_string(f"{_FRONT_END_KEY}.{key}", value)
        else:
            writer.add_uint32(f"{_FRONT_END_KEY}.{key}", value)
    writer.add_string(_CMVN_KEY, "applied" if has_cmvn else "none")


def _settings(values: Mapping[str, int | str]) -> Settings:
    return {("frontend_conf", key): value for key, value in values.items()}
