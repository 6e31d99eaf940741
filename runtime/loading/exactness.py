"""Self-test: whether a pass over several rows gives the same logits as one row at a time, which depends on kernels.

Knows a backend and numbers; the engine makes its promises from the result.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from runtime.core.backend import Backend, SharedPasses, Tokenizer
from runtime.core.draft import Adapters, Draft, Logits, PassInput, Tokens

if TYPE_CHECKING:  # it loads the model library, which not every importer needs
    from runtime.backends.llama import LlamaBackend

CONTEXT = 32  # minimum tokens before the rows that are compared
TILE = 16  # most rows that kernels process together; remaining rows may be computed like single ones
# The same for passes that are all padded to one width: devices that need padding divide sums over long contexts
CONTEXTS = CONTEXT, 300
STRETCH = 256  # cells: passes read the cache in steps of this many
SEED = 20
TEXT = (
    "The bridge was closed for repairs in the spring, so everybody took the ferry; it left twice an hour. "
    "def total(prices): return sum(price for price in prices if price > 0) # negative ones are refunds. "
)


@dataclass(frozen=True, slots=True)
class Exactness:
    """Result of the self-test: passes of up to `width` rows are exact to the bit, and whether prefill is.

    `difference` is the largest error of a logit.
    """

    width: int
    tried: int
    difference: float = 0.0
    prefill: bool = True
    together: bool = False  # passes shared by several conversations are exact too, up to that width
    padded: int = 0  # rows to which every pass is padded, and for which this was measured; 0: no padding
    pieces: bool = False  # a prompt's pieces of several times PIECE tokens are exact, where not all of prefill is

    @property
    def is_exact(self) -> bool:
        """Whether every width that can occur is exact."""
        return self.width >= self.tried and self.prefill and not self.padded

    def rows_at(self, n_context: int, n_ctx: int, n_before: int = 0) -> int:
        """Return the most rows of a pass after `n_context` tokens with which each row rounds as the first of a pass.

        The number of cells that a padded pass reads depends on its end, so it must be the same for all its rows.
        `n_before` cells belong to other conversations.
        """
        if not self.padded:
            return self.width
        end = n_context - 1 + self.padded  # end of a pass that begins with the last token
        return max(1, min(self.width, STRETCH - (end + n_before - 1) % STRETCH, n_ctx - end + 1))

    def __str__(self) -> str:
        if self.padded:
            return f"exact up to width {self.width}: every pass is padded to it, which costs nothing here"
        if self.is_exact:
            return f"exact up to width {self.width}"
        if not self.difference:
            return f"exact up to width {self.width} of {self.tried}; beyond, some matrices sometimes round differently"
        if self.width >= self.tried:
            return (
                f"exact up to width {self.width}, but not in prefill; there, logits differ by up to "
                f"{self.difference:.2g}"
            )
        return f"exact up to width {self.width} of {self.tried}; beyond, logits differ by up to {self.difference:.2g}"


@dataclass(frozen=True, slots=True)
class Roundings:
    """What the self-test found for a target: of the model alone, and with any of its LoRA adapters on."""

    bare: Exactness
    adapted: Exactness

    def of(self, adapters: Adapters) -> Exactness:
        """Return the exactness of passes with these adapters."""
        return self.adapted if adapters else self.bare

    def are_exact(self, adapters: Adapters) -> bool:
        """Return whether every pass with these adapters is exact."""
        return self.of(adapters).is_exact


def sample(vocab: Tokenizer, n: int = CONTEXT) -> Tokens:
    """Return ids [n] of ordinary text: after random ones, logits differ by far more than in use."""
    return np.resize(np.array(vocab.encode(TEXT, special=False) or [0], dtype=np.int32), n)


def self_test(backend: Backend, max_width: int, n_context: int = CONTEXT, vocab: Tokenizer | None = None) -> Exactness:
    """Compare passes over 2 to `max_width` rows with passes over single rows, bit for bit, up to the first difference.

    They follow `n_context` tokens or some more. Then compares one pass over everything, which ends with a whole tile.
    Without a vocabulary, tokens are random.
    """
    n = n_context + (1 - n_context - max_width) % TILE
    n = max(1, min(n, backend.n_ctx - max_width))
    tokens = np.random.default_rng(SEED).integers(0, backend.n_vocab, n + max_width).astype(np.int32)
    if vocab is not None:
        tokens = sample(vocab, n + max_width)
    backend.forward(tokens[: max(1, n - 1)])  # so that the first row is alone as well
    alone = [backend.forward(tokens[: n + i])[0].copy() for i in range(max_width)]

    def off(rows: int) -> float:
        return worst(backend.forward(tokens[:n], Draft(tuple(tokens[n : n + rows - 1].tolist()))), alone)

    width, difference = 1, 0.0
    for rows in tested_widths(max_width):
        if difference := off(rows):
            difference = max(difference, off(max_width))  # the widest is likely to differ most
            break
        width = rows
    backend.forward((tokens[:1] + 1) % backend.n_vocab)  # so that the next pass reads the whole context
    difference = max(difference, worst(backend.forward(tokens[: n + max_width - 1]), alone[-1:]))
    return Exactness(width, max_width, difference, difference == 0.0)


def tested_widths(most: int) -> list[int]:
    """Return the widths to try: all up to one more than a tile, then some with different remainders."""
    return sorted({width for width in (*range(2, TILE + 2), 18, 20, 24, 31, 32, 48, most) if 2 <= width <= most})


def is_exact_padded(backend: LlamaBackend, rows: int, vocab: Tokenizer) -> bool:
    """Return whether all passes of up to `rows` rows are exact if padded to `rows`; if so, leave padding enabled."""
    backend.pad(rows)
    found = (self_test(backend, rows, n, vocab) for n in CONTEXTS)
    if all(each.width == rows for each in found):
        return True
    backend.pad(1)
    return False


def is_exact_together(backend: SharedPasses, width: int, vocab: Tokenizer) -> bool:
    """Return whether a shared pass of up to `width` rows gives each conversation the same logits as on its own.

    Drafts in it are rejected, so that cells of one conversation lie between another's.
    """
    n, n_steps = min(4, width, backend.n_seats), 4
    if n < 2 or backend.n_ctx < CONTEXT + n_steps:
        return False
    text = sample(vocab, n + CONTEXT + n_steps)
    draft = Draft(tuple(text[: width - n].tolist()))
    texts = [text[i : i + CONTEXT - 5 * i + n_steps] for i in range(n)]
    alone = [[backend.forward(each[:end])[0].copy() for end in range(len(each) - n_steps, len(each))] for each in texts]
    backend.set_slots(n)
    for each in texts:
        backend.forward(each[: -n_steps - 1])
    for step in range(n_steps):
        asked = [PassInput(each[: len(each) - n_steps + step]) for each in texts]
        asked[step % n] = asked[step % n]._replace(draft=draft)
        together = backend.forward_all(asked)
        if not all(np.array_equal(rows[0], steps[step]) for rows, steps in zip(together, alone, strict=True)):
            break
    else:
        step = n_steps
    backend.set_slots(1)
    return step == n_steps


def worst(together: Logits, alone: list[Logits]) -> float:
    """Return the largest difference between rows that should be the same."""
    return max(float(np.abs(row - single).max()) for row, single in zip(together, alone, strict=False))
