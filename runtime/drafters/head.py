"""Drafts from a head that reads the target's hidden states.

It is a draft model of few layers, which begins where the target's last pass ended: what it has not seen of that it
cannot guess from. How a head is run is its backend's.
"""

from __future__ import annotations

from typing import Protocol

from runtime.core.backend import Backend
from runtime.core.draft import NO_DRAFT, Tokens
from runtime.core.drafter import Budget, Drafting
from runtime.drafters.model import ModelDrafter

FRESH = 16  # of the target's passes, that a head has heard of when it is asked again after a rest


class DraftingHead(Backend, Protocol):
    """A head beside a target."""

    def knows(self, context: Tokens) -> bool:
        """Are the target's states known for all of `context` but its last token?"""

    def rest(self, n_passes: int) -> None:
        """Hears nothing of the target's next `n_passes`."""


class HeadDrafter(ModelDrafter):
    """A draft model that is a head on the target. One that rests takes up the text where it is asked again: what it
    guesses hangs on the latest tokens.
    """

    def __init__(self, backend: DraftingHead, n_vocab: int, room: int = 1) -> None:
        super().__init__(backend, n_vocab, room)
        self._head = backend

    def rest(self, n_steps: int) -> None:
        """The target's states are not taken in before they can be of use: that costs some hundredths of a pass."""
        self._head.rest(max(0, n_steps - FRESH))

    def drafting(self, context: Tokens, budget: Budget) -> Drafting:
        """As ModelDrafter does; nothing where the target's states are not known, as after a tree or a restored text."""
        if self._head.knows(context):
            return (yield from super().drafting(context, budget))
        return NO_DRAFT
