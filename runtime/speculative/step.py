"""What goes into a step of decoding and what comes out of it. Plain data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from runtime.core.draft import Tokens
from runtime.core.errors import SlipstreamError
from runtime.sampling.logits import Report, TokenLogprobs
from runtime.sampling.sampler import Sampler
from runtime.speculative.control.explain import Why
from runtime.speculative.control.reasons import Reason


class Due(NamedTuple):
    """What a reply asks of its next step: one to `most` tokens after `context` [n], whose last `position` tokens are
    the reply's. `report` says how likely they were, where that is asked; `n_unread` tokens before the last are to be
    read in the same pass.
    """

    context: Tokens
    sampler: Sampler
    position: int
    most: int
    report: Report | None = None
    n_unread: int = 0


class Step(NamedTuple):
    """What one target pass brought."""

    tokens: tuple[int, ...]
    n_accepted: int  # of them from the draft; the last token is always the target's own
    n_drafted: int
    drafters: tuple[str, ...]  # whose proposals were verified: none in plain decode, several in a tree
    draft_seconds: float
    verify_seconds: float  # the target's pass
    seconds: float  # the whole step
    logprobs: tuple[TokenLogprobs, ...] = ()  # one per token, where they were asked for
    n_together: int = 1  # replies that had rows of the pass
    why: Why | None = None  # where the reply is traced


def not_reading() -> Tokens | None:
    """Nothing is to be read of a prompt."""
    return None


@dataclass(slots=True, eq=False)
class RequestState:
    """What one reply has of the loop to itself: several may be made in turns."""

    n_reply: int = 0  # tokens that it is expected to have
    exact_only: bool = False  # its text can be predicted, so no pass may round otherwise than plain decode
    kind: str = ""  # of the text, because acceptance differs by kind
    is_traced: bool = False  # is it told of each step why it was as it was?
    drafters: set[str] = field(default_factory=set)  # that take part in it
    n_idle: int = 0  # steps from now on in which none of them need be asked
    left_out: Reason | None = None  # set when a drafter does not take part because that would cost too much
    due: Callable[[], Due | None] = lambda: None  # what its next step will be asked; None while that is not known
    unread: Callable[[], Tokens | None] = not_reading  # its prompt, while that may be read in any pieces
    n_early: int = 0  # tokens that came with its prompt's last piece, before others could come
    made: Step | SlipstreamError | None = None  # its next step, if it came with another reply's
