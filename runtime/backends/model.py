"""GGUF files through llama.cpp: LlamaModel is one in memory. Unusable files are rejected with a one-sentence error."""

from __future__ import annotations

import ctypes
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import llama_cpp.llama_cpp as lib

from runtime.backends import library, rpc
from runtime.backends.adapters import LoadedAdapters
from runtime.backends.private_llama import Override, symbol
from runtime.backends.vocab import Vocab
from runtime.core.errors import ModelError
from runtime.core.image_runs import ImageReader
from runtime.models.adapters import Adapter, refuse_adapter
from runtime.models.cache_layout import HALVES, CacheTypes, cache_types
from runtime.models.facts import ModelFacts, is_repackable
from runtime.models.header import TensorInfo, read_model_header
from runtime.models.library_limits import DRAFT_HEADS
from runtime.models.model_files import check_file
from runtime.models.mtp import HeaderValues, is_apart, unkept_promises
from runtime.models.pooling import PoolingKind
from runtime.models.projector import refuse_projector
from runtime.models.soundness import check_header

LAYER = re.compile(r"blk\.(\d+)\.")
GGML_TYPES = {"F16": 1, "Q4_0": 2, "Q8_0": 8, "BF16": 30}  # as in ggml.h; Q4_0 only for measurements
SPATIAL = lib.LLAMA_ROPE_TYPE_MROPE, lib.LLAMA_ROPE_TYPE_IMROPE  # positions in three dimensions
OnProgress = Callable[[float], bool]  # share loaded, 0 to 1 -> whether to continue


@dataclass(frozen=True, slots=True)
class IdsOnly:
    """A vocabulary of ids without words, which is all that a draft model needs.

    The tables of the words take more memory than a small model's layers.
    """

    architecture: str  # of the file
    n_vocab: int

    def values(self) -> HeaderValues:
        """Return the header values that the library reads instead of the file's."""
        return {"tokenizer.ggml.model": "no_vocab", f"{self.architecture}.vocab_size": self.n_vocab}


def loaded(
    path: Path, params: lib.llama_model_params, placed: Any, devices: Any, on_progress: OnProgress | None
) -> Any:
    """Return the handle of a file's weights, None if they cannot be loaded. `placed` are the buffers of some tensors,
    `devices` those that hold layers, as arrays of the library's; None for the usual ones.
    """
    params.tensor_buft_overrides = ctypes.addressof(placed) if placed else None
    params.devices = ctypes.addressof(devices) if devices else None
    report = lib.llama_progress_callback(lambda share, _: on_progress(share) if on_progress else True)
    params.progress_callback = report
    library.complaints()
    return lib.llama_model_load_from_file(os.fsencode(path), params)


class LlamaModel:
    """The weights and vocabulary of one GGUF file, shared by its contexts. Raises ModelError when it cannot be used.

    `ids` is given where no words are needed, `facts` where the header was read already. `is_head` allows a model that
    only drafts. `workers` may hold layers; other registered workers may not. `cache_types`, of keys and values, may be
    replaced before a context is opened.
    """

    why_blind = ""  # why the vision encoder beside it was left out, as a sentence

    def __init__(
        self,
        path: Path,
        on_progress: OnProgress | None = None,
        gpu_layers: int = -1,
        exact: bool = False,
        ids: IdsOnly | None = None,
        facts: ModelFacts | None = None,
        is_head: bool = False,
        with_mtp: bool = False,
        workers: Sequence[str] = (),
    ) -> None:
        check_file(path)
        facts = facts or readable_facts(path)
        refuse_adapter(path, facts)
        refuse_projector(path, facts)
        check_header(path, facts)
        if exact:
            library.prefer_exact()
        library.start()
        params = lib.llama_model_default_params()
        params.n_gpu_layers, params.load_mtp = gpu_layers, with_mtp
        # Repacked K-quants round differently in wider passes
        params.use_extra_bufts = not exact and not library.has_amx()
        params.kv_overrides = overrides((ids.values() if ids else {}) | (unkept_promises(facts) if facts else {}))
        placed = repacked_buffers(facts) if not exact and library.has_amx() else None
        self.path, self.gpu_layers = path, gpu_layers
        self.cache_types = cache_types(facts, library.has_gpu(), library.halves_at_once()) if facts else HALVES
        self.handle = loaded(path, params, placed, rpc.placement(workers), on_progress)
        if not self.handle:
            raise library.load_error(path, library.complaints())
        self.vocab = Vocab(lib.llama_model_get_vocab(self.handle))
        self.n_ctx_train: int = lib.llama_model_n_ctx_train(self.handle)
        self.is_recurrent = bool(lib.llama_model_is_recurrent(self.handle) or lib.llama_model_is_hybrid(self.handle))
        self.window: int = lib.llama_model_n_swa(self.handle)  # tokens of the layers' sliding window; 0: none has one
        self.adapters = LoadedAdapters(self.handle)
        self.vision: ImageReader | None = None  # its vision encoder, if it has one
        if problem := "" if is_head else self._unsupported(facts):
            self.close()
            raise ModelError(f"{path.name} is {problem}: Slipstream runs models that write text. Choose another GGUF.")

    def load_adapters(self, adapters: Sequence[Adapter]) -> None:
        """Load LoRA adapters, before a context is opened. Raises ModelError for one that does not fit."""
        self.adapters = LoadedAdapters(self.handle, adapters, self.path)

    @cached_property
    def is_spatial(self) -> bool:
        """Whether images may take fewer positions than tokens."""
        return lib.llama_model_rope_type(self.handle) in SPATIAL

    @cached_property
    def n_embd(self) -> int:
        """Width of its embeddings."""
        return int(lib.llama_model_n_embd(self.handle))

    @property
    def size(self) -> int:
        """Bytes of weights."""
        return int(lib.llama_model_size(self.handle))

    @cached_property
    def pooling(self) -> PoolingKind:
        """How the outputs are pooled, if it is an embedding or a reranking model."""
        kind = self.metadata("general.architecture")
        number = self.metadata(f"{kind}.pooling_type")
        return PoolingKind(kind, int(number or 0), self.metadata(f"{kind}.attention.causal") != "false")

    def _unsupported(self, facts: ModelFacts | None) -> str:
        """Return the kind of model if it can neither write text nor pool it, else ""."""
        if self.metadata("general.architecture") in DRAFT_HEADS or (facts and is_apart(facts)):
            return "the drafting part of another model"
        if lib.llama_model_has_encoder(self.handle) or not lib.llama_model_has_decoder(self.handle):
            return "an encoder model"
        if lib.llama_model_is_diffusion(self.handle):
            return "a diffusion model"
        return "" if self.vocab.n_vocab else "a model without a vocabulary"

    @cached_property
    def templates(self) -> tuple[str, str]:
        """The sources of the usual chat template and of the one for tools; "" where there is none."""
        with_tools = self.template("tool_use")
        return self.template(None) or self.template("default") or with_tools, with_tools

    def template(self, name: str | None) -> str:
        """Return the source of the chat template of that name, or of the one without a name; "" if it is blank."""
        source = lib.llama_model_chat_template(self.handle, name.encode() if name else None) or b""
        text: str = source.decode("utf8", "replace")
        return text if text.strip() else ""

    def metadata(self, key: str) -> str:
        """Return a metadata value as text; "" if the file has none."""
        buffer = ctypes.create_string_buffer(4096)
        return (
            buffer.value.decode("utf8", "replace")
            if lib.llama_model_meta_val_str(self.handle, key.encode(), buffer, 4096) >= 0
            else ""
        )

    def context_params(self, types: CacheTypes | None = None) -> lib.llama_context_params:
        """Return the parameters of every context: flash attention, and these types of keys and values or the usual.

        On a CPU, that rounds alike for every batch width; GPUs have no such setting.
        """
        params = lib.llama_context_default_params()
        params.flash_attn_type, params.no_perf = lib.LLAMA_FLASH_ATTN_TYPE_ENABLED, True
        params.type_k, params.type_v = (GGML_TYPES[kind] for kind in types or self.cache_types)
        return params

    def close(self) -> None:
        """Free the weights and the vision encoder; every context on them must be closed before."""
        if self.vision:
            self.vision.close()
            self.vision = None
        if self.handle:
            lib.llama_model_free(self.handle)
            self.handle = None


def overrides(values: HeaderValues) -> Any:
    """Return header values that the library reads instead of the file's, in its own structure."""
    found = (lib.llama_model_kv_override * (1 + len(values)))()  # an entry without a key ends the list
    for each, (key, value) in zip(found, values.items(), strict=False):
        each.key = key.encode()
        if isinstance(value, str):
            each.tag, each.value.val_str = lib.LLAMA_KV_OVERRIDE_TYPE_STR, value.encode()
        else:
            each.tag, each.value.val_i64 = lib.LLAMA_KV_OVERRIDE_TYPE_INT, value
    return found


def readable_facts(path: Path) -> ModelFacts | None:
    """Return the facts in the header; None if it cannot be read, because the library's error is more precise."""
    try:
        return ModelFacts(read_model_header(path))
    except (ModelError, OSError):
        return None


def repacked_buffers(facts: ModelFacts | None) -> Any:
    """Return `tensor_buft_overrides` for weights in llama.cpp's repacked layout on builds with AMX; None without any.

    AMX kernels crash where a compiler left out their tile setup (llama.cpp's issue 20824), which cannot be detected
    beforehand. So AMX's buffers are switched off there, and with them the repacked ones, in which K-quants decode a
    third faster. The tensors that repacked buffers support are put into them by name. Not every build exports them.
    """
    named = patterns(facts.header.tensors) if facts and not library.has_gpu() else []
    get = symbol("repacked") if named else None
    kind = get() if get else None
    return (Override * (len(named) + 1))(*(Override(each.encode(), kind) for each in named)) if kind else None


def patterns(tensors: Iterable[TensorInfo]) -> list[str]:
    """Return regular expressions for repackable tensors: few, because the library compiles each for every tensor."""
    layers: dict[str, list[str]] = defaultdict(list)  # layer numbers by name; none for tensors outside of layers
    for tensor in filter(is_repackable, tensors):
        block = LAYER.match(tensor.name)
        layers[tensor.name[block.end() :] if block else tensor.name] += [block[1]] if block else []
    return [
        (rf"^blk\.({'|'.join(numbers)})\." if numbers else "^") + re.escape(name) + "$"
        for name, numbers in layers.items()
    ]
