"""What goes into a step of decoding and what comes out of it. Plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from runtime.core.draft import Draft
from runtime.sampling.logits import TokenLogprobs
from runtime.speculative.control.reasons import Reason


class Proposal(NamedTuple):
    """What a drafter proposed in a step, and how much of it goes to the target."""

    name: str
    tokens: tuple[int, ...]  # a chain
    confidences: Sequence[float]  # of each of them, and perhaps of one more that was rejected unnamed
    draft: Draft  # NO_DRAFT: the rest is only scored
    first_seconds: float
    rest_seconds: float = 0.0
    n_rest: int = 0
    expected_gain: float = 0.0  # tokens that using it brings, as far as is believed


class Step(NamedTuple):
    """What one target pass brought."""

    tokens: tuple[int, ...]
    n_accepted: int  # of them from the draft; the last token is always the target's own
    n_drafted: int
    drafter: str  # "none" for plain decode
    draft_seconds: float
    verify_seconds: float  # the target's pass
    seconds: float  # the whole step
    logprobs: tuple[TokenLogprobs, ...] = ()  # one per token, where they were asked for


@dataclass(slots=True)
class RequestState:
    """What one reply has of the loop to itself: several may be made in turns."""

    n_reply: int = 0  # tokens that it is expected to have
    kind: str = ""  # of the text, because acceptance differs by kind
    drafters: set[str] = field(default_factory=set)  # that take part in it
    left_out: Reason | None = None  # set when a drafter does not take part because that would cost too much
