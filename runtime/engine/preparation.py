"""Requests that are prepared on threads during the steps of others: their prompts encoded, their grammars compiled, the
embeddings of their images computed.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any

from runtime.conversation.window import PromptWindow
from runtime.core.errors import ContextError, SlipstreamError
from runtime.engine.engine import Ask
from runtime.engine.output import Chunk
from runtime.engine.sequence import Sequence
from runtime.engine.stats import Stats

Make = Callable[[Callable[[], bool]], Sequence]  # from a function that returns whether the request was cancelled


class Preparation:
    """A request whose sequence is being made."""

    def __init__(
        self, number: int, ask: Ask, make: Make, is_cancelled: Callable[[], bool], pool: Executor | None
    ) -> None:
        """Begin to make the sequence; without a pool, make it."""
        self.number, self.ask, self._is_cancelled, self._was_cancelled = number, ask, is_cancelled, False
        now = partial(tried, partial(make, self.is_unwanted))
        self.made = pool.submit(now) if pool else Future[Sequence | Exception]()
        self._is_shown = False  # whether its first chunk was returned
        if not pool:
            self.made.set_result(now())

    def is_unwanted(self) -> bool:
        """Return whether it was cancelled, also after its number has been forgotten."""
        self._was_cancelled |= self._is_cancelled()
        return self._was_cancelled

    @property
    def pictured(self) -> Sequence | None:
        """The sequence, if it has been made and has images; else None."""
        made = self.made.result() if self.made.done() else None
        return made if isinstance(made, Sequence) and made.images else None

    @property
    def pending(self) -> Future[Any]:
        """What it waits for now: its sequence, then the images of that."""
        seen = self.pictured
        return seen.images if seen and seen.images else self.made

    def first_chunk(self) -> Chunk | None:
        """Return a chunk that tells the length of the prompt, once only images are waited for; None at later calls."""
        if self._is_shown or (seen := self.pictured) is None:
            return None
        self._is_shown = True
        return seen.progress(0)

    @property
    def is_over(self) -> bool:
        """Whether the sequence has been made and its images encoded, or it is no longer wanted."""
        return self.pending.done() or self.is_unwanted()

    @property
    def outcome(self) -> Sequence | Chunk | Exception:
        """The sequence, or the last output of the request if it was cancelled or failed. Waits for it."""
        if self.is_unwanted():
            self.made.cancel()
            return Chunk("", finish_reason="cancelled", stats=Stats())
        came = self.made.result()
        error = self.pending.exception()
        return error if isinstance(error, Exception) else came


def prompt_ids(window: PromptWindow, max_tokens: int | None) -> list[int]:
    """Return a prompt's token ids. Raises ContextError if it is empty or too long."""
    ids, n_ctx = window.begin(max_tokens), window.n_ctx
    if not ids:
        raise ContextError("The prompt is empty. Write something.")
    if len(ids) >= n_ctx:
        raise ContextError(
            f"The prompt has {len(ids)} tokens, but the context holds {n_ctx}. Shorten it, or raise `--context`.",
            len(ids),
            n_ctx,
        )
    return ids


def tried(make: Callable[[], Sequence]) -> Sequence | Exception:
    """Return what `make` returns or raises. An expected error has no traceback: its frames, which refer to the error in
    turn, would keep a grammar of hundreds of megabytes.
    """
    try:
        return make()
    except SlipstreamError as error:
        return error.with_traceback(None)
    except Exception as error:
        return error
