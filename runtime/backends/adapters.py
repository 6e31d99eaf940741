"""LoRA adapters of a model in memory, and which of them the passes of a context use."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import llama_cpp.llama_cpp as lib

from runtime.backends import library
from runtime.core.draft import Adapters
from runtime.core.errors import ModelError, NoMemoryError
from runtime.models.adapters import Adapter, check_adapters
from runtime.models.content import content_of

KEY = 16  # hexadecimal digits of the content's hash that tell adapters apart


class LoadedAdapters:
    """The adapters of a model, which frees them with itself. Their ids are their places in `keys`.

    They must be loaded before a context is opened, which makes room for their part of the graph.
    """

    def __init__(self, model: Any, adapters: Sequence[Adapter] = (), base: Path = Path()) -> None:
        """Load adapters of the model in the file `base`. Raises ModelError, and NoMemoryError."""
        check_adapters(adapters, base)
        self.usual = tuple(each.scale for each in adapters)  # scales of requests that name none
        self.keys = tuple(content_of(each.path)[:KEY] for each in adapters)
        self.handles: dict[str, Any] = {}
        for key, (path, _) in zip(self.keys, adapters, strict=True):
            if key in self.handles:
                continue
            library.complaints()
            handle = lib.llama_adapter_lora_init(model, os.fsencode(path))
            if not handle:
                complaints = library.complaints()
                kind = NoMemoryError if any("allocate" in line for line in complaints) else ModelError
                why = (complaints or ["no reason given"])[-1].rstrip(".")
                raise kind(f"The adapter {path.name} could not be loaded ({why}). Choose another one.")
            self.handles[key] = handle

    def __bool__(self) -> bool:
        return bool(self.keys)

    def named(self, scales: Mapping[int, float] | None) -> Adapters:
        """Return the adapters of a request by their ids and scales, without those at 0; None: at their usual scales.

        They are in the order of their contents, because how sums round depends on it. llama.cpp keeps them in a map by
        address: of two, GNU's and LLVM's iterate over the last one first, of more that depends on the addresses.

        Raises KeyError for an id that is none.
        """
        if scales is not None and (unknown := next((each for each in scales if not 0 <= each < len(self.keys)), None)):
            raise KeyError(unknown)
        by_key = dict.fromkeys(self.keys, 0.0)
        for number, key in enumerate(self.keys):
            by_key[key] += self.usual[number] if scales is None else scales.get(number, 0.0)
        return tuple(sorted((key, scale) for key, scale in by_key.items() if scale))


class AdapterSwitch:
    """The adapters of one context's passes. Another choice has the library plan its graph again, so it is made late."""

    def __init__(self, context: Any, loaded: LoadedAdapters) -> None:
        self._context, self._loaded = context, loaded
        self._present: Adapters = ()

    def set(self, adapters: Adapters) -> None:
        """Use these adapters from the next pass on."""
        if adapters == self._present:
            return
        handles = [self._loaded.handles[key] for key, _ in adapters]
        n = len(adapters)
        pointers = (lib.llama_adapter_lora_p_ctypes * n)(*handles)
        scales = (ctypes.c_float * n)(*(scale for _, scale in adapters))
        if lib.llama_set_adapters_lora(self._context, pointers, n, scales):
            raise ModelError("llama.cpp could not use the LoRA adapters. Leave them out of `--lora`.")
        self._present = adapters
