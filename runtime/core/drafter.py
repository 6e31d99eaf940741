"""What a drafter is: it proposes tokens within a budget, and a stopping criterion tells it when to stop.

Only the contract; knows no model, no controller and no rule of acceptance.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from enum import IntEnum
from typing import NamedTuple, Protocol

from runtime.core.draft import NO_DRAFT, Distribution, Draft, Logits, Path, Tokens

UNKNOWN_TOKEN = -1


# What is made in every step is a named tuple: that takes a third of a frozen dataclass's time.
class Pick(NamedTuple):
    """A drafter's choice of one token by the reply's own sampling rule."""

    token: int
    # Probability of the likeliest token: known before the token is drawn, so stopping on it is lossless
    confidence: float
    distribution: Distribution | None  # what `token` was drawn from, where the rule of acceptance compares it
    others: tuple[int, ...] = ()  # the next best tokens, best first


class Answer(IntEnum):
    """What becomes of a draft token, and whether another one is wanted; false for a token that is not wanted."""

    REJECT = 0  # leave it out and stop
    LAST = 1  # take it and stop
    CONTINUE = 2  # take it and draft another


REJECT, LAST, CONTINUE = Answer  # looked up so by name, a member takes a tenth of the time


class ShouldContinue(Protocol):
    """The stopping criterion of one proposal: asked once per draft token, in order."""

    def __call__(self, confidence: float, token: int = UNKNOWN_TOKEN) -> Answer:
        """Is a token of this confidence worth verifying? Naming it lets it be scored even if it is rejected."""


class Budget(NamedTuple):
    """What a drafter may spend on one proposal, and how it chooses a token from its own logits."""

    max_k: int
    should_continue: ShouldContinue
    pick: Callable[[Logits, Path, int], Pick]  # (logits row, tokens drafted before it, number of next best tokens)
    branches: int = 0  # side branches wanted at each draft token
    forced: Callable[[], Path] = tuple  # the tokens that the reply's grammar leaves no choice about


# Asks for the logits [1, n_vocab] that follow a context, as often as it likes; what it returns is the draft
Drafting = Generator[Tokens, Logits, Draft]


class Drafter:
    """Proposes nothing, so decoding is plain. Subclasses guess."""

    name = "none"
    is_model_free = False  # a lookup: it costs so little that it may be asked in every step
    must_earn = False  # it expects repetition: how often that is right must be seen before it is believed
    has_passes = False  # each of its tokens takes a pass of a model
    shares_passes = False  # one pass can have tokens of several proposals
    spares_work = False  # what it leaves behind makes the target's pass over its tokens cheaper
    n_window_rows = 0  # that it has in every pass before which it is asked

    def propose(self, context: Tokens, budget: Budget) -> Draft:
        """At most `budget.max_k` tokens that may follow `context` [n]."""
        return NO_DRAFT

    def drafting(self, context: Tokens, budget: Budget) -> Drafting:
        """What `propose` does, where it shares passes: those are made by whoever drafts for several replies."""
        raise NotImplementedError

    def forward_all(self, contexts: Sequence[Tokens]) -> Sequence[Logits]:
        """The logits [1, n_vocab] that follow each of these contexts, from as few passes as may be; valid until the
        next ones.
        """
        raise NotImplementedError

    def observe(self, draft: Draft, logits: Logits) -> None:
        """Sees the target's logits [1 + len(draft), n_vocab] of a step, whoever drafted; valid until it returns."""

    def rest(self, n_steps: int) -> None:
        """It will hardly be asked in the next `n_steps` steps: what it does to be ready for that, it may leave."""

    def takes_part(self, expected: Sequence[int], has_grammar: bool) -> bool:
        """Can it have anything to propose in a reply with these `expected` tokens, bound to a grammar or not?"""
        return True

    def begin(self, context: Tokens, expected: Sequence[int]) -> None:
        """A reply to `context` [n] begins; `expected` are the tokens that the caller thinks it will have, if any."""

    def finish(self, context: Tokens, n_prompt: int) -> None:
        """A reply has ended, or was broken off: it is what follows the first `n_prompt` tokens of `context` [n]."""

    def resume(self, context: Tokens) -> None:
        """The reply whose `context` [n] this is continues, after steps of another one."""

    def n_uncached(self, context: Tokens) -> int:
        """How many tokens of `context` it would have to read before it can propose what follows."""
        return 0

    def prefill(self, context: Tokens, n_whole: int) -> None:
        """Reads what it has not read of `context` [n], which is the beginning of a context of `n_whole` tokens."""

    def close(self) -> None:
        """Frees what the drafter holds."""
