"""A random model whose vocabulary has marks of its own, of any type; and walks through what a grammar allows there."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from gguf import TokenType

from runtime.backends.vocab import Vocab
from runtime.engine import Grammar
from runtime.engine.binding import masks, shown_pieces
from tests.support.shapes import TINY, add_layers, add_matrix, begin, byte_alphabet, finish

CLOSERS = b'"}]<\n'


def write_marked(path: Path, control: Sequence[str] = (), own: Sequence[str] = (), words: Sequence[str] = ()) -> Path:
    """Write the model as a GGUF file: two tokens end its turn, `own` marks are user-defined, `words` plain tokens."""
    rng, names = np.random.default_rng(3), ["<|end|>", "<|endoftext|>", *control]
    plain = [*words, *(f"w{i}" for i in range(TINY.vocab - 256 - len([*names, *own, *words])))]
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


def walk(vocab: Vocab, grammar: Grammar, seed: int, *, most: int = 300) -> tuple[list[int], str]:
    """Return the tokens and the text of a reply drawn from what the grammar allows, control tokens and what closes
    something more often than their share. It ends where it may, and has to within `most` tokens.
    """
    (mask,), rng, reply = masks(vocab, grammar, None), random.Random(seed), list[int]()
    pieces, control, ends = shown_pieces(vocab, grammar), vocab.control_tokens.ids.values(), vocab.control_tokens.ends
    is_near = np.array([vocab.pieces[token][:1] in CLOSERS for token in range(vocab.n_vocab)])
    is_near[[*control]] = True
    for _ in range(most):
        mask.begin(np.array(reply, dtype=np.int32))
        allowed = mask.allowed(())
        if ends.intersection(np.flatnonzero(allowed).tolist()) and rng.random() < 0.2:
            break
        near = np.flatnonzero(allowed & is_near)
        among = near if len(near) and rng.random() < 0.5 else np.flatnonzero(allowed)
        token = int(rng.choice(among))
        if token in ends:
            break
        reply.append(token)
    else:
        raise AssertionError(f"no end after {most} tokens: {spelled(reply, pieces)!r}")
    return reply, spelled(reply, pieces)


def spelled(tokens: Sequence[int], pieces: Mapping[int, bytes]) -> str:
    """Return the text of tokens."""
    return b"".join(pieces[token] for token in tokens).decode("utf8", "replace")
