"""The language model of Fun-ASR-Nano on llama.cpp: one model, and contexts that each write one sequence at a time.

Only the process of the language model (llm_server.py) imports this: llama.cpp brings a ggml of its own, which must not
meet the other. Activations are float32; the residual stream of the real model does not fit float16.
"""

import ctypes
import os
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from liveasr.engines._library import llama
from liveasr.errors import EngineError, ModelFileError
from liveasr.types import Float32Array

_LEAST_CONTEXT_TOKENS = 512
"""Holds a prompt without hot words, 15 s of audio and all that can be said in it; more gets a larger context."""
_UBATCH_TOKENS = 128
"""Computed at once; its scratch memory is kept for the life of a context."""
_WARNING, _ERROR, _CONTINUED = 3, 4, 5  # enum ggml_log_level
_OUT_OF_CACHE = 1  # of llama_decode
_MAX_PIECE_BYTES = 1024
_MARKS = ("<|im_start|>", "<|im_end|>")
"""Of the prompt; a model whose vocabulary lacks them would read them as text, and write just anything."""


class LanguageModel:
    """The weights and the vocabulary of one GGUF file. Contexts are closed before it.

    Args:
        path: of architecture `qwen3`, or a file that such a file lies in.
        threads: for one context.
        offset_bytes: where it begins in it.

    Raises:
        ModelFileError: llama.cpp does not take the file; the message has its reason.
    """

    def __init__(self, path: Path, threads: int, offset_bytes: int = 0) -> None:
        lib = llama()
        self.threads = threads
        self._log = _Log(lib)
        lib.llama_backend_init()
        params = lib.llama_model_default_params()
        params.n_gpu_layers = 0
        # No weights in another order for this processor's kernels: they would be copies, and those for AMX crash where
        # gcc 12 compiled them (it leaves out most of what describes a tile).
        params.use_extra_bufts = False
        if offset_bytes:
            self.handle = _load_from(path, offset_bytes, params)
        else:
            self.handle = lib.llama_model_load_from_file(os.fsencode(path), params)
        if not self.handle:
            raise ModelFileError(path, f"llama.cpp cannot load it: {self._log.first_error}")
        self._vocabulary = lib.llama_model_get_vocab(self.handle)
        self.size = int(lib.llama_vocab_n_tokens(self._vocabulary))
        """Of the vocabulary."""
        self.width = int(lib.llama_model_n_embd(self.handle))
        """Of an embedding."""
        self.most_tokens = int(lib.llama_model_n_ctx_train(self.handle))
        """That one sequence may have."""
        if missing := next((mark for mark in _MARKS if len(self.tokenize(mark)) != 1), None):
            raise ModelFileError(path, f"has no token {missing}, so it is no language model of Fun-ASR-Nano")
        if self.most_tokens < _LEAST_CONTEXT_TOKENS:
            raise ModelFileError(
                path, f"holds {self.most_tokens} tokens at a time; a prompt with audio takes {_LEAST_CONTEXT_TOKENS}"
            )

    @property
    def last_warning(self) -> str:
        """Of llama.cpp."""
        return self._log.last

    def tokenize(self, text: str) -> list[int]:
        """Ids of a text; special tokens in it become theirs, and nothing is added in front."""
        lib, encoded = llama(), text.encode()
        ids = (lib.llama_token * (len(encoded) + 1))()
        count = lib.llama_tokenize(self._vocabulary, encoded, len(encoded), ids, len(ids), False, True)
        if count < 0:
            raise EngineError("llama.cpp cannot split the prompt into tokens")
        return list(ids[:count])

    def piece(self, token: int) -> bytes:
        """UTF-8 bytes of a token, perhaps only a part of a character; empty for a special one."""
        buffer = ctypes.create_string_buffer(_MAX_PIECE_BYTES)
        count = llama().llama_token_to_piece(self._vocabulary, token, buffer, len(buffer), 0, False)
        return buffer.raw[: max(0, count)]

    def ends(self, token: int) -> bool:
        """Whether a token ends the text."""
        return bool(llama().llama_vocab_is_eog(self._vocabulary, token))

    def close(self) -> None:
        """Free the weights."""
        if self.handle:
            llama().llama_model_free(self.handle)
            self.handle = None


def _load_from(path: Path, offset_bytes: int, params: Any) -> Any:
    """What llama.cpp makes of the GGUF file that begins somewhere in a file; it is mapped, not copied."""
    libc = ctypes.CDLL(None)
    libc.fdopen.restype = ctypes.c_void_p
    libc.fclose.argtypes = [ctypes.c_void_p]
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise ModelFileError(path, f"cannot be read: {error.strerror}") from error
    os.lseek(descriptor, offset_bytes, os.SEEK_SET)  # which llama.cpp takes for the beginning
    stream = libc.fdopen(descriptor, b"rb")
    if not stream:
        os.close(descriptor)
        raise EngineError(f"{path}: no stream can be opened for it")
    try:
        return llama().llama_model_load_from_file_ptr(stream, params)
    finally:
        libc.fclose(stream)


class LlmContext:
    """Writes greedily, one sequence after the other; nothing of a sequence reaches the next.

    The keys and values of the tokens before the audio are kept while they stay the same: they depend on nothing that
    follows. All others are removed before a sequence begins.

    Args:
        model: what to compute with.
    """

    def __init__(self, model: LanguageModel) -> None:
        self._model = model
        self._handle: Any = None
        self._capacity = 0
        self._kept: list[int] = []  # tokens whose keys and values lie at the beginning
        self._length = 0
        self._last = -1

    def begin(self, before: Sequence[int], rows: Float32Array, after: Sequence[int], most_new: int) -> int:
        """Read a prompt.

        Args:
            before: ids in front of the audio.
            rows: (R, width) embeddings of the audio, R > 0.
            after: ids behind it, at least one.
            most_new: how many tokens may be written then.

        Returns:
            The first id that the model writes.

        Raises:
            EngineError: the prompt is longer than the model can hold, or llama.cpp failed.
        """
        self._make_room(len(before) + len(rows) + len(after) + most_new)
        self._forget(list(before))
        if not self._kept:
            self._read(before, None, wants_output=False)
            self._kept = list(before)
        self._read(None, rows, wants_output=False)
        self._read(after, None, wants_output=True)
        return self._choose()

    def next(self) -> int:
        """The id after the last one."""
        self._read([self._last], None, wants_output=True)
        return self._choose()

    def logits(self) -> Float32Array:
        """(vocabulary,) those that the last id was chosen by."""
        return self._last_logits().copy()

    def close(self) -> None:
        """Free the context."""
        if self._handle is not None:
            llama().llama_free(self._handle)
            self._handle = None

    def _make_room(self, tokens: int) -> None:
        """A context that holds so many tokens; the one there is stays if it does."""
        if tokens > self._model.most_tokens:
            raise EngineError(
                f"a prompt and its answer of {tokens} tokens; the language model holds {self._model.most_tokens}: "
                "fewer hot words or shorter segments are needed"
            )
        if tokens <= self._capacity:
            return
        self.close()
        self._kept = []
        lib = llama()
        params = lib.llama_context_default_params()
        self._capacity = max(_LEAST_CONTEXT_TOKENS, 1 << (tokens - 1).bit_length())
        params.n_ctx = params.n_batch = self._capacity
        params.n_ubatch = _UBATCH_TOKENS
        params.n_seq_max = 1
        params.n_outputs_max = 1
        params.n_threads = params.n_threads_batch = self._model.threads
        params.no_perf = True
        self._handle = lib.llama_init_from_model(self._model.handle, params)
        if not self._handle:
            self._handle, self._capacity = None, 0
            raise EngineError(f"llama.cpp cannot make a context: {self._model.last_warning}")

    def _forget(self, before: list[int]) -> None:
        """Remove the last sequence; its first tokens stay where the next one begins with the same."""
        lib = llama()
        memory = lib.llama_get_memory(self._handle)
        if before != self._kept or not lib.llama_memory_seq_rm(memory, 0, len(before), -1):
            lib.llama_memory_clear(memory, True)
            self._kept = []
        self._length = len(self._kept)

    def _read(self, ids: Sequence[int] | None, rows: Float32Array | None, *, wants_output: bool) -> None:
        """Take tokens or embeddings into the sequence."""
        lib = llama()
        count = len(ids) if ids is not None else len(rows) if rows is not None else 0
        zero = (ctypes.c_int32 * 1)(0)
        pointer = ctypes.POINTER(ctypes.c_int32)
        batch = lib.llama_batch(
            n_tokens=count,
            token=(ctypes.c_int32 * count)(*ids) if ids is not None else None,
            embd=None if rows is None else rows.ctypes.data_as(ctypes.POINTER(ctypes.c_float)),
            pos=(ctypes.c_int32 * count)(*range(self._length, self._length + count)),
            n_seq_id=(ctypes.c_int32 * count)(*[1] * count),
            seq_id=(pointer * count)(*[ctypes.cast(zero, pointer)] * count),
            logits=(ctypes.c_int8 * count)(*[0] * (count - 1), int(wants_output)),
        )
        status = lib.llama_decode(self._handle, batch)
        if status != 0:
            self._kept = []
            reason = "its cache is full" if status == _OUT_OF_CACHE else self._model.last_warning
            raise EngineError(f"llama.cpp failed with status {status}: {reason}")
        self._length += count

    def _last_logits(self) -> Float32Array:
        """In llama.cpp's own memory, until it computes again."""
        pointer = llama().llama_get_logits_ith(self._handle, -1)
        return np.ctypeslib.as_array(pointer, shape=(self._model.size,))

    def _choose(self) -> int:
        logits = self._last_logits()
        self._last = int(np.argmax(logits))
        if not np.isfinite(logits[self._last]):
            self._kept = []  # numbers that are none may stand in the cache: the next sequence begins with a clear one
            raise EngineError("the language model computed numbers that are none; its file may be damaged")
        return self._last


class _Log:
    """What llama.cpp says: kept, not shown."""

    def __init__(self, lib: Any) -> None:
        self._lines: deque[str] = deque(maxlen=1)
        self._first_error = ""
        self._level = 0
        self._callback = lib.llama_log_callback(self._note)  # llama.cpp keeps no reference of its own
        lib.llama_log_set(self._callback, None)

    @property
    def last(self) -> str:
        """The last warning or error."""
        return self._lines[-1] if self._lines else "it gives no reason"

    @property
    def first_error(self) -> str:
        """The cause, where others followed from it: the last one only says that loading failed."""
        return self._first_error or self.last

    def _note(self, level: int, text: bytes, _user_data: Any) -> None:
        if level != _CONTINUED:
            self._level = level
        line = text.decode(errors="replace").strip()
        if self._level >= _WARNING and line:
            self._lines.append(line)
            if self._level == _ERROR and not self._first_error:
                self._first_error = line
