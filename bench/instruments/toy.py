"""A model without weights, its steps, clock and facts: what tests and benchmarks of a decoder need instead of a file.

Logits are a function of the last tokens alone, so that the distribution can be enumerated. Strict semantics: `forward`
answers for exactly the given tokens, trees included. Raises ContextError for a context that is too long.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from weakref import WeakKeyDictionary

import numpy as np

from runtime.backends.vocab import Mark
from runtime.core.draft import NO_DRAFT, Adapters, Draft, Logits, Tokens
from runtime.core.errors import ContextError
from runtime.engine import EngineFacts
from runtime.loading.exactness import Exactness
from runtime.sampling.sampler import Sampler
from runtime.speculative.decoder import Decoder
from runtime.speculative.step import DraftingState, Step, StepInput
from runtime.speculative.verify import rule_of


class ToyBackend:
    """Logits for (token before, last token) from a table; `blur` mixes in another table, for a draft model that is
    often wrong.
    """

    def __init__(self, n_vocab: int = 6, n_ctx: int = 1024, blur: float = 0.0) -> None:
        rng = np.random.default_rng(7)
        tables = rng.normal(size=(2, n_vocab, n_vocab, n_vocab)) * 2
        self.table: Logits = ((1 - blur) * tables[0] + blur * tables[1]).astype(np.float32)
        self.n_vocab, self.n_ctx, self.n_passes, self.closed = n_vocab, n_ctx, 0, False
        self.n_rewindable = n_ctx

    def row(self, path: list[int]) -> Logits:
        """Return logits [n_vocab] after these tokens."""
        return self.table[path[-2] if len(path) > 1 else 0, path[-1]]

    def forward(self, context: Tokens, draft: Draft = NO_DRAFT, exact: bool = True) -> Logits:
        if len(context) + len(draft) > self.n_ctx:
            raise ContextError("too long")
        self.n_passes += 1
        rows, paths = [self.row(context[-2:].tolist())], [context[-2:].tolist()]
        for i, token in enumerate(draft.tokens):
            parent = i - 1 if draft.parents is None else draft.parents[i]
            paths.append([*paths[parent + 1], token])
            rows.append(self.row(paths[-1]))
        return np.stack(rows)

    def n_cached(self, context: Tokens, exact: bool = True) -> int:
        return 0

    def set_slots(self, n: int) -> None:
        self.slots = n

    def use(self, adapters: Adapters) -> None:
        pass

    def resume(self, context: Tokens, exact: bool = True) -> None:
        pass

    def set_threads(self, one: int, many: int) -> None:
        pass

    def close(self) -> None:
        self.closed = True


class ToyVocab:
    """A vocabulary of these texts, of which the longest is taken first; letters that no token has are left out."""

    def __init__(self, texts: Sequence[bytes]) -> None:
        self.n_vocab, self.pieces, self.named_pieces = len(texts), dict(enumerate(texts)), dict(enumerate(texts))
        self.marks: tuple[Mark, ...] = ()
        self.bos = self.eos = self.end = -1
        self.adds_bos = False

    def texts(self) -> list[bytes]:
        return list(self.pieces.values())

    def encode(self, text: str, *, special: bool) -> list[int]:
        data, found, place = text.encode(), list[int](), 0
        while place < len(data):
            fitting = [token for token, piece in self.pieces.items() if piece and data.startswith(piece, place)]
            best = max(fitting, key=lambda token: len(self.pieces[token]), default=None)
            found += [] if best is None else [best]
            place += 1 if best is None else len(self.pieces[best])
        return found


class ToyHead(ToyBackend):
    """The backend of a head that drafts `n_tokens` tokens at most and knows the target's state everywhere."""

    def __init__(self, n_tokens: int, blur: float = 0.0) -> None:
        super().__init__(blur=blur)
        self.n_tokens = n_tokens

    def knows(self, context: Tokens) -> bool:
        return True

    def rest(self, n_passes: int) -> None:
        pass


class ToyBlocks(ToyHead):
    """The backend of a head that drafts a block: rows depend on the context, and not on one another."""

    def forward(self, context: Tokens, draft: Draft = NO_DRAFT, exact: bool = True) -> Logits:
        path = context[-2:].tolist()
        return np.stack([self.row([token, path[-1]]) for token in (path[0], *range(1, self.n_tokens))])


STATES: WeakKeyDictionary[Decoder, DraftingState] = WeakKeyDictionary()


def state_of(decoder: Decoder) -> DraftingState:
    """Return the state of the last sequence, or else of one for which all drafters are enabled."""
    return decoder.drafting.current or STATES.setdefault(
        decoder, DraftingState(drafters={each.name for each in decoder.active.drafters})
    )


def one_step(
    decoder: Decoder, context: Tokens, sampler: Sampler, position: int, most: int, state: DraftingState | None = None
) -> Step:
    """Return one step after `context` [n]. Raises the step's error."""
    state = state or state_of(decoder)
    state.rule = rule_of(sampler)
    (made,) = decoder.step([StepInput(state, context, sampler, position, most)])
    if isinstance(made, Step):
        return made
    raise made


class Clock:
    """A replacement for `time.perf_counter`."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """Return the current time in seconds."""
        return self.now

    def advance(self, seconds: float) -> float:
        """Advance the clock by `seconds`, and return them."""
        self.now += seconds
        return seconds


USUAL = EngineFacts(
    n_ctx=256,
    n_ctx_train=256,
    n_vocab=100,
    n_embd=8,
    n_bytes=2**20,
    template="scripted",
    fit="everything fits: it needs 1 MiB",
    left_out="",
    exactness=Exactness(1, 1),
    is_reproducible=True,
    can_draft=True,
    could_be_exact=False,
    has_gpu=False,
    can_infill=False,
)


def facts(**changes: object) -> EngineFacts:
    """Return the usual facts with some changed."""
    return replace(USUAL, **changes)  # type: ignore[arg-type]
