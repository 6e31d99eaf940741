"""The controller's estimates for one drafter: acceptance, seconds, expected gain; parked, disabled, or in use.

Knows counts and times; the controller chooses among drafters.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from runtime.speculative.control.acceptance import N_BINS, Acceptance
from runtime.speculative.control.costs import PassCosts
from runtime.speculative.control.policy import Policy
from runtime.speculative.control.traits import Traits
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
    is_used: bool  # whether it was verified, not only scored
    expected_gain: float = 0.0  # of a lookup: expected tokens gained by using it
    is_probe: bool = False  # whether it was a probe of a drafter that was not expected to pay


class DrafterState:
    """Estimates for one drafter. `costs` is its own cost model of the target's passes over its tokens, if any."""

    def __init__(self, traits: Traits, costs: PassCosts | None = None) -> None:
        self.traits, self.costs = traits, costs
        self.acceptance = Acceptance(TUNING.caution if traits.must_earn else 1.0)
        self.first_seconds = self.rest_seconds = max(traits.seconds, 1e-9)  # per draft token
        self._last_first = self._last_rest = self.first_seconds  # the same in its last proposal
        self._is_shared, self._other_times = False, self._times  # drafting for several sequences; times otherwise
        self.prefill_seconds = traits.seconds * TUNING.prefill_share  # per prompt token
        self.policy: Policy | None = None  # None for lookups
        self.priced_seconds = self.first_seconds  # `first_seconds` when the policy was solved
        self.expected_gain = 0.0  # tokens per step beyond plain decode
        self.rate = 0.0  # tokens per second with it
        self.lost = 0.0  # recent seconds lost against plain decode
        self.cooldown = TUNING.last_probe  # steps of the next cooldown
        self.since_probe = 0  # steps since it was parked or probed
        self.probe_interval = TUNING.first_probe  # steps between probes
        self.n_right_probes = 0  # consecutive correct probes since it was parked
        self.n_misses = 0  # proposals of a lookup since the last one that was used
        self.is_new = True  # whether no acceptance was restored from an earlier start
        self.is_disabled = False  # whether it lost more time than estimated

    @property
    def has_news(self) -> bool:
        """Whether its estimated seconds or its acceptance changed much since the policy was solved."""
        if self.policy is None or self.is_priced_wrongly:
            return True
        met = self.acceptance.visits[:N_BINS]
        changes = zip(met, self.acceptance.chances, self.policy.chances, strict=True)
        return sum(n * abs(now - then) for n, now, then in changes) > TUNING.news * sum(met)

    @property
    def is_priced_wrongly(self) -> bool:
        """Whether its estimated seconds changed much since the policy was solved."""
        return not 1 / TUNING.dearer < self.first_seconds / self.priced_seconds < TUNING.dearer

    def pays(self, rate: float) -> bool:
        """Return whether it is expected to gain at `rate` tokens per second. The expected gain of a lookup, unlike that
        of other drafters, does not include the time of proposing, so it is subtracted here.
        """
        asking = self.first_seconds * rate if self.traits.is_model_free else 0.0
        return self.expected_gain > asking and not self.is_disabled

    def pays_now(self, rate: float) -> bool:
        """Return whether a proposal pays now, given its last confidence."""
        if self.policy is None or self.is_disabled:
            return self.pays(rate)
        gain: float = self.policy.asked[self.acceptance.last]
        return gain > (TUNING.margin if self.since_probe else 0.0)

    @property
    def should_probe(self) -> bool:
        """Whether it is time for the next probe of the parked drafter."""
        return self.since_probe >= self.probe_interval

    def n_idle(self, plain_seconds: float) -> int:
        """Return the number of next steps that skip a lookup, because it is disabled or was useless lately and not
        cheap. The number is limited, because the first steps of a process are slow and must not disable it for good.
        """
        if self.is_disabled:
            return self.probe_interval - self.since_probe
        is_cheap = self.first_seconds < TUNING.cheap * plain_seconds
        if self.n_misses < TUNING.misses or (is_cheap and not self.traits.must_earn):
            return 0
        wanted = self.first_seconds / (TUNING.lookup_share * plain_seconds)
        return math.ceil(min(wanted, TUNING.last_probe)) - 1 - self.since_probe

    def seconds_for(self, k: int) -> float:
        """Return the estimated seconds of a draft of `k` tokens."""
        return self.first_seconds + (0.0 if self.traits.is_model_free else (k - 1) * self.rest_seconds)

    def learn_use(self, outcome: DraftOutcome) -> None:
        """Update a lookup's expected gain and misses."""
        self.expected_gain += TUNING.time_weight * (outcome.expected_gain - self.expected_gain)
        self.n_misses = 0 if outcome.is_used else self.n_misses + 1

    @property
    def _times(self) -> tuple[float, float, float, float]:
        return self.first_seconds, self.rest_seconds, self._last_first, self._last_rest

    def set_shared(self, is_shared: bool) -> None:
        """Set whether it drafts for several sequences in shared passes, for which times are kept separately."""
        if is_shared == self._is_shared:
            return
        self._is_shared, times, self._other_times = is_shared, self._other_times, self._times
        self.first_seconds, self.rest_seconds, self._last_first, self._last_rest = times

    def learn_times(self, outcome: DraftOutcome) -> None:
        """Update the average seconds per draft token. If only a first token was drafted and its time changed suddenly,
        the seconds of further tokens are scaled alike.
        """
        before = self.first_seconds
        self.first_seconds = learned(before, self._last_first, outcome.first_seconds)
        self._last_first = outcome.first_seconds
        if outcome.n_rest:
            rest = outcome.rest_seconds / outcome.n_rest
            self.rest_seconds, self._last_rest = learned(self.rest_seconds, self._last_rest, rest), rest
        elif not 1 / TUNING.spike < self.first_seconds / before < TUNING.spike:
            self.rest_seconds *= self.first_seconds / before

    def scale_seconds(self, factor: float) -> None:
        """Scale the seconds per draft token; if `factor` is not 1, also reset the losses and enable the drafter."""
        if factor != 1.0:
            self.first_seconds, self.rest_seconds = self.first_seconds * factor, self.rest_seconds * factor
            self.is_disabled, self.lost = False, 0.0

    def note_use(self) -> None:
        """Record a use because it pays: the interval between probes is short again."""
        self.since_probe, self.probe_interval, self.n_right_probes = 0, TUNING.first_probe, 0

    def note_lookup(self) -> None:
        """Record a lookup, and enable the drafter if it was disabled."""
        self.since_probe, self.is_disabled = 0, False

    def note_wait(self, n_steps: int = 1) -> None:
        """Record steps in which it did not propose."""
        self.since_probe += n_steps

    def note_probe(self) -> None:
        """Record a probe, and double the interval between probes.

        Unless the previous step was a probe too, the weight of its acceptance counts is halved first.
        """
        if self.since_probe:
            self.acceptance.doubt()
        interval = max(TUNING.first_probe, min(2 * self.probe_interval, TUNING.last_probe))
        self.since_probe, self.probe_interval, self.is_disabled = 0, interval, False

    def renew(self) -> None:
        """Reset for a new model of the same drafter: its times remain, its acceptance counts lose half their weight."""
        self.acceptance.doubt()
        self.lost, self.is_disabled, self.cooldown = 0.0, False, TUNING.last_probe
        self.since_probe, self.probe_interval = TUNING.first_probe, TUNING.first_probe

    def learn_loss(self, lost: float, plain_seconds: float) -> None:
        """Add the seconds that a step with it took beyond plain decode of as many tokens.

        If losses accumulate although it is expected to pay, it is disabled for a cooldown: a one-sided cumulative sum
        (Page, 1954). Next time a smaller loss disables it for twice as long, unless it gained as much in between.
        """
        tolerated_loss = TUNING.tolerated_loss * plain_seconds
        self.lost = max(0.0, self.lost + min(lost, tolerated_loss / 2))  # one stalled step is no evidence
        if not self.lost:
            self.cooldown = TUNING.last_probe
        if self.lost > tolerated_loss:
            self.is_disabled, self.lost, self.since_probe = True, TUNING.loss_kept * tolerated_loss, 0
            self.probe_interval, self.cooldown = self.cooldown, min(2 * self.cooldown, TUNING.most_cooldown)

    def learn_prefill(self, n_tokens: int, seconds: float) -> None:
        """Update the average prefill seconds per prompt token."""
        self.prefill_seconds += TUNING.prefill_weight * (seconds / n_tokens - self.prefill_seconds)


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

    def suspend(self, name: str) -> None:
        """Exclude a drafter from every choice until it is restored, for example when memory is short."""
        self._suspended[name] = self.pop(name)

    def restore(self, name: str) -> None:
        """Include a suspended drafter again."""
        self[name] = self._suspended.pop(name)

    @property
    def known(self) -> dict[str, DrafterState]:
        """The states of all drafters, including suspended ones."""
        return self | self._suspended

    def taking_part(self, names: Collection[str] | None) -> dict[str, DrafterState]:
        """Return the states with these names; None: all."""
        return self if names is None else {name: self[name] for name in self if name in names}

    def set_kind(self, kind: str) -> None:
        """Set the kind of text, because acceptance differs by kind."""
        for state in self.values():
            state.acceptance.set_kind(kind)

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
