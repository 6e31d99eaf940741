"""What the controller believes of one drafter: acceptance, seconds, expected gain; parked, disabled, or in use.

Knows counts and times; the choice among drafters is the controller's.
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
    """What a drafter proposed in a step, compared with the tokens that came."""

    name: str
    confidences: Sequence[float]  # of its tokens, that included which was drafted and rejected by the drafter itself
    n_comparable: int  # of them, from the first, that something came to compare with
    n_matched: int  # of those, from the first, that came
    first_seconds: float  # until its first token was known; for a lookup, all it took
    rest_seconds: float
    n_rest: int  # tokens that took `rest_seconds`
    is_used: bool  # did the target see it, or was it only scored?
    expected_gain: float = 0.0  # tokens that using it was expected to bring, of a lookup
    is_probe: bool = False  # was it asked although it was not believed to pay?


class DrafterState:
    """Beliefs about one drafter. `costs` are those of the target's passes over its tokens, where they are its own."""

    def __init__(self, traits: Traits, costs: PassCosts | None = None) -> None:
        self.traits, self.costs = traits, costs
        self.acceptance = Acceptance(TUNING.caution if traits.must_earn else 1.0)
        self.first_seconds = self.rest_seconds = max(traits.seconds, 1e-9)  # of a draft token
        self._last_first = self._last_rest = self.first_seconds  # as they were in its last proposal
        self._is_in_company, self._other_times = False, self._times  # those of the other: alone, or in company
        self.prefill_seconds = traits.seconds * TUNING.prefill_share  # per token of a prompt
        self.policy: Policy | None = None  # of one that is not model-free
        self.priced_seconds = self.first_seconds  # of a first token, as they were when the policy was solved
        self.expected_gain = 0.0  # tokens per step beyond plain decode
        self.rate = 0.0  # tokens per second with it
        self.lost = 0.0  # seconds against plain decode, lately
        self.cooldown = TUNING.last_probe  # steps that it will be disabled for
        self.since_probe = 0  # steps since it was parked or probed
        self.probe_interval = TUNING.first_probe  # steps until the next
        self.n_right_probes = 0  # in a row, since it was parked
        self.n_misses = 0  # of a lookup, since it was of use
        self.is_new = True  # nothing was learned of it at an earlier start
        self.is_disabled = False  # it lost more than was believed

    @property
    def has_news(self) -> bool:
        """Has what is believed of its seconds, or of the confidences that are met, changed by much since the policy was
        solved?
        """
        if self.policy is None or self.is_priced_wrongly:
            return True
        met = self.acceptance.visits[:N_BINS]
        changes = zip(met, self.acceptance.chances, self.policy.chances, strict=True)
        return sum(n * abs(now - then) for n, now, then in changes) > TUNING.news * sum(met)

    @property
    def is_priced_wrongly(self) -> bool:
        """Has what is believed of its seconds changed by much since the policy was solved?"""
        return not 1 / TUNING.dearer < self.first_seconds / self.priced_seconds < TUNING.dearer

    def pays(self, rate: float) -> bool:
        """Is it expected to gain, where a second is worth so many tokens? Only a lookup's expected gain leaves the cost
        of asking out.
        """
        asking = self.first_seconds * rate if self.traits.is_model_free else 0.0
        return self.expected_gain > asking and not self.is_disabled

    def pays_now(self, rate: float) -> bool:
        """Is it worth asking after the confidence that was last seen of it?"""
        if self.policy is None or self.is_disabled:
            return self.pays(rate)
        gain: float = self.policy.asked[self.acceptance.last]
        return gain > (TUNING.margin if self.since_probe else 0.0)

    @property
    def is_probe_due(self) -> bool:
        """Has the parked drafter waited for its next probe?"""
        return self.since_probe >= self.probe_interval

    def n_idle(self, plain_seconds: float) -> int:
        """Steps in which a lookup is not asked yet: where it is disabled, or was of no use lately and asking is not
        free. What it takes in a process's first steps, when everything takes longer, must not keep it out for good.
        """
        if self.is_disabled:
            return self.probe_interval - self.since_probe
        is_cheap = self.first_seconds < TUNING.cheap * plain_seconds
        if self.n_misses < TUNING.misses or (is_cheap and not self.traits.must_earn):
            return 0
        wanted = self.first_seconds / (TUNING.lookup_share * plain_seconds)
        return math.ceil(min(wanted, TUNING.last_probe)) - 1 - self.since_probe

    def seconds_for(self, k: int) -> float:
        """That a draft of so many tokens takes."""
        return self.first_seconds + (0.0 if self.traits.is_model_free else (k - 1) * self.rest_seconds)

    def learn_use(self, outcome: DraftOutcome) -> None:
        """Takes in what a lookup's answer was good for."""
        self.expected_gain += TUNING.time_weight * (outcome.expected_gain - self.expected_gain)
        self.n_misses = 0 if outcome.is_used else self.n_misses + 1

    @property
    def _times(self) -> tuple[float, float, float, float]:
        return self.first_seconds, self.rest_seconds, self._last_first, self._last_rest

    def set_in_company(self, is_in_company: bool) -> None:
        """Is it asked for several replies at once from now on? That takes other times than for one alone."""
        if is_in_company == self._is_in_company:
            return
        self._is_in_company, times, self._other_times = is_in_company, self._other_times, self._times
        self.first_seconds, self.rest_seconds, self._last_first, self._last_rest = times

    def learn_times(self, outcome: DraftOutcome) -> None:
        """Averages of the seconds per draft token. A sudden change of the first one's is the others' as well, where
        none was drafted that could tell.
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
        """Draft tokens take so much longer from now on; if that is news, what was lost before says nothing."""
        if factor != 1.0:
            self.first_seconds, self.rest_seconds = self.first_seconds * factor, self.rest_seconds * factor
            self.is_disabled, self.lost = False, 0.0

    def note_use(self) -> None:
        """The drafter is asked because it pays: pauses between probes begin short again."""
        self.since_probe, self.probe_interval, self.n_right_probes = 0, TUNING.first_probe, 0

    def note_lookup(self) -> None:
        """It is looked up, and may be used again if it was disabled."""
        self.since_probe, self.is_disabled = 0, False

    def note_wait(self, n_steps: int = 1) -> None:
        """Steps have passed in which it was not asked."""
        self.since_probe += n_steps

    def note_probe(self) -> None:
        """The drafter is probed; pauses between probes double.

        Belief is doubted before a probe that is not one of several in a row.
        """
        if self.since_probe:
            self.acceptance.doubt()
        interval = max(TUNING.first_probe, min(2 * self.probe_interval, TUNING.last_probe))
        self.since_probe, self.probe_interval, self.is_disabled = 0, interval, False

    def renew(self) -> None:
        """Another model drafts in its place: what it takes is known, and little of how often it is right."""
        self.acceptance.doubt()
        self.lost, self.is_disabled, self.cooldown = 0.0, False, TUNING.last_probe
        self.since_probe, self.probe_interval = TUNING.first_probe, TUNING.first_probe

    def learn_loss(self, lost: float, plain_seconds: float) -> None:
        """Takes in the seconds that a step with it took beyond plain decode's for as many tokens. Where such losses add
        up although it is believed to pay, it is disabled for a while: a one-sided cumulative sum (Page, 1954). The next
        time it has less to lose, and the cooldown is twice as long, unless it has gained as much in between.
        """
        patience = TUNING.patience * plain_seconds
        self.lost = max(0.0, self.lost + min(lost, patience / 2))  # one step that was held up proves nothing
        if not self.lost:
            self.cooldown = TUNING.last_probe
        if self.lost > patience:
            self.is_disabled, self.lost, self.since_probe = True, TUNING.patience_used * patience, 0
            self.probe_interval, self.cooldown = self.cooldown, min(2 * self.cooldown, TUNING.most_cooldown)

    def learn_prefill(self, n_tokens: int, seconds: float) -> None:
        """Takes in what reading a prompt took."""
        self.prefill_seconds += TUNING.prefill_weight * (seconds / n_tokens - self.prefill_seconds)


class DrafterStates(dict[str, DrafterState]):
    """The states of drafters that may be asked. Others are suspended, with what was learned of them."""

    def __init__(self, drafters: Mapping[str, Traits], costs: PassCosts) -> None:
        super().__init__(
            {
                name: DrafterState(traits, costs.copy() if traits.spares_work else None)
                for name, traits in drafters.items()
            }
        )
        self._suspended: dict[str, DrafterState] = {}

    def suspend(self, name: str) -> None:
        """Leave a drafter out of every choice until it is restored, as for want of memory."""
        self._suspended[name] = self.pop(name)

    def restore(self, name: str) -> None:
        """Take a suspended drafter up again."""
        self[name] = self._suspended.pop(name)

    @property
    def known(self) -> dict[str, DrafterState]:
        """All, those that are suspended as well."""
        return self | self._suspended

    def taking_part(self, names: Collection[str] | None) -> dict[str, DrafterState]:
        """Return those of these names; None: all."""
        return self if names is None else {name: self[name] for name in self if name in names}

    def set_kind(self, kind: str) -> None:
        """Set of what kind the text is from now on, because acceptance differs by kind."""
        for state in self.values():
            state.acceptance.set_kind(kind)

    def set_in_company(self, is_in_company: bool) -> None:
        """Set whether drafters are asked for several sequences at once, which takes other times."""
        for state in self.values():
            state.set_in_company(is_in_company)


def learned(believed: float, last: float, seconds: float) -> float:
    """What is believed of a time after one more, which came after `last`: one far off moves it a little, as it may be a
    spike, but what two in a row agree upon is believed at once.
    """
    if min(last, seconds) > TUNING.spike * believed or max(last, seconds) < believed / TUNING.spike:
        return min(last, seconds, key=lambda each: abs(each - believed))
    return believed + TUNING.time_weight * (min(seconds, TUNING.spike * believed) - believed)
