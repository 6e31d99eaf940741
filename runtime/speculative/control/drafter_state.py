"""The controller's estimates for one drafter: acceptance, seconds, expected gain; parked or in use.

Knows counts and times; the controller chooses among drafters.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from runtime.core.draft import Adapters
from runtime.core.drafter import Traits
from runtime.speculative.control.acceptance import N_BINS, Acceptance, Acceptances
from runtime.speculative.control.costs import PassCosts
from runtime.speculative.control.decision import PROBE, USE, WAIT, Decision, Probes
from runtime.speculative.control.policy import Policy
from runtime.speculative.control.tuning import TUNING


class DraftOutcome(NamedTuple):
    """A drafter's proposal in a step, compared with the generated tokens."""

    name: str
    confidences: Sequence[float]  # of its tokens, including one that its stopping criterion rejected
    n_comparable: int  # leading tokens that can be compared with the generated text
    n_matched: int  # leading tokens that match it
    first_seconds: float  # time until its first token; for a lookup, its whole time
    rest_seconds: float
    n_rest: int  # tokens that took `rest_seconds`
    n_used: int  # tokens that were verified; 0: they were only scored
    expected_gain: float = 0.0  # of a lookup: expected tokens gained by using it

    @property
    def is_used(self) -> bool:
        """Whether it was verified."""
        return self.n_used > 0


class DraftTimes:
    """Average seconds of a draft's first token, of each further one, and of a step with a draft beyond those of
    drafting, the expected pass and sampling.
    """

    def __init__(self, seconds: float) -> None:
        self.first = self.rest = self._last_first = self._last_rest = seconds
        self.unexplained = self._last_unexplained = 0.0

    @property
    def price(self) -> float:
        """Seconds that a draft of one token adds to a step, besides its wider pass."""
        return self.first + self.unexplained

    def learn(self, first: float, rest: float, n_rest: int) -> None:
        """Update with the seconds of a draft's first token, and of its `n_rest` others together. If only a first token
        was drafted and its time changed suddenly, the seconds of further tokens are scaled alike.
        """
        before = self.first
        self.first, self._last_first = learned(before, self._last_first, first), first
        if n_rest:
            each = rest / n_rest
            self.rest, self._last_rest = learned(self.rest, self._last_rest, each), each
        elif not 1 / TUNING.spike < self.first / before < TUNING.spike:
            self.rest *= self.first / before

    def learn_unexplained(self, seconds: float) -> None:
        """Update the seconds of a step with a draft beyond those of drafting, the expected pass and sampling. A single
        long step is no evidence.
        """
        least, self._last_unexplained = min(seconds, self._last_unexplained), seconds
        self.unexplained += TUNING.unexplained_weight * (max(0.0, least) - self.unexplained)

    def scale(self, factor: float) -> None:
        """Scale the averages of tokens."""
        self.first, self.rest = self.first * factor, self.rest * factor


class DrafterState:
    """Estimates for one drafter. `costs` is its own cost model of the target's passes over its tokens, if any."""

    def __init__(self, traits: Traits, costs: PassCosts | None = None) -> None:
        self.traits, self.costs = traits, costs
        self.acceptances = Acceptances()
        seconds = max(traits.seconds, 1e-9)
        self._times = DraftTimes(seconds), DraftTimes(seconds)  # alone, and for several sequences in shared passes
        self.times = self._times[0]
        self.prefill_seconds = traits.seconds * TUNING.prefill_share  # per prompt token
        self.policy: Policy | None = None  # None for lookups
        self.priced_seconds = seconds  # `times.price` when the policy was solved
        self.expected_gain = 0.0  # tokens per step beyond plain decode
        self.rate = 0.0  # tokens per second with it
        self.probes = Probes()
        self.n_misses = 0  # proposals of a lookup since the last one that was used

    @property
    def acceptance(self) -> Acceptance:
        """Its acceptance with the adapters of the present sequence."""
        return self.acceptances.current

    @property
    def has_news(self) -> bool:
        """Whether its estimated seconds or its acceptance changed much since the policy was solved, or it was seen much
        more often.
        """
        if self.policy is None or self.is_priced_wrongly:
            return True
        if self.acceptance.n_seen > 2 * self.policy.n_seen + TUNING.few_tokens:
            return True
        met = self.acceptance.visits[:N_BINS]
        changes = zip(met, self.acceptance.chances, self.policy.chances, strict=True)
        return sum(n * abs(now - then) for n, now, then in changes) > TUNING.news * sum(met)

    @property
    def is_priced_wrongly(self) -> bool:
        """Whether its estimated seconds changed much since the policy was solved."""
        return not 1 / TUNING.price_change < self.times.price / self.priced_seconds < TUNING.price_change

    def pays_now(self) -> bool:
        """Return whether a proposal is expected to gain, given its last confidence."""
        return self.policy is not None and self.policy.asked[self.acceptance.last] > 0

    def n_to_verify(self, can_score: bool, pass_seconds: Sequence[float]) -> int:
        """Return the number of a probe's tokens to verify; 0 if comparing them with the text is enough.

        After `sure_probes` right probes in a row, each further one verifies twice as many tokens, up to the longest
        draft that could pay. `pass_seconds` [max_k + 1] are the seconds of passes over its tokens, by width - 1.
        """
        n_sure, plain = self.probes.n_right - TUNING.sure_probes, pass_seconds[0]
        if n_sure < 0:
            return 0 if can_score else TUNING.least_k
        lengths = range(TUNING.least_k, len(pass_seconds))
        paying = [k for k in lengths if self.seconds_for(k) + pass_seconds[k] < (1 + k) * plain] or [TUNING.least_k]
        return min(paying[0] << n_sure, paying[-1])

    def n_idle(self, plain_seconds: float) -> int:
        """Return the number of next steps that skip a lookup, because it was useless lately. The number is limited,
        because the first steps of a process are slow.
        """
        if self.n_misses < TUNING.misses:
            return 0
        wanted = self.times.first / (TUNING.lookup_share * plain_seconds)
        return math.ceil(min(wanted, TUNING.last_probe)) - 1 - self.probes.since

    def seconds_for(self, k: int) -> float:
        """Return the estimated seconds of a draft of `k` tokens."""
        return self.times.first + (0.0 if self.traits.is_model_free else (k - 1) * self.times.rest)

    def set_shared(self, is_shared: bool) -> None:
        """Set whether it drafts for several sequences in shared passes, for which times are kept separately."""
        self.times = self._times[is_shared]

    def note_choice(self, decision: Decision) -> None:
        """Record a step's decision about this drafter. A probe after steps without one halves the weight of the
        acceptance counts.
        """
        if decision is WAIT:
            self.probes.since += 1
        elif decision is PROBE:
            if self.probes.since:
                self.acceptance.doubt()
            self.probes.begin()
        elif decision is USE:
            self.probes.reset()
        elif decision.asks:
            self.probes.since = 0

    def learn(self, outcome: DraftOutcome, unexplained: float) -> None:
        """Learn from a proposal: acceptance, seconds, and `unexplained` seconds of the step if it was verified. Those
        of a lookup fade while it is only scored, because nothing else would have it verified again.
        """
        if outcome.confidences:
            self.acceptance.observe(outcome.confidences, outcome.n_matched, outcome.n_comparable)
        self.times.learn(outcome.first_seconds, outcome.rest_seconds, outcome.n_rest)
        if outcome.is_used:
            self.times.learn_unexplained(unexplained)
        elif self.traits.is_model_free and outcome.confidences:
            self.times.unexplained *= TUNING.recent_decay
        if self.traits.is_model_free:
            self.expected_gain += TUNING.time_weight * (outcome.expected_gain - self.expected_gain)
            self.n_misses = 0 if outcome.is_used else self.n_misses + 1

    def learn_prefill(self, n_tokens: int, seconds: float) -> None:
        """Update the average prefill seconds per prompt token."""
        self.prefill_seconds += TUNING.prefill_weight * (seconds / n_tokens - self.prefill_seconds)

    def renew(self) -> None:
        """Reset for a new model of the same drafter, to be probed at once: its times remain, its acceptance counts lose
        half their weight.
        """
        self.acceptance.doubt()
        self.probes.reset()
        self.probes.since, self.times.unexplained = TUNING.first_probe, 0.0


class DrafterStates(dict[str, DrafterState]):
    """The states of the available drafters. Suspended drafters are kept apart with their estimates."""

    def __init__(self, drafters: Mapping[str, Traits], costs: PassCosts) -> None:
        super().__init__(
            {
                name: DrafterState(traits, costs.copy() if traits.spares_work else None)
                for name, traits in drafters.items()
            }
        )
        self._suspended: dict[str, DrafterState] = {}
        self._adapters: Adapters = ()  # of the present sequence

    def suspend(self, name: str) -> None:
        """Exclude a drafter from every choice until it is restored, for example when memory is short."""
        self._suspended[name] = self.pop(name)

    def restore(self, name: str) -> None:
        """Include a suspended drafter again."""
        self[name] = self._suspended.pop(name)
        self[name].acceptances.use(self._adapters)

    @property
    def known(self) -> dict[str, DrafterState]:
        """The states of all drafters, including suspended ones."""
        return self | self._suspended

    def taking_part(self, names: Collection[str] | None) -> Mapping[str, DrafterState]:
        """Return the states with these names; None: all."""
        return self if names is None else {name: self[name] for name in self if name in names}

    def set_kind(self, kind: str, adapters: Adapters = ()) -> bool:
        """Set the kind of text and the model's adapters, because acceptance differs by both. Return whether the
        adapters are others than before.
        """
        is_other, self._adapters = adapters != self._adapters, adapters
        for state in self.values():
            if is_other:
                state.acceptances.use(adapters)
            state.acceptance.set_kind(kind)
        return is_other

    def set_shared(self, is_shared: bool) -> None:
        """Set whether drafters draft for several sequences in shared passes, for which times are kept separately."""
        for state in self.values():
            state.set_shared(is_shared)


def learned(mean: float, last: float, seconds: float) -> float:
    """Return a robust running mean: one outlier moves it slightly, two consecutive ones replace it.

    `mean` is the mean so far [s], `last` the previous time and `seconds` the new one.
    """
    if min(last, seconds) > TUNING.spike * mean or max(last, seconds) < mean / TUNING.spike:
        return min(last, seconds, key=lambda each: abs(each - mean))
    return mean + TUNING.time_weight * (min(seconds, TUNING.spike * mean) - mean)
