"""Chooses which drafters propose in a step and how many tokens they draft.

Knows counts and times; knows no model, no tokens and no verification rule. The objective is expected tokens per
second, E(k) / (D(k) + T(1 + k)) against 1 / T(1) for plain decode, as docs/how-it-works.md derives it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from runtime.speculative.control.acceptance import bin_of
from runtime.speculative.control.costs import Overhead, PassCosts, PlainPasses
from runtime.speculative.control.decision import LOOK_UP, PROBE, SKIP, USE, WAIT, Choice, Decision
from runtime.speculative.control.drafter_state import DrafterState, DrafterStates, DraftOutcome
from runtime.speculative.control.exploration import Exploration
from runtime.speculative.control.passes import Passes
from runtime.speculative.control.policy import StoppingCriterion, fastest_length
from runtime.speculative.control.reasons import NONE_ON, Reason, why_plain
from runtime.speculative.control.traits import Traits
from runtime.speculative.control.tuning import TUNING
from runtime.speculative.control.valuation import Market, value_all


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
        self.plain_passes = PlainPasses()
        self.passes = Passes(costs, own, self.plain_passes)
        self.off = off  # why there are no drafters
        self._overhead = Overhead()
        self.exploration = Exploration()
        self._n_idle = 0  # steps without any drafter since the last step that was learned from
        self._n_steps = self._next_valuation = self._next_of_all = 0  # steps so far; steps of the next valuations
        self.rate = 0.0  # tokens per second of the best drafter or plain decode, without lookups
        # Of this step: most draft tokens, exact rows, drafters (None: all)
        self._terms: tuple[int, int | None, Collection[str] | None] = max_k, None, None
        self.begin(0)

    def begin(
        self,
        n_context: int,
        most: int | None = None,
        n_together: int = 1,
        exact_rows: int | None = None,
        drafters: Collection[str] | None = None,
    ) -> None:
        """Begin a step at this context length, with at most `most` draft tokens (and `max_k`). `n_together`
        sequences share the pass. A pass of more than `exact_rows` rows must gain more to be chosen. `drafters`
        are the names of those that take part; None: all.
        """
        before, n_before = self._terms, self.passes.n_together
        k = self.max_k if most is None else max(1, min(most, self.max_k))
        self._terms = k, exact_rows, drafters
        if self.states:
            self.states.set_shared(n_together > 1)
        self.passes.begin(n_context, k, n_together, exact_rows)
        self.plain_rate = 1 / max(self.passes.seconds[0] + self.overhead, 1e-9)  # tokens per second without drafts
        if self._n_idle:
            self._end_idling()
        few, many = sorted((n_before, n_together))
        is_other = before != self._terms or many >= TUNING.batch_change * few
        if self._n_steps >= self._next_valuation or is_other:
            self._value_all(is_time=self._n_steps >= self._next_of_all or is_other)
        self._n_steps += 1
        self.plain_passes.begin(self._n_steps, self.best_gain, n_together == 1 and self.fixed_k is None)

    @property
    def overhead(self) -> float:
        """Seconds per token outside models, such as sampling."""
        return self._overhead.seconds

    @property
    def _taking_part(self) -> dict[str, DrafterState]:
        """The drafters that take part in this step; others do not affect the choice."""
        return self.states.taking_part(self._terms[2])

    @property
    def best_gain(self) -> float:
        """Recent speed of the best drafter or plain decode, relative to plain decode."""
        rates = (state.rate for state in self._taking_part.values() if not state.is_disabled)
        return max([self.rate, *rates]) / self.plain_rate

    def n_worth(self, n: int) -> int:
        """Return how many of `n` ready sequences to decode in one pass."""
        return self.passes.joint.n_worth(n, self.passes.n_context)

    def _value_all(self, is_time: bool) -> None:
        """Value drafters again: all of them if `is_time`, else those whose estimates changed."""
        self._next_valuation = self._n_steps + TUNING.valuation_interval
        if is_time:
            self._next_of_all = self._n_steps + 8 * TUNING.valuation_interval
        self.rate = value_all(self._taking_part.values(), self._market, self.rate, is_time)
        self.passes.note_gain(self.best_gain)

    @property
    def _market(self) -> Market:
        """The cost of passes in this step."""
        now = self.passes
        return Market(now.seconds, now.n_context, self.overhead, self.plain_rate, now.with_surcharges)

    def choose(self, name: str, can_score: bool = True) -> Choice:
        """Choose whether the drafter proposes in this step, and record the choice. `can_score`: whether tokens
        that are not verified can be compared with the text.
        """
        state, decision, limit = self.states[name], self.decide(name), self.fixed_k
        if decision is USE:
            state.note_use()
        elif decision is LOOK_UP:
            state.note_lookup()
        elif decision is WAIT:
            state.note_wait()
        elif decision is PROBE:
            limit = self.exploration.begin(state, can_score, self._market.pass_seconds_of(state))
        return Choice(decision, limit)

    def decide(self, name: str) -> Decision:
        """Return the decision about the drafter in this step."""
        state = self.states[name]
        if self.fixed_k is not None:
            return LOOK_UP
        if state.traits.is_model_free:
            return LOOK_UP if state.n_idle(self.passes.seconds[0]) <= 0 else WAIT
        if self.plain_passes.is_forced:
            return Decision.MEASURE
        if state.pays_now(self.rate):
            return USE
        if not self._can_afford_probe(state):
            return SKIP
        return PROBE if state.should_probe else WAIT

    def _can_afford_probe(self, state: DrafterState) -> bool:
        can_afford, seconds = self.exploration.can_afford, self._market.pass_seconds_of
        return can_afford(state) or self.exploration.can_afford_newcomer(state, seconds(state))

    def n_idle(self, names: Iterable[str]) -> int:
        """Return the number of next steps in which none of these drafters will propose."""
        if self.fixed_k is not None or self.plain_passes.is_forced:
            return 0
        plain = max(self.passes.seconds[0], 1e-9)
        waits = [min(TUNING.most_idle, int(TUNING.idle_seconds / plain))]
        for state in map(self.states.__getitem__, names):
            if state.traits.is_model_free:
                waits.append(state.n_idle(plain))
            elif state.pays_now(self.rate):
                return 0
            elif self._can_afford_probe(state):
                waits.append(state.probe_interval - state.since_probe)
        return max(0, min(waits))

    def n_unasked(self, name: str) -> int:
        """Return the estimated number of next steps in which this drafter will not propose."""
        state = self.states[name]
        if self.fixed_k is not None or state.traits.is_model_free or state.pays_now(self.rate):
            return 0
        n_parked = state.probe_interval - state.since_probe
        if not self._can_afford_probe(state):
            lacking = state.first_seconds - self.exploration.credit
            n_parked = max(n_parked, int(lacking / (TUNING.probe_share * max(self.passes.seconds[0], 1e-9))))
        return max(0, n_parked)

    def idle(self, seconds: float) -> None:
        """Record a plain step that skipped all drafters."""
        self._n_idle += 1
        self.exploration.decode_seconds += seconds

    def _end_idling(self) -> None:
        """Record the skipped steps in the counts of drafters and of plain passes."""
        n, self._n_idle = self._n_idle, 0
        self._n_steps += n
        self.plain_passes.note_row(n)
        for state in self.states.values():
            state.note_wait(n)
            state.acceptance.rest(n)

    def is_usual(self, seconds: float) -> bool:
        """Return whether the time of a plain pass is close to the estimate."""
        return seconds < TUNING.unusual_pass * self.passes.seconds[0]

    def criterion(self, name: str, choice: Choice) -> StoppingCriterion:
        """Return the stopping criterion for a proposal of this drafter that begins now."""
        state = self.states[name]
        return StoppingCriterion(state.policy, state.acceptance, choice.limit, state.seconds_for, self.passes.clock)

    def length(self, name: str, confidences: Sequence[float]) -> tuple[int, float]:
        """Return the number of a lookup's tokens to use, and the expected gain in tokens of the best length. It
        is 0 if a drafter that would run later is expected to gain more.
        """
        if self.fixed_k is not None:
            return (k := min(self.fixed_k, len(confidences))), float(k)
        state = self.states[name]
        by_bin = state.acceptance.chances
        chances = [by_bin[bin_of(confidence)] for confidence in confidences]
        prudence = TUNING.prudence if state.traits.must_earn else 1.0
        k, gain = fastest_length(chances, self.passes.seconds, self.rate, self.overhead, prudence)
        forgone = [each.expected_gain for each in self._taking_part.values() if each.policy and each.pays(self.rate)]
        is_best = gain > max(forgone, default=0.0)
        return (k if is_best and not self.plain_passes.is_forced and not state.is_disabled else 0), gain

    def learn(self, outcomes: Sequence[DraftOutcome], n_tokens: int, draft: float, verify: float, total: float) -> None:
        """Learn from a step: its proposals, generated tokens, and seconds of drafting, of the pass, and in total."""
        self.exploration.decode_seconds += total
        rest, is_wide = min(total - draft - verify, verify) / n_tokens, any(each.is_used for each in outcomes)
        self._overhead.learn(rest, is_wide)
        is_plain = not any(each.is_used or not self.states[each.name].traits.is_model_free for each in outcomes)
        self.plain_passes.note(is_plain)
        self.passes.note_width(is_wide)
        for name, state in self.states.items():
            if not state.traits.is_model_free and all(each.name != name for each in outcomes):
                state.acceptance.rest()
        for each in outcomes:
            self._learn_outcome(each, n_tokens, total)

    def _learn_outcome(self, outcome: DraftOutcome, n_tokens: int, total: float) -> None:
        """Learn from one drafter's proposal."""
        state = self.states[outcome.name]
        if outcome.confidences:
            state.acceptance.observe(outcome.confidences, outcome.n_matched, outcome.n_comparable)
        state.learn_times(outcome)
        if not state.traits.is_model_free and state.is_priced_wrongly:
            self._next_valuation = 0
        if self.fixed_k is None and state.traits.is_model_free:
            state.learn_use(outcome)
        lost = total - n_tokens / self.plain_rate
        if outcome.is_probe:
            self.exploration.learn(state, outcome, lost)
        elif self.fixed_k is None and (outcome.is_used or not state.traits.is_model_free):
            self.exploration.earn(lost, 1 / self.plain_rate)
            state.learn_loss(lost, 1 / self.plain_rate)

    @property
    def plain_alone(self) -> float:
        """Tokens per second of plain decode of a single sequence."""
        return 1 / max(self.passes.costs.seconds(1, self.passes.n_context) + self.overhead, 1e-9)

    def repays(self, name: str, n_uncached: int, n_reply: int) -> bool:
        """Return whether a reply of `n_reply` tokens repays the drafter's prefill of `n_uncached` tokens."""
        state = self.states[name]
        saved = 1 / self.plain_rate - 1 / max(state.rate, 1e-9)
        return self.fixed_k is not None or n_reply * saved > n_uncached * state.prefill_seconds

    def reset(self) -> None:
        """Value all drafters in the next step, because their estimates were replaced."""
        self._n_steps = self._next_valuation = self._next_of_all = 0

    def reason(self) -> Reason:
        """Return why the last step was plain."""
        if self.off or not self.states:
            return self.off or NONE_ON
        return why_plain(self._taking_part or self.states, self.passes.seconds, self.plain_rate)
