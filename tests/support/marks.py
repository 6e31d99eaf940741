"""A random model whose vocabulary has marks of its own, of any type; and walks through what a grammar allows there."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from gguf import TokenType
from numpy.typing import NDArray

from bench.instruments.shapes import TINY, add_layers, add_matrix, begin, byte_alphabet, finish
from runtime.backends.vocab import Vocab
from runtime.engine import Grammar
from runtime.engine.binding import masks, shown_pieces
from runtime.sampling.control_tokens import quoted

ANSWER = (
    '%json {"type": "object", "properties": {"a": {"type": "string", "maxLength": 3}}, "required": ["a"], '
    '"additionalProperties": false, "x-guidance": {"whitespace_flexible": false}}'
)
ANSWERED = r'\{"a":"([^"\\]|\\u[0-9a-fA-F]{4}|\\.){0,6}"\}'  # a character may be a pair of escapes
CALLED = rf'\{{"f": {ANSWERED}\}}'
CLOSERS = [b"", *(bytes([byte]) for byte in b'"}]<,')]


def write_marked(path: Path, control: Sequence[str] = (), own: Sequence[str] = ()) -> Path:
    """Write the model as a GGUF file: two tokens end its turn, `own` marks are user-defined."""
    rng, names = np.random.default_rng(3), ["<|end|>", "<|endoftext|>", *control]
    plain = [f"w{i}" for i in range(TINY.vocab - 256 - len([*names, *own]))]
    types = [TokenType.NORMAL] * 256 + [TokenType.CONTROL] * len(names) + [TokenType.USER_DEFINED] * len(own)
    writer = begin(path, TINY)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([*byte_alphabet(), *names, *own, *plain])
    writer.add_token_types([*types, *[TokenType.NORMAL] * len(plain)])
    writer.add_token_merges(["w 0"])
    writer.add_eos_token_id(256)
    writer.add_add_bos_token(False)
    writer.add_chat_template("{% for m in messages %}{{ m.content }}{% endfor %}")
    add_matrix(writer, "token_embd.weight", TINY.vocab, TINY.width, rng)
    writer.add_tensor("output_norm.weight", np.ones(TINY.width, dtype=np.float32))
    add_layers(writer, TINY, rng)
    return finish(writer, path)


@dataclass(frozen=True, slots=True)
class Form:
    """A grammar, and the same as Python's regular expression."""

    grammar: Grammar
    expression: str

    def fits(self, text: str) -> bool:
        """Does a text follow it?"""
        return re.fullmatch(self.expression, text, re.DOTALL) is not None


def bound_forms(begin: str, end: str) -> dict[str, Form]:
    """Return grammars in Lark of calls between two marks, and of a thought between them before an answer."""
    first, last, opens = re.escape(begin), re.escape(end), quoted(begin)
    called, no_call = f"{first}{CALLED}{last}", f"((?!{first}).)*"
    call = rf'call: "{{\"f\": " {ANSWER} "}}" {quoted(end)}'
    required = f'start: {opens} call ("," {opens} call)~0..2\n{call}'
    free = rf"FREE: /(.|\n)*/ & ~/(?s:.*){first}(?s:.*)/"
    auto = f"start: (FREE other_marks)* (FREE | BEFORE call | FREE {opens} call)\nBEFORE: FREE {opens}\n{free}\n{call}"
    thought = f'start: {opens} THOUGHT {quoted(end)} "," answer\nTHOUGHT: /[a-z ]{{0,9}}/\nanswer: {ANSWER}'
    return {
        "required": Form(Grammar("lark", required), f"{called}(,{called}){{0,2}}"),
        "auto": Form(Grammar("lark", auto), f"{no_call}({called})?"),
        "thought": Form(Grammar("lark", thought), f"{first}[a-z ]{{0,9}}{last},{ANSWERED}"),
    }


def walk(vocab: Vocab, grammar: Grammar, seed: int, *, most: int = 200) -> str:
    """Return the text of a reply drawn from what the grammar allows, control tokens and what may close something more
    often than their share. It ends where it may, and has to within `most` tokens.
    """
    (mask,), rng, reply = masks(vocab, grammar, None), random.Random(seed), list[int]()
    pieces, ends, near = shown_pieces(vocab, grammar), sorted(vocab.control_tokens.ends), closers(vocab)
    for _ in range(most):
        mask.begin(np.array(reply, dtype=np.int32))
        allowed = mask.allowed(())
        if allowed[ends].any() and (rng.random() < 0.2 or allowed.sum() == allowed[ends].sum()):
            return b"".join(pieces[token] for token in reply).decode()
        allowed = allowed.copy()
        allowed[ends] = False
        is_near = (allowed & near).any() and rng.random() < 0.5
        reply.append(int(rng.choice(np.flatnonzero(allowed & near if is_near else allowed))))
    raise AssertionError(f"no end after {most} tokens: {b''.join(pieces[token] for token in reply)!r}")


def closers(vocab: Vocab) -> NDArray[np.bool_]:
    """Return [n_vocab] which tokens are control tokens, or text that may end a string, an object or a word."""
    found = np.array([vocab.pieces[token][:1] in CLOSERS for token in range(vocab.n_vocab)])
    found[list(vocab.control_tokens.ids.values())] = True
    return found
