"""Chooses which drafters propose in a step and how many tokens they draft.

Knows counts and times; knows no model, no tokens and no verification rule. The objective is expected tokens per
second, E(k) / (D(k) + T(1 + k)) against 1 / T(1) for plain decode, as docs/how-it-works.md derives it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from runtime.core.draft import Adapters
from runtime.core.drafter import Traits
from runtime.speculative.control.acceptance import bin_of
from runtime.speculative.control.costs import Overhead, PassCosts, PlainPasses
from runtime.speculative.control.decision import LOOK_UP, PROBE, SKIP, USE, WAIT, Choice, Decision, Exploration
from runtime.speculative.control.drafter_state import DrafterState, DrafterStates, DraftOutcome
from runtime.speculative.control.passes import Passes, Terms
from runtime.speculative.control.policy import StoppingCriterion, fastest_length
from runtime.speculative.control.reasons import NONE_ON, Reason, why_plain
from runtime.speculative.control.tuning import TUNING
from runtime.speculative.control.valuation import Valuation


class Controller:
    """Chooses drafters. A step calls `begin`, `choose` per drafter, `criterion` per proposal, and `learn`."""

    def __init__(
        self,
        costs: PassCosts,
        drafters: Mapping[str, Traits],
        max_k: int,
        fixed_k: int | None = None,
        off: Reason | None = None,
    ) -> None:
        self.max_k, self.fixed_k = max_k, fixed_k
        self.states = DrafterStates(drafters, costs)
        own = {name: state.costs for name, state in self.states.items() if state.costs}
        self.plain_passes, self.overhead = PlainPasses(), Overhead()
        self.passes = Passes(costs, own, self.plain_passes)
        self.off = off  # why there are no drafters
        self.exploration = Exploration(TUNING.first_probes * costs.seconds(1, 0))
        self._n_idle = 0  # steps without any drafter since the last step that was learned from
        self.valuation = Valuation(self._terms(0, 1, 1, None, None))

    def begin(
        self,
        n_context: int,
        most: int | None = None,
        n_together: int = 1,
        exact_rows: int | None = None,
        drafters: Collection[str] | None = None,
    ) -> Terms:
        """Begin a step at this context length, with at most `most` draft tokens (and `max_k`). `n_together`
        sequences share the pass. A pass of more than `exact_rows` rows must gain more to be chosen. `drafters`
        are the names of those that take part; None: all. Return its terms.
        """
        k = self.max_k if most is None else max(1, min(most, self.max_k))
        if self.states:
            self.states.set_shared(n_together > 1)
        terms = self._terms(n_context, k, n_together, exact_rows, drafters)
        if self._n_idle:
            self._end_idling(n_together)
        states = self.states.taking_part(drafters).values()
        self.valuation.update(states, terms)
        may_be_plain = n_together == 1 and self.fixed_k is None
        is_plain = may_be_plain and self.plain_passes.is_needed(self.valuation.gain(states, terms))
        return terms._replace(is_plain=True) if is_plain else terms

    def _terms(
        self, n_context: int, k: int, n_together: int, exact_rows: int | None, drafters: Collection[str] | None
    ) -> Terms:
        after = self.passes.leaving_seconds if n_together == 1 else 0.0
        shares = self.passes.shares(n_context, k, n_together)
        return Terms(n_context, n_together, shares, after, exact_rows, drafters, self.overhead.seconds)

    def set_kind(self, kind: str, adapters: Adapters = ()) -> None:
        """Set the kind of text and the model's adapters of the sequence whose step begins or was verified."""
        if self.states.set_kind(kind, adapters):
            self.valuation.expire()

    @property
    def gain(self) -> float:
        """Speed of the best drafter or plain decode at the last valuation, relative to plain decode."""
        terms = self.valuation.terms
        return self.valuation.gain(self.states.taking_part(terms.drafters).values(), terms)

    @property
    def n_together(self) -> int:
        """Number of sequences that shared a pass at the last valuation."""
        return self.valuation.terms.n_together

    def choose(self, terms: Terms, name: str, can_score: bool = True) -> Choice:
        """Return whether the drafter proposes in this step. `can_score`: whether tokens that are not verified can be
        compared with the text.
        """
        state = self.states[name]
        if self.fixed_k is not None:
            return Choice(LOOK_UP, self.fixed_k)
        if state.traits.is_model_free:
            return Choice(LOOK_UP if state.n_idle(terms.shares[0]) <= 0 else WAIT)
        if terms.is_plain:
            return Choice(Decision.MEASURE)
        if state.pays_now():
            return Choice(USE)
        return self._probe(terms, state, can_score)

    def _probe(self, terms: Terms, state: DrafterState, can_score: bool) -> Choice:
        """Return whether to probe a drafter that is not expected to pay."""
        if not self.exploration.can_afford(state.times.first):
            return Choice(SKIP)
        if state.probes.n_until > 0:
            return Choice(WAIT)
        return Choice(PROBE, state.n_to_verify(can_score, terms.pass_seconds_of(state)))

    def n_idle(self, terms: Terms) -> int:
        """Return the number of next steps in which none of the drafters that take part will propose."""
        if self.fixed_k is not None or terms.is_plain:
            return 0
        plain = max(terms.shares[0], 1e-9)
        waits = [int(TUNING.idle_seconds / (plain * terms.n_together))]
        for state in self.states.taking_part(terms.drafters).values():
            if state.traits.is_model_free:
                waits.append(state.n_idle(plain))
            elif state.pays_now():
                return 0
            elif self.exploration.can_afford(state.times.first):
                waits.append(state.probes.n_until)
        return max(0, min(waits))

    def n_unasked(self, terms: Terms, name: str) -> int:
        """Return the estimated number of next steps in which this drafter will not propose."""
        state = self.states[name]
        if self.fixed_k is not None or state.traits.is_model_free or state.pays_now():
            return 0
        return max(0, state.probes.n_until, self.exploration.n_until_affordable(state.times.first, terms.shares[0]))

    def idle(self, seconds: float) -> None:
        """Record a plain step that skipped all drafters."""
        self._n_idle += 1
        self.exploration.decode_seconds += seconds

    def _end_idling(self, n_together: int) -> None:
        """Record the skipped steps in the counts of drafters and of plain passes."""
        n, self._n_idle = self._n_idle, 0
        self.valuation.n_passes += n / n_together
        self.plain_passes.note_row(n)
        for state in self.states.values():
            state.probes.since += n
            state.acceptance.rest(n)

    def criterion(self, name: str, choice: Choice) -> StoppingCriterion:
        """Return the stopping criterion for a proposal of this drafter that begins now."""
        state = self.states[name]
        return StoppingCriterion(state.policy, state.acceptance, choice.limit, state.seconds_for, self.passes.clock)

    def length(self, terms: Terms, name: str, confidences: Sequence[float]) -> tuple[int, float]:
        """Return the number of a lookup's tokens to use, and the expected gain in tokens of the best length. It
        is 0 if a drafter that would run later is expected to gain more.
        """
        if self.fixed_k is not None:
            return (k := min(self.fixed_k, len(confidences))), float(k)
        if not confidences:
            return 0, 0.0
        state = self.states[name]
        by_bin = state.acceptance.chances
        chances = [by_bin[bin_of(confidence)] for confidence in confidences]
        plain, *wider = terms.seconds
        pass_seconds = [plain, *(seconds + state.times.unexplained for seconds in wider)]
        k, gain = fastest_length(chances, pass_seconds, self.valuation.rate, terms.overhead)
        others = self.states.taking_part(terms.drafters).values()
        is_best = gain > max((each.expected_gain for each in others if each.policy), default=0.0)
        return (k if is_best and not terms.is_plain else 0), gain

    def learn(
        self,
        terms: Terms,
        choices: Mapping[str, Choice],
        outcomes: Sequence[DraftOutcome],
        n_tokens: int,
        draft: float,
        verify: float,
        total: float,
    ) -> None:
        """Learn from a step: its choices by drafter, the proposals that followed, the number of generated tokens, and
        the seconds of drafting, of the pass, and in total.
        """
        self.exploration.decode_seconds += total
        rest, is_wide = total - draft - verify, any(each.is_used for each in outcomes)
        self.overhead.learn(min(rest, verify) / n_tokens, is_wide)
        is_plain = not any(each.is_used or not self.states[each.name].traits.is_model_free for each in outcomes)
        self.plain_passes.note(is_plain)
        self.passes.note_width(is_wide)
        without_pass, lost = total - draft - n_tokens * self.overhead.seconds, total - n_tokens / terms.plain_rate
        by_name = {each.name: each for each in outcomes}
        for name, choice in choices.items():
            if state := self.states.get(name):  # a drafter that failed is gone
                outcome = by_name.get(name)
                unexplained = without_pass - terms.share(state, outcome.n_used) if outcome else 0.0
                self._learn_choice(state, choice, outcome, unexplained, lost)

    def _learn_choice(
        self, state: DrafterState, choice: Choice, outcome: DraftOutcome | None, unexplained: float, lost: float
    ) -> None:
        """Learn from the choice about one drafter, and from its proposal if it made one."""
        state.note_choice(choice.decision)
        if outcome is None:
            if not state.traits.is_model_free:
                state.acceptance.rest()
            return
        state.learn(outcome, unexplained)
        if not state.traits.is_model_free and state.is_priced_wrongly:
            self.valuation.expire()
        if choice.decision is PROBE:
            self.exploration.seconds += max(0.0, lost)
            state.probes.learn(0 < outcome.n_comparable == outcome.n_matched)

    def plain_alone(self, n_context: int) -> float:
        """Return the tokens per second of plain decode of a single sequence."""
        return 1 / max(self.passes.costs.seconds(1, n_context) + self.overhead.seconds, 1e-9)

    def repays(self, name: str, n_uncached: int, n_reply: int) -> bool:
        """Return whether a reply of `n_reply` tokens repays the drafter's prefill of `n_uncached` tokens."""
        saved, _ = self.saved(name, n_reply)
        return saved > n_uncached * self.states[name].prefill_seconds

    def saved(self, name: str, n_reply: int) -> tuple[float, float]:
        """Return the seconds that a drafter is expected to save a reply of `n_reply` tokens, and their share of its
        time without drafts; without bound if the length of drafts is fixed.
        """
        if self.fixed_k is not None:
            return math.inf, 1.0
        plain = 1 / self.valuation.terms.plain_rate
        each = plain - 1 / max(self.states[name].rate, 1e-9)
        return n_reply * each, max(0.0, each / plain)

    def reason(self, terms: Terms | None = None) -> Reason:
        """Return why a step on these terms was plain; by default, the terms of the last valuation."""
        if self.off or not self.states:
            return self.off or NONE_ON
        terms = terms or self.valuation.terms
        taking_part = self.states.taking_part(terms.drafters)
        return why_plain(taking_part or self.states, terms.seconds, terms.plain_rate)
