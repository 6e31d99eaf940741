"""Vocabularies alone, of files whose weights are not loaded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import llama_cpp.llama_cpp as lib

from runtime.backends.library import start
from runtime.backends.vocab import Vocab


@contextmanager
def opened_vocabulary(path: Path) -> Iterator[Vocab]:
    """The vocabulary of a GGUF file, with or without weights."""
    start()
    params = lib.llama_model_default_params()
    params.vocab_only = True
    model = lib.llama_model_load_from_file(str(path).encode(), params)
    if not model:
        raise RuntimeError(f"{path.name} has no vocabulary that llama.cpp reads")
    try:
        yield Vocab(lib.llama_model_get_vocab(model))
    finally:
        lib.llama_model_free(model)
