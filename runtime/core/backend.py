"""The contract between the engine and whatever runs a model. Only protocols; knows no library."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from runtime.core.draft import NO_DRAFT, Draft, Logits, Tokens

OnProgress = Callable[[str, float], bool]  # (what is being loaded, share of it) -> go on?
SERVERS = "server's"  # what is loaded by another server, and waited for


class Backend(Protocol):
    """One model with a cache that nobody else sees.

    `forward(context, draft)` returns the logits [1 + len(draft), n_vocab] that follow `context[-1]` (row 0) and each
    draft token. The backend finds how much of `context` its cache holds, drops the rest and decodes what is missing
    plus the draft: whatever was asked before, the logits are those of exactly these tokens. They are valid until the
    next call. Raises ContextError when the tokens do not fit `n_ctx`, ModelError when the library fails.
    """

    n_ctx: int
    n_vocab: int
    n_rewindable: (
        int  # tokens of a context up to which rejected ones can be dropped cheaply; beyond, nothing is drafted
    )
    can_branch: bool  # trees can be decoded in one pass

    def forward(self, context: Tokens, draft: Draft = NO_DRAFT) -> Logits:
        """Logits [1 + len(draft), n_vocab] that follow `context` and each draft token."""

    def n_cached(self, context: Tokens) -> int:
        """How many of the first tokens of `context` need no decoding; its last one always does."""

    def set_slots(self, n: int) -> None:
        """Holds up to `n` conversations from now on, the latest included."""

    def resume(self, context: Tokens) -> None:
        """Makes ready what is held of the conversation that `context` continues.

        `forward` does so by itself; called before it, this keeps that time out of the pass's.
        """

    def set_threads(self, one: int, many: int) -> None:
        """Threads for passes of one row and of several rows."""

    def close(self) -> None:
        """Frees the context."""


class Flag(Protocol):
    """Ends passes: while it is up, they raise StoppedError."""

    def put(self, is_up: bool) -> None:
        """Up or down, on any thread."""


class TargetBackend(Backend, Protocol):
    """The backend of a target: it may hold several conversations, and its passes can be ended."""

    @property
    def stop_flag(self) -> Flag:
        """Ends passes."""

    @property
    def slots(self) -> int:
        """Conversations that may be held."""


class SharedPasses(TargetBackend, Protocol):
    """A backend whose passes up to `n_seats` conversations can share."""

    n_seats: int

    def fits(self, lengths: Iterable[int]) -> bool:
        """Can conversations of so many tokens be decoded together?"""

    def forward_all(self, asked: Sequence[tuple[Tokens, Draft]]) -> list[Logits]:
        """What `forward` returns for each of several contexts and drafts, which fit together, from one pass.

        Valid until the next call; the drafts have no more tokens together than one may have.
        """


class Reloadable(Protocol):
    """Memory that can be given up and had again, such as a draft model's."""

    @property
    def is_open(self) -> bool:
        """Is the memory there?"""

    def reopen(self) -> None:
        """Opens it beside whatever goes on, or takes up what was opened. Raises what opening raised."""

    def close(self) -> None:
        """Gives everything back, also what is on its way."""


class Tokenizer(Protocol):
    """Text to token ids and back."""

    @property
    def pieces(self) -> Mapping[int, bytes]:
        """The bytes of each token; b"" for a control token."""

    @property
    def ends(self) -> Mapping[int, bool]:
        """Does the model end its turn with this token?"""

    def encode(self, text: str, *, special: bool) -> list[int]:
        """Ids of `text`; with `special`, the vocabulary's control tokens are recognised in it."""
