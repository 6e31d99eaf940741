"""Protocols between the engine and the backends that run models. Knows no library."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from runtime.core.draft import NO_DRAFT, Adapters, Draft, Logits, PassInput, Tokens

OnProgress = Callable[[str, float], bool]  # (item being loaded, fraction loaded) -> whether to continue
SERVERS = "server's"  # the item in OnProgress while another server loads the model


class Backend(Protocol):
    """One model with a private KV cache.

    `forward(context, draft)` returns the logits [1 + len(draft), n_vocab] after `context[-1]` (row 0) and after each
    draft token. The backend keeps the cached prefix of `context`, drops the rest of the cache, and decodes the missing
    tokens and the draft, so the logits do not depend on earlier calls. They are valid until the next call.
    Where the rounding of a pass depends on its width, this holds with `exact` (the default): then only cached tokens
    are reused that were computed as with `exact`, and of a text that only begins alike a multiple of the kernels' tile.
    Raises ContextError when the tokens do not fit `n_ctx`, ModelError when the library fails.
    """

    n_ctx: int
    n_vocab: int
    n_rewindable: (
        int  # context length in tokens up to which rejected tokens are cheap to drop; beyond it nothing is drafted
    )

    def forward(self, context: Tokens, draft: Draft = NO_DRAFT, exact: bool = True) -> Logits:
        """Return the logits [1 + len(draft), n_vocab] after `context` and after each draft token."""

    def n_cached(self, context: Tokens, exact: bool = True) -> int:
        """Return the number of leading tokens of `context` that are cached; the last token is always decoded."""

    def set_slots(self, n: int) -> None:
        """Set the number of conversations to keep cached, including the latest."""

    def resume(self, context: Tokens, exact: bool = True) -> None:
        """Load the cached conversation that `context` continues.

        `forward` does this itself. Calling it first keeps the loading time out of the measured pass.
        """

    def set_threads(self, one: int, many: int) -> None:
        """Set the number of threads for passes of one row and for passes of several rows."""

    def close(self) -> None:
        """Free the context."""


class Flag(Protocol):
    """A stop flag: while it is set, passes raise StoppedError."""

    def put(self, is_up: bool) -> None:
        """Set or clear the flag. May be called on any thread."""


class AdaptedBackend(Backend, Protocol):
    """Backend of a model that LoRA adapters may change."""

    def use(self, adapters: Adapters) -> None:
        """Use these LoRA adapters from now on. Conversations that were read with others stay cached, and are not
        reused until those are used again.
        """


class TargetBackend(AdaptedBackend, Protocol):
    """Backend of a target model: it can cache several conversations, and its passes can be stopped."""

    @property
    def stop_flag(self) -> Flag:
        """The flag that stops passes."""

    @property
    def slots(self) -> int:
        """Number of conversations that can be cached."""


class SharedPasses(TargetBackend, Protocol):
    """A backend that can decode up to `n_seats` conversations in one pass."""

    n_seats: int

    def fits(self, lengths: Iterable[int]) -> bool:
        """Return whether conversations of these lengths in tokens fit into the cache together."""

    def forward_all(self, asked: Sequence[PassInput]) -> list[Logits]:
        """Return the logits, as of `forward`, for each of several contexts and drafts, from one pass.

        The contexts must fit together, and the drafts may have no more tokens in total than a single draft may.
        The logits are valid until the next call.
        """


class Reloadable(Protocol):
    """A component whose memory can be released and allocated again, such as a draft model."""

    @property
    def is_open(self) -> bool:
        """Whether the memory is allocated."""

    def reopen(self) -> None:
        """Start opening in the background, or install the result of a finished opening. Raises what opening raised."""

    def close(self) -> None:
        """Release everything, including an opening in progress."""


class Tokenizer(Protocol):
    """Converts text to token ids and back."""

    @property
    def pieces(self) -> Mapping[int, bytes]:
        """The bytes of each token, b"" for control tokens."""

    @property
    def ends(self) -> Mapping[int, bool]:
        """Whether each token ends the model's turn."""

    def encode(self, text: str, *, special: bool) -> list[int]:
        """Return the token ids of `text`; with `special`, control tokens written in it are recognized."""
