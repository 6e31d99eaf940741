"""Estimates and decisions of the controller as plain data: for users, and what it learned for the next start. Decides
nothing; knows no files.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from runtime.speculative.control.controller import Controller
from runtime.speculative.control.drafter_state import DrafterState
from runtime.speculative.control.tuning import TUNING

CREDIT = "seconds for probes"  # key of the probe credit; other keys are drafters' names and PASSES
PASSES = "passes"


class Why(NamedTuple):
    """Reasons behind one pass of a sequence, for a trace."""

    n_context: int  # context length in tokens before the pass
    confidences: tuple[float, ...]  # of the draft's tokens, if it was a chain
    reason: str  # why nothing was drafted, in a sentence; "" if there was a draft
    plain_per_second: float  # tok/s of plain decode of a single sequence
    asked: tuple[str, ...] = ()  # the drafters that proposed, used or not
    unasked: Mapping[str, str] = {}  # why other drafters were skipped, by name


class Pass(NamedTuple):
    """One target pass of a sequence."""

    seconds: float  # time of the whole step
    drafter: str  # whose proposal it verified; "none" in a plain pass
    n_drafted: int
    n_accepted: int
    n_tokens: int = 0  # tokens added to the reply
    draft_seconds: float = 0.0
    verify_seconds: float = 0.0
    own_seconds: float = 0.0  # time of the step without waiting for other programs
    n_together: int = 1  # number of sequences with rows in the pass
    why: Why | None = None  # set if the sequence is traced


@dataclass(frozen=True, slots=True)
class DrafterFacts:
    """One drafter: its cost, acceptance and expected gain."""

    name: str
    is_model_free: bool  # a lookup: its tokens cost nothing after the lookup
    acceptance: float  # acceptance rate of its recently tried tokens
    n_seen: int  # tokens compared with the generated text
    first_seconds: float  # until its first token
    rest_seconds: float  # for each further one
    tokens: tuple[float, ...]  # [max_k] expected tokens of a pass, by draft length - 1
    per_second: tuple[float, ...]  # [max_k] expected tokens per second, by draft length - 1
    expected_gain: float  # estimated tokens per step beyond plain decode
    n_waited: int  # steps since it was parked or probed
    n_wait: int  # steps between probes

    @property
    def best_k(self) -> int:
        """The draft length with the highest expected speed, if all drafts had the same length."""
        return 1 + max(range(len(self.per_second)), key=self.per_second.__getitem__)


@dataclass(frozen=True, slots=True)
class Explanation:
    """The controller's decision and the estimates behind it."""

    pass_seconds: tuple[float, ...]  # [max_k + 1] seconds of a target pass over 1, 2, ... rows
    measured: tuple[int, ...]  # the measured widths; others are interpolated or extrapolated
    plain_per_second: float
    rate: float  # tokens per second of the best drafter or plain decode
    overhead: float  # seconds per token outside models
    fixed_k: int | None
    drafters: tuple[DrafterFacts, ...]  # by expected gain, highest first
    chosen: str | None  # the drafter with the highest expected gain that pays; None: plain decode
    decode_seconds: float
    probe_seconds: float  # part of decode_seconds that was lost to probes
    probe_share: float  # fraction of decode_seconds that probes may cost
    why_plain: str  # the reason for plain steps, in words
    n_together: int = 1  # number of sequences that share passes

    @property
    def costs(self) -> dict[int, float]:
        """Seconds of a target pass by measured width."""
        return {width: self.pass_seconds[width - 1] for width in self.measured if width <= len(self.pass_seconds)}


def explain(controller: Controller, n_context: int, why_plain: str) -> Explanation:
    """Return the estimates and the decision of a controller at this context length."""
    costs = controller.passes.costs
    pass_seconds = tuple(costs.up_to(controller.max_k + 1, n_context))
    plain = 1 / max(pass_seconds[0] + controller.overhead.seconds, 1e-9)
    ranked = sorted(controller.states.items(), key=lambda item: -item[1].expected_gain)
    paying = [name for name, state in ranked if state.expected_gain > 0]
    return Explanation(
        pass_seconds=pass_seconds,
        measured=tuple(sorted(costs.widths(n_context))),
        plain_per_second=plain,
        rate=plain * max(controller.gain, 1.0),
        overhead=controller.overhead.seconds,
        fixed_k=controller.fixed_k,
        drafters=tuple(facts(name, state, pass_seconds, controller.overhead.seconds) for name, state in ranked),
        chosen=paying[0] if paying else None,
        decode_seconds=controller.exploration.decode_seconds,
        probe_seconds=controller.exploration.seconds,
        probe_share=TUNING.probe_share,
        why_plain=why_plain,
        n_together=controller.n_together,
    )


def facts(name: str, state: DrafterState, pass_seconds: tuple[float, ...], overhead: float) -> DrafterFacts:
    """Return one drafter's estimates for every draft length."""
    acceptance = state.acceptance.rate
    tokens = tuple(expected_tokens(acceptance, k) for k in range(1, len(pass_seconds)))
    per_second = tuple(
        n / (state.seconds_for(k) + seconds + n * overhead)
        for k, (n, seconds) in enumerate(zip(tokens, pass_seconds[1:], strict=True), start=1)
    )
    return DrafterFacts(
        name, state.traits.is_model_free, acceptance, state.acceptance.n_seen, state.times.first, state.times.rest,
        tokens, per_second,
        state.expected_gain, state.probes.since, state.probes.interval,
    )  # fmt: skip


def expected_tokens(acceptance: float, k: int) -> float:
    """Return E(k): the expected tokens of a pass over k draft tokens with this acceptance rate, plus the target's own
    token.
    """
    return float(sum(acceptance**i for i in range(k + 1)))


def kept(controller: Controller) -> dict[str, Any]:
    """Return the state to store."""
    learned = {name: state.acceptances.state() for name, state in controller.states.known.items()}
    passes = controller.passes.costs.state()
    return {**learned, CREDIT: controller.exploration.credit} | ({PASSES: passes} if passes else {})


def restore(controller: Controller, known: dict[str, Any]) -> None:
    """Restore the result of `kept`; parts that cannot be read are ignored."""
    for name, state in controller.states.items():
        try:
            state.acceptances.restore(known[name])
        except (KeyError, TypeError, ValueError, OverflowError):
            continue
    with suppress(TypeError, ValueError, OverflowError):
        controller.passes.costs.restore(known.get(PASSES, ()))
    credit = known.get(CREDIT)
    if isinstance(credit, float) and math.isfinite(credit):
        controller.exploration.restore(credit)
    controller.valuation.reset()
