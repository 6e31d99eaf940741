"""GGUF models through llama.cpp's low-level API: LlamaModel is a file in memory, LlamaBackend runs it over one cached context.

The only place that knows of a KV cache. Every batch is a window onto arrays made once, so that a step costs Python microseconds.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

import llama_cpp.llama_cpp as lib
import numpy as np
from numpy.typing import NDArray

from runtime.backends import library
from runtime.backends.vocab import Vocab
from runtime.draft import NO_DRAFT, Draft, Logits, Tokens
from runtime.errors import ContextError, ModelError

INT32_P = ctypes.POINTER(ctypes.c_int32)
INT8_P = ctypes.POINTER(ctypes.c_int8)
GGML_TYPE_BF16 = 30
OnProgress = Callable[[float], bool]  # share loaded, 0 to 1 -> go on?


class LlamaModel:
    """The weights and vocabulary of one GGUF file, shared by its contexts. Raises ModelError when it cannot be used."""

    def __init__(self, path: Path, on_progress: OnProgress | None = None, gpu_layers: int = -1) -> None:
        check_file(path)
        library.start()
        params = lib.llama_model_default_params()
        params.n_gpu_layers = gpu_layers
        report = lib.llama_progress_callback(lambda share, _: on_progress(share) if on_progress else True)
        params.progress_callback = report
        library.complaints()
        self.path = path
        self.handle = lib.llama_model_load_from_file(str(path).encode(), params)
        if not self.handle:
            raise ModelError(explain_load(path, library.complaints()))
        self.vocab = Vocab(lib.llama_model_get_vocab(self.handle))
        self.n_ctx_train: int = lib.llama_model_n_ctx_train(self.handle)
        self.size: int = lib.llama_model_size(self.handle)  # bytes of weights
        self.is_recurrent = bool(lib.llama_model_is_recurrent(self.handle) or lib.llama_model_is_hybrid(self.handle))
        self.template = (lib.llama_model_chat_template(self.handle, None) or b"").decode("utf8", "replace")
        if problem := self._unsupported():
            self.close()
            raise ModelError(f"{path.name} is {problem}: Slipstream runs models that write text. Choose another GGUF.")

    def _unsupported(self) -> str:
        """What kind of model this is, if not one that generates text from left to right."""
        if lib.llama_model_has_encoder(self.handle) or not lib.llama_model_has_decoder(self.handle):
            return "an encoder model"
        if lib.llama_model_is_diffusion(self.handle):
            return "a diffusion model"
        if self.metadata(f"{self.metadata('general.architecture')}.attention.causal") == "false":
            return "an embedding model"
        return "" if self.vocab.n_vocab else "a model without a vocabulary"

    def metadata(self, key: str) -> str:
        """A metadata value as text; "" when the file has none."""
        buffer = ctypes.create_string_buffer(4096)
        return buffer.value.decode("utf8", "replace") if lib.llama_model_meta_val_str(self.handle, key.encode(), buffer, 4096) >= 0 else ""

    def close(self) -> None:
        """Frees the weights; every context on them must be closed before."""
        if self.handle:
            lib.llama_model_free(self.handle)
            self.handle = None


def check_file(path: Path) -> None:
    """Raises ModelError for what can be seen without the library."""
    if not path.exists():
        raise ModelError(f"There is no file {path}. Check the path, or name a pair from models.toml.")
    try:
        with path.open("rb") as file:
            head = file.read(4)
    except OSError as error:
        raise ModelError(f"{path} cannot be read ({error.strerror}). Name a GGUF file that you may read.") from error
    if head != b"GGUF":
        raise ModelError(f"{path.name} is not a GGUF file. Convert the model to GGUF, or download a GGUF of it.")


def explain_load(path: Path, complaints: list[str]) -> str:
    """One sentence from what the library logged while it failed to load `path`."""
    text = " ".join(complaints)
    if "unknown model architecture" in text:
        kind = text.split("unknown model architecture: ")[1].split("'")[1]
        return f"{path.name} has the architecture '{kind}', which this version of llama.cpp cannot run. Choose another model."
    if "not within the file bounds" in text or "failed to read" in text or "unexpectedly reached end" in text:
        return f"{path.name} is damaged or incomplete. Download it again."
    reason = next((line for line in complaints if "error" in line.lower()), complaints[0] if complaints else "no reason given")
    return f"{path.name} could not be loaded ({reason.rstrip('.')}). Check that the file is whole and fits in memory."


class LlamaBackend:
    """One context of a model: implements Backend. `n_rows` is the widest draft it must take, plus one."""

    can_branch = False

    def __init__(self, model: LlamaModel, n_ctx: int, n_rows: int = 17, n_batch: int = 512) -> None:
        self.model, self.n_vocab, self.can_rewind = model, model.vocab.n_vocab, not model.is_recurrent
        self.n_rows, self.n_batch = n_rows, max(n_batch, n_rows)
        self.handle = lib.llama_init_from_model(model.handle, self._params(n_ctx))
        if not self.handle:
            reason = "; ".join(library.complaints()[-2:]) or "no reason given"
            raise ModelError(f"No context of {n_ctx} tokens could be made for {model.path.name} ({reason}). Try a smaller context.")
        self.memory = lib.llama_get_memory(self.handle)
        self.n_ctx: int = min(n_ctx, lib.llama_n_ctx(self.handle))
        self.n_decoded = 0  # rows decoded since the start
        self._held: Tokens = np.zeros(self.n_ctx, dtype=np.int32)  # what the cache holds, by position
        self._n_held = 0
        self._views: dict[tuple[int, int], Logits] = {}
        self._prepare_batch()

    def _params(self, n_ctx: int) -> lib.llama_context_params:
        """On a CPU, flash attention with a BF16 cache rounds alike for every batch width; GPUs have no such setting."""
        params = lib.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch = n_ctx, self.n_batch, self.n_batch
        params.n_seq_max, params.n_outputs_max, params.n_outputs_max_per_seq = 1, self.n_rows, self.n_rows
        params.flash_attn_type = lib.LLAMA_FLASH_ATTN_TYPE_ENABLED
        params.type_k = params.type_v = lib.GGML_TYPE_F16 if library.has_gpu() else GGML_TYPE_BF16
        params.swa_full, params.no_perf = True, True
        return params

    def _prepare_batch(self) -> None:
        """The arrays that batches point into: tokens are `_held` itself, `_flags` ends with n_rows ones."""
        n = self.n_batch
        self._positions = np.arange(self.n_ctx, dtype=np.int32)
        self._flags = np.concatenate([np.zeros(n, dtype=np.int8), np.ones(self.n_rows, dtype=np.int8)])
        self._counts: NDArray[np.int32] = np.ones(n, dtype=np.int32)
        self._sequence = ctypes.c_int32(0)
        self._sequences = (INT32_P * n)(*[ctypes.pointer(self._sequence)] * n)
        self._addresses = self._held.ctypes.data, self._positions.ctypes.data, self._flags.ctypes.data + n
        self._batch = lib.llama_batch()
        self._batch.embd = None
        self._batch.n_seq_id = ctypes.cast(self._counts.ctypes.data, INT32_P)
        self._batch.seq_id = ctypes.cast(self._sequences, ctypes.POINTER(INT32_P))

    def set_threads(self, one: int, many: int) -> None:
        """Threads for passes of one row and of several rows."""
        lib.llama_set_n_threads(self.handle, one, many)

    def forward(self, context: Tokens, draft: Draft = NO_DRAFT) -> Logits:
        """Logits [1 + len(draft), n_vocab] that follow `context` and each draft token; see Backend."""
        n, k = len(context), len(draft.tokens)
        if n + k > self.n_ctx:
            raise ContextError(f"{n + k} tokens do not fit the context of {self.n_ctx}. Shorten the prompt or load with a larger context.")
        if n == 0 or k >= self.n_rows or draft.parents is not None:
            raise ValueError(f"{n} tokens and a draft of {k} cannot be decoded")
        start = self._rewind(context)
        self._held[start:n] = context[start:]
        if k:
            self._held[n : n + k] = draft.tokens
        while start < n + k:
            rows = n + k - start
            if rows > self.n_batch:
                rows = min(self.n_batch, rows - 1 - k)
            self._decode(start, rows, 1 + k if start + rows == n + k else 0)
            start += rows
            self._n_held = start
        return self._logits(1 + k)

    def n_cached(self, context: Tokens) -> int:
        """How many of the first tokens of `context` need no decoding; its last one always does."""
        n = min(self._n_held, len(context) - 1)
        same = self._held[:n] == context[:n]
        return n if same.all() else int(same.argmin())

    def _rewind(self, context: Tokens) -> int:
        """Drops what the cache holds beyond its common prefix with context[:-1]; returns that prefix's length."""
        start = self.n_cached(context)
        if start < self._n_held:
            if not lib.llama_memory_seq_rm(self.memory, 0, start, -1):
                lib.llama_memory_clear(self.memory, True)
                start = 0
            self._n_held = start
        return start

    def _decode(self, start: int, rows: int, n_outputs: int) -> None:
        """Decodes positions [start, start + rows) of `_held`, with logits for the last `n_outputs`."""
        tokens, positions, ones = self._addresses
        batch, cast = self._batch, ctypes.cast
        batch.n_tokens = rows
        batch.token = cast(tokens + 4 * start, INT32_P)
        batch.pos = cast(positions + 4 * start, INT32_P)
        batch.logits = cast(ones + n_outputs - rows, INT8_P)
        self.n_decoded += rows
        code = lib.llama_decode(self.handle, batch)
        if code:
            lib.llama_memory_clear(self.memory, True)
            self._n_held = 0
            raise ModelError(f"llama.cpp could not decode {rows} tokens at {start} (code {code}): {'; '.join(library.complaints()[-2:])}")

    def _logits(self, rows: int) -> Logits:
        """The library's own buffer as [rows, n_vocab]."""
        address = ctypes.addressof(lib.llama_get_logits(self.handle).contents)
        view = self._views.get((address, rows))
        if view is None:
            array = (ctypes.c_float * (rows * self.n_vocab)).from_address(address)
            view = self._views[address, rows] = np.ctypeslib.as_array(array).reshape(rows, self.n_vocab)
        return view

    def close(self) -> None:
        """Frees the context; the model stays."""
        if self.handle:
            self._views.clear()
            lib.llama_free(self.handle)
            self.handle = None
