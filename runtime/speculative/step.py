"""What goes into a step of decoding and what comes out of it. Plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from runtime.sampling.logits import TokenLogprobs
from runtime.speculative.control.reasons import Reason


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


@dataclass(slots=True)
class RequestState:
    """What one reply has of the loop to itself: several may be made in turns."""

    n_reply: int = 0  # tokens that it is expected to have
    exact_only: bool = False  # its text can be predicted, so no pass may round otherwise than plain decode
    kind: str = ""  # of the text, because acceptance differs by kind
    drafters: set[str] = field(default_factory=set)  # that take part in it
    left_out: Reason | None = None  # set when a drafter does not take part because that would cost too much
