"""The drafter interface: a drafter proposes tokens within a budget until a stopping criterion ends the proposal.

Knows no model, no controller and no verification rule.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from enum import IntEnum
from typing import NamedTuple, Protocol

from runtime.core.draft import NO_DRAFT, Distribution, Draft, Logits, Path, Tokens

UNKNOWN_TOKEN = -1
NO_DRAFTER = "none"  # in place of a name, for plain passes
# Yields contexts, receives the logits [1, n_vocab] that follow each, and returns the draft
DraftGenerator = Generator[Tokens, Logits, Draft]


# Objects created in every step are named tuples: creating one takes a third of the time of a frozen dataclass.
class Pick(NamedTuple):
    """A drafter's choice of one token by the sampling rule of the sequence."""

    token: int
    # Probability of the likeliest token. It is known before the token is drawn, so stopping on it is lossless
    confidence: float
    distribution: Distribution | None  # the distribution of `token`, if the verification rule needs it


class Answer(IntEnum):
    """Decision of the stopping criterion about a draft token; falsy if the token is left out."""

    REJECT = 0  # leave the token out and stop
    LAST = 1  # keep the token and stop
    CONTINUE = 2  # keep the token and draft another


REJECT, LAST, CONTINUE = Answer  # a module name takes a tenth of the time of a member lookup


class ShouldContinue(Protocol):
    """The stopping criterion of one proposal, called once per draft token, in order."""

    def __call__(self, confidence: float, token: int = UNKNOWN_TOKEN) -> Answer:
        """Decide whether a token of this confidence is worth verifying.

        If `token` is passed, it is scored even if it is left out of the draft.
        """


def no_end(_: int) -> bool:
    """Return False: no token ends the reply."""
    return False


class Budget(NamedTuple):
    """Limits of one proposal, and the function that picks a token from the drafter's logits."""

    max_k: int
    should_continue: ShouldContinue
    pick: Callable[[Logits, Path], Pick]  # (logits row, tokens drafted before it)
    forced: Callable[[], Path] = tuple  # returns the next tokens that the grammar forces
    is_end: Callable[[int], bool] = no_end  # whether a token ends the reply, so that none after it is of use


class Drafter:
    """Base class of drafters. Proposes nothing, so decoding is plain."""

    name = NO_DRAFTER
    is_model_free = False  # a lookup, cheap enough to run in every step
    has_passes = False  # each draft token takes a pass of a model
    shares_passes = False  # one pass can draft tokens of several sequences
    spares_work = False  # its computation makes the target's pass over the draft tokens cheaper
    n_window_rows = 0  # rows that it adds to each pass for which it proposes
    reads_states = False  # it drafts from the target's states, which are those of all positions
    sees_images = False  # it reads contexts with images, as it is a part of the target

    def propose(self, context: Tokens, budget: Budget) -> Draft:
        """Return a draft of at most `budget.max_k` tokens to follow `context` [n]."""
        return NO_DRAFT

    def drafting(self, context: Tokens, budget: Budget) -> DraftGenerator:
        """Return the generator form of `propose`, so that the caller can share passes among several sequences."""
        raise NotImplementedError

    def forward_all(self, contexts: Sequence[Tokens]) -> Sequence[Logits]:
        """Return the logits [1, n_vocab] after each of these contexts, from as few passes as possible. They are valid
        until the next call.
        """
        raise NotImplementedError

    def observe(self, draft: Draft, logits: Logits) -> None:
        """Observe the target's logits [1 + len(draft), n_vocab] of a step with any drafter; valid until it returns."""

    def rest(self, n_steps: int) -> None:
        """Note that a proposal is unlikely in the next `n_steps` steps; the drafter may skip its preparation."""

    def takes_part(self, expected: Sequence[int], has_grammar: bool) -> bool:
        """Return whether it can propose for a reply with these `expected` tokens, with or without a grammar."""
        return True

    def begin(self, context: Tokens, expected: Sequence[int]) -> None:
        """Begin a reply to `context` [n]; `expected` are the tokens that the caller predicts for it, if any."""

    def finish(self, context: Tokens, n_prompt: int) -> None:
        """End a reply, complete or not: the tokens of `context` [n] after the first `n_prompt`."""

    def resume(self, context: Tokens) -> None:
        """Continue the sequence with this `context` [n], after steps of another sequence."""

    def n_uncached(self, context: Tokens) -> int:
        """Return the number of tokens of `context` to prefill before it can propose."""
        return 0

    def prefill(self, context: Tokens, n_whole: int) -> None:
        """Prefill the uncached tokens of `context` [n], which is the start of a context of `n_whole` tokens."""

    def close(self) -> None:
        """Free the drafter's memory."""


class Traits(NamedTuple):
    """Static properties of a drafter, known before its first proposal."""

    seconds: float  # measured seconds per draft token
    is_model_free: bool = False  # a lookup: its tokens cost nothing after the lookup
    spares_work: bool = False  # its computation makes the target's pass over the draft tokens cheaper
    n_window_rows: int = 0  # rows that it adds to each pass for which it proposes


def traits_of(drafter: Drafter, seconds: float) -> Traits:
    """Return the traits of a drafter with these measured seconds per draft token."""
    return Traits(seconds, drafter.is_model_free, drafter.spares_work, drafter.n_window_rows)
