"""A vocabulary as grammars need it: its text tokens, its control tokens, and the tokens that end a turn."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import llama_cpp.llama_cpp as lib

from runtime.sampling.control_tokens import ControlTokens

if TYPE_CHECKING:
    from llguidance import LLTokenizer

    from runtime.backends.vocab import Vocab

NO_TEXT = b"\xff"  # llguidance: prefix of the name of a token that no text spells
TYPICAL_BYTES = 64  # bytes of text of most tokens; longer ones take two calls


def grammar_tokenizer(vocab: Vocab) -> LLTokenizer:
    """Return the vocabulary in llguidance's form.

    A token is text where the reply shows it as text, whatever its type. llguidance's own function for llama.cpp, whose
    interface this uses, does not treat user-defined tokens as text.
    """
    from llguidance import LLTokenizer

    control = vocab.control_tokens
    tokens = texts(vocab)
    for token in [token for token, text in enumerate(tokens) if not text] + list(control.ends):
        name = vocab.special_text(token).encode()
        tokens[token] = NO_TEXT + name if name else b""
    tokenize = ctypes.cast(lib.llama_tokenize, ctypes.c_void_p).value
    found: LLTokenizer = LLTokenizer.from_llamacpp(  # type: ignore[attr-defined]  # lacks a declaration
        tokens=tokens, vocab_ptr=vocab.handle, tokenize_fptr=tokenize, eos_token=sorted(control.ends)
    )
    return found


def texts(vocab: Vocab) -> list[bytes]:
    """Return `vocab.pieces` of all tokens, in a third of the time."""
    read, handle, buffer = lib.llama_token_to_piece, vocab.handle, ctypes.create_string_buffer(TYPICAL_BYTES)
    sizes = ((token, read(handle, token, buffer, TYPICAL_BYTES, 0, False)) for token in range(vocab.n_vocab))
    return [buffer.raw[:n] if n >= 0 else vocab.pieces[token] for token, n in sizes]


def control_tokens(vocab: Vocab) -> ControlTokens:
    """Return the control tokens that a grammar may name, and those that end a turn."""

    def find(name: str) -> int | None:
        ids = vocab.encode(name, special=True)
        return ids[0] if len(ids) == 1 and vocab.special_text(ids[0]) == name else None

    ends_turn, attributes, handle = lib.llama_vocab_is_eog, lib.llama_vocab_get_attr, vocab.handle
    ends = frozenset(token for token in range(vocab.n_vocab) if ends_turn(handle, token))
    control = [token for token in range(vocab.n_vocab) if attributes(handle, token) & lib.LLAMA_TOKEN_ATTR_CONTROL]
    names = {token: vocab.special_text(token) for token in control if token not in ends}
    return ControlTokens({name: token for token, name in names.items() if name}, ends, find)
