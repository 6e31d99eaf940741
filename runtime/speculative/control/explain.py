"""What the controller knows and therefore chooses, as plain data for people to look at. Reads; decides nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from runtime.speculative.control.controller import Controller
from runtime.speculative.control.drafter_state import DrafterState
from runtime.speculative.control.tuning import TUNING


class Why(NamedTuple):
    """What was known when a pass of a reply was made, for a trace."""

    n_context: int  # tokens before it
    confidences: tuple[float, ...]  # of the draft's tokens, as far as their drafter says some
    reason: str  # why nothing was drafted, in a sentence; "" where something was
    plain_per_second: float  # tok/s of plain decode by itself
    asked: tuple[str, ...] = ()  # the drafters that proposed something, used or not
    unasked: Mapping[str, str] = {}  # why others were not asked, by name


class Pass(NamedTuple):
    """One target pass of a reply."""

    seconds: float  # of the whole step
    drafters: tuple[str, ...]  # whose proposals it verified: none in a plain one, several in a tree
    n_drafted: int
    n_accepted: int
    n_tokens: int = 0  # that became part of the reply
    draft_seconds: float = 0.0
    verify_seconds: float = 0.0
    own_seconds: float = 0.0  # of the step, as far as other programs did not keep it waiting
    n_together: int = 1  # replies that had rows of it
    why: Why | None = None  # where the reply is traced

    @property
    def drafter(self) -> str:
        """The drafters in a word, for people and for counts: "none" for a plain pass."""
        return "+".join(self.drafters) or "none"


@dataclass(frozen=True, slots=True)
class DrafterFacts:
    """One drafter: what it costs, how often it is right, what that promises."""

    name: str
    is_model_free: bool  # costs nothing to use once it has spoken
    acceptance: float  # share of its lately tried tokens that were accepted
    n_seen: int  # tokens that were compared with what came
    first_seconds: float  # until its first token
    rest_seconds: float  # for each further one
    tokens: tuple[float, ...]  # [max_k] expected tokens of a pass, by draft length - 1
    per_second: tuple[float, ...]  # [max_k] expected tokens per second, by draft length - 1
    expected_gain: float  # tokens per step beyond plain decode that the controller believes in
    is_disabled: bool  # it lost more time than was believed
    n_waited: int  # steps since it was parked or probed
    n_wait: int  # steps until the next probe

    @property
    def best_k(self) -> int:
        """The draft length that promises most, were every draft as long."""
        return 1 + max(range(len(self.per_second)), key=self.per_second.__getitem__)


@dataclass(frozen=True, slots=True)
class Explanation:
    """The decision and what it rests on."""

    pass_seconds: tuple[float, ...]  # [max_k + 1] seconds of a target pass over 1, 2, ... rows
    measured: tuple[int, ...]  # the widths that were measured; the others lie between or beyond
    plain_per_second: float
    rate: float  # tokens per second of the best way known
    overhead: float  # seconds per token outside models
    fixed_k: int | None
    drafters: tuple[DrafterFacts, ...]  # those that promise most first
    chosen: str | None  # the drafter asked first because it pays; None: plain decode
    decode_seconds: float
    probe_seconds: float  # of those, lost to asking drafters that are not believed to pay
    probe_share: float  # that they may cost
    why_plain: str  # the reason for plain steps, in words
    n_together: int = 1  # replies that share the passes which are made

    @property
    def costs(self) -> dict[int, float]:
        """Seconds of a target pass, by the widths that were measured."""
        return {width: self.pass_seconds[width - 1] for width in self.measured if width <= len(self.pass_seconds)}


def explain(controller: Controller, n_context: int, why_plain: str) -> Explanation:
    """Takes stock of a controller at that context length."""
    costs = controller.passes.costs
    pass_seconds = tuple(costs.up_to(controller.max_k + 1, n_context))
    plain = 1 / max(pass_seconds[0] + controller.overhead, 1e-9)
    ranked = sorted(controller.states.items(), key=lambda item: -item[1].expected_gain)
    paying = [name for name, state in ranked if state.expected_gain > TUNING.margin and not state.is_disabled]
    return Explanation(
        pass_seconds=pass_seconds,
        measured=tuple(sorted(costs.widths(n_context))),
        plain_per_second=plain,
        rate=plain * max(controller.best_gain, 1.0),
        overhead=controller.overhead,
        fixed_k=controller.fixed_k,
        drafters=tuple(facts(name, state, pass_seconds, controller.overhead) for name, state in ranked),
        chosen=paying[0] if paying else None,
        decode_seconds=controller.exploration.decode_seconds,
        probe_seconds=controller.exploration.seconds,
        probe_share=TUNING.probe_share,
        why_plain=why_plain,
        n_together=controller.passes.n_together,
    )


def facts(name: str, state: DrafterState, pass_seconds: tuple[float, ...], overhead: float) -> DrafterFacts:
    """What one drafter promises at every draft length."""
    acceptance = state.acceptance.rate
    tokens = tuple(expected_tokens(acceptance, k) for k in range(1, len(pass_seconds)))
    per_second = tuple(
        n / (state.seconds_for(k) + seconds + n * overhead)
        for k, (n, seconds) in enumerate(zip(tokens, pass_seconds[1:], strict=True), start=1)
    )
    return DrafterFacts(
        name, state.traits.is_model_free, acceptance, state.acceptance.n_seen, state.first_seconds, state.rest_seconds,
        tokens, per_second,
        state.expected_gain, state.is_disabled, state.since_probe, state.probe_interval,
    )  # fmt: skip


def expected_tokens(acceptance: float, k: int) -> float:
    """E(k): the tokens of a pass over k drafted ones, each accepted with that chance, and one of the target's own."""
    return float(sum(acceptance**i for i in range(k + 1)))
