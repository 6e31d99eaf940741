"""The contract between the engine and whatever runs a model. Only protocols; knows no library."""

from __future__ import annotations

from typing import Protocol

from runtime.core.draft import NO_DRAFT, Draft, Logits, Tokens


class Backend(Protocol):
    """One model with a cache that nobody else sees.

    `forward(context, draft)` returns the logits [1 + len(draft), n_vocab] that follow `context[-1]` (row 0) and each
    draft token. The backend finds how much of `context` its cache holds, drops the rest and decodes what is missing
    plus the draft: whatever was asked before, the logits are those of exactly these tokens. They are valid until the
    next call. Raises ContextError when the tokens do not fit `n_ctx`, ModelError when the library fails.
    """

    n_ctx: int
    n_vocab: int
    can_rewind: bool  # rejected tokens can be dropped cheaply; without it nothing is drafted
    can_branch: bool  # trees can be decoded in one pass

    def forward(self, context: Tokens, draft: Draft = NO_DRAFT) -> Logits:
        """Logits [1 + len(draft), n_vocab] that follow `context` and each draft token."""

    def n_cached(self, context: Tokens) -> int:
        """How many of the first tokens of `context` need no decoding; its last one always does."""

    def keep(self, n: int) -> None:
        """Holds up to `n` conversations from now on, the last one included."""

    def recall(self, context: Tokens) -> None:
        """Makes ready what is kept of a conversation that `context` goes on; `forward` does so by itself, but this
        takes its time apart.
        """

    def set_threads(self, one: int, many: int) -> None:
        """Threads for passes of one row and of several rows."""

    def close(self) -> None:
        """Frees the context."""


class Tokenizer(Protocol):
    """Text to token ids and back."""

    def encode(self, text: str, *, special: bool) -> list[int]:
        """Ids of `text`; with `special`, the vocabulary's control tokens are recognised in it."""

    def piece(self, token: int) -> bytes:
        """The token's text; b"" for a control token."""

    def is_end(self, token: int) -> bool:
        """Does the model end its turn with this token?"""
