"""What a streaming Paraformer is made of, and the check of its file: layout `paraformer-streaming`, keys `pfs.*`."""

from dataclasses import dataclass

from liveasr.engines import chunks as chunk_sizes
from liveasr.engines import cif
from liveasr.engines.base import RECOGNISER_FRONT_END
from liveasr.engines.chunks import Chunks
from liveasr.engines.cif import CifPredictor
from liveasr.engines.cmvn import Cmvn
from liveasr.engines.encoder import SanmEncoder
from liveasr.engines.native import Weights
from liveasr.engines.sanm_decoder import SanmDecoder
from liveasr.errors import ModelFileError
from liveasr.gguf_file import GgufFile

ARCHITECTURE = "paraformer-streaming"
_LAYER_NORM_EPS = 1e-12  # of `transformer/layer_norm.py`
_ONLY = {
    "frontend.n_mels": RECOGNISER_FRONT_END.mel_bins,
    "frontend.lfr_m": RECOGNISER_FRONT_END.lfr_m,
    "frontend.lfr_n": RECOGNISER_FRONT_END.lfr_n,
    "enc.sanm_shfit": 0,
    "predictor.l_order": 1,
    "predictor.r_order": 1,
    "predictor.threshold": 1,
}
"""Numbers that every released model has, and that this program knows no others of."""


@dataclass(frozen=True, slots=True, eq=False)
class StreamingModel:
    """Everything that does not change: checked once, shared by any number of engines and their streams."""

    weights: Weights
    encoder: SanmEncoder
    predictor: CifPredictor
    tail: float
    """Weight of the row of zeros behind the last one."""
    decoder: SanmDecoder
    vocabulary: list[str]
    cmvn: Cmvn | None
    chunks: Chunks

    def close(self) -> None:
        """Close all engines of this model, then free the weights."""
        self.weights.close()


def load(file: GgufFile, cmvn: Cmvn | None, chunks: Chunks | None = None) -> StreamingModel:
    """Check a file and map its weights. The model owns the file from here on.

    Args:
        file: of architecture `paraformer-streaming`.
        cmvn: normalisation of the features, if any.
        chunks: how to cut segments, if not as the file recommends.

    Raises:
        ModelFileError: as `check` says.
    """
    encoder, predictor, tail, decoder, vocabulary, recommended = check(file)
    weights = Weights(file, encoder.derived_weights(file) | decoder.derived_weights(file))
    return StreamingModel(weights, encoder, predictor, tail, decoder, vocabulary, cmvn, chunks or recommended)


def check(file: GgufFile) -> tuple[SanmEncoder, CifPredictor, float, SanmDecoder, list[str], Chunks]:
    """The parts of a file that can be run, and how it recommends to cut segments. Loads no library.

    Raises:
        ModelFileError: a size is missing or absurd, or a tensor is missing or has the wrong shape or type.
    """
    for key, value in _ONLY.items():
        if file.number(f"pfs.{key}") != value:
            raise ModelFileError(file.path, f"pfs.{key} is {file.number(f'pfs.{key}'):g}; only {value} can be run")
    encoder = SanmEncoder(
        prefix="encoder.",
        input_size=RECOGNISER_FRONT_END.dims,
        output_size=file.integer("pfs.enc.output_size"),
        heads=file.integer("pfs.enc.attention_heads"),
        blocks=file.integer("pfs.enc.num_blocks"),
        tp_blocks=0,
        kernel_size=file.integer("pfs.enc.kernel_size"),
        eps=_LAYER_NORM_EPS,
    )
    encoder.check(file)
    vocabulary = file.strings("pfs.vocab")
    if len(vocabulary) != file.integer("pfs.vocab_size"):
        raise ModelFileError(file.path, f"pfs.vocab has {len(vocabulary)} entries, against pfs.vocab_size")
    decoder = SanmDecoder(
        prefix="decoder.",
        size=encoder.output_size,
        heads=file.integer("pfs.dec.attention_heads"),
        blocks=file.integer("pfs.dec.att_layer_num"),
        kernel_size=file.integer("pfs.dec.kernel_size", least=2),
        vocab_size=len(vocabulary),
        eps=_LAYER_NORM_EPS,
    )
    if file.integer("pfs.dec.num_blocks") != decoder.blocks:
        raise ModelFileError(file.path, "has a decoder with blocks that have no attention, which cannot be run")
    if file.integer("pfs.dec.sanm_shfit", least=0) != decoder.kernel_size // 2:
        raise ModelFileError(file.path, "has a decoder that looks at later tokens; in a stream there are none yet")
    decoder.check(file)
    tail = file.number("pfs.predictor.tail_threshold")
    if not 0 <= tail <= 1:
        raise ModelFileError(file.path, f"pfs.predictor.tail_threshold is {tail:g}; 0 to 1 was expected")
    predictor = cif.load(file, "predictor.", encoder.output_size)
    return encoder, predictor, tail, decoder, vocabulary, chunk_sizes.from_gguf(file, "pfs.")
