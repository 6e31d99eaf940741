"""llama.cpp's own reader of grammars, asked which texts one allows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import llama_cpp.llama_cpp as lib

from runtime.backends.vocab import Vocab


class LlamaGrammar:
    """A grammar as llama.cpp reads it, for a vocabulary with a token for every byte."""

    def __init__(self, handle: lib.llama_sampler_p, vocab: Vocab) -> None:
        self._handle, self._end = handle, vocab.eos
        self._tokens = {vocab.pieces[token]: token for token in range(256)}

    def n_taken(self, text: str) -> int:
        """How many bytes of a text it allows; one more if the text may end there."""
        lib.llama_sampler_reset(self._handle)
        data = text.encode()
        for i in range(len(data)):
            token = self._tokens[data[i : i + 1]]
            if not self._allows(token):
                return i
            lib.llama_sampler_accept(self._handle, token)
        return len(data) + self._allows(self._end)

    def _allows(self, token: int) -> bool:
        data = (lib.llama_token_data * 1)(lib.llama_token_data(token, 1.0, 0.0))
        lib.llama_sampler_apply(self._handle, lib.llama_token_data_array(data, 1, -1, False))
        return not math.isinf(data[0].logit)


@contextmanager
def llama_grammar(text: str, vocab: Vocab) -> Iterator[LlamaGrammar | None]:
    """The grammar, or None where llama.cpp refuses it."""
    handle = lib.llama_sampler_init_grammar(vocab.handle, text.encode(), b"root")
    try:
        yield LlamaGrammar(handle, vocab) if handle else None
    finally:
        if handle:
            lib.llama_sampler_free(handle)
