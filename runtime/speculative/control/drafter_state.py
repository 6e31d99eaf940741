"""What is known of one drafter: how often it is right, what its tokens cost, what it is worth, and whether it is parked
or barred.

Knows counts and times; the choice among drafters is the controller's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from runtime.speculative.control.acceptance import N_BINS, Acceptance
from runtime.speculative.control.costs import PassCosts
from runtime.speculative.control.policy import Policy

FIRST_PROBE, LAST_PROBE = 8, 64  # steps between two probes of a parked drafter
LAST_SENTENCE = 1024  # steps that a drafter is barred for at most
LEARN = 0.1  # weight of a new time
# Times what a step usually loses or gains against plain decode: so much may be lost before drafting is held to be a
# mistake
PATIENCE = 8
NEWS = 0.03  # in the mean chance of acceptance
PACE = 0.8  # of what was noted a step ago
PREFILL_LEARN = 0.5  # the same for a prefill, which is rare and long
PREFILL_SHARE = 0.25  # of a drafted token's seconds, for a token of a prompt, before any was measured


class Scored(NamedTuple):
    """What a drafter said in a step, compared with what came."""

    name: str
    confidences: Sequence[float]  # of its tokens, that included which was thought of and declined
    n_known: int  # of them, from the first, that something came to compare with
    n_right: int  # of those, from the first
    first_seconds: float  # until its first token was known; for a free drafter, all it took
    rest_seconds: float
    n_rest: int  # tokens it thought of in that time
    is_used: bool  # did the target see it, or was it only scored?


class Known:
    """What is known of one drafter."""

    def __init__(self, seconds: float, is_free: bool, costs: PassCosts | None = None) -> None:
        self.is_free = is_free
        self.costs = costs  # of the target's passes over its tokens, where they are not as other passes
        self.acceptance = Acceptance()
        self.first_seconds = self.rest_seconds = max(seconds, 1e-9)  # of a drafted token
        self.prefill_seconds = seconds * PREFILL_SHARE  # per token of a prompt
        self.policy: Policy | None = None  # of one that is not free
        self.surplus = 0.0  # tokens per step beyond plain decode
        self.rate = 0.0  # tokens per second with it
        self.lost, self.gained = 0.0, 0.0  # seconds against plain decode: lost lately, gained since it was barred
        self.stake = 0.0  # seconds that a step with it loses or gains on average
        self.sentence = LAST_PROBE  # steps that it will be barred for
        self.tokens, self.seconds = 0.0, 1e-9  # that steps with it brought and took lately
        self.waited, self.wait = 0, FIRST_PROBE  # steps since it was parked or probed, steps until the next probe
        self.n_right_probes = 0  # in a row, since it was parked
        self.is_new = True  # nothing was learned of it at an earlier start
        self.is_barred = False  # it lost more than was believed

    @property
    def has_news(self) -> bool:
        """Has what is believed of the confidences that are met changed by much since it was valued?"""
        if self.policy is None:
            return True
        met = self.acceptance.visits[:N_BINS]
        changes = zip(met, self.acceptance.chances, self.policy.chances, strict=True)
        return sum(n * abs(now - then) for n, now, then in changes) > NEWS * sum(met)

    def seconds_for(self, k: int) -> float:
        """That a draft of so many tokens takes."""
        return self.first_seconds + (0.0 if self.is_free else (k - 1) * self.rest_seconds)

    def learn_times(self, scored: Scored) -> None:
        """Clamped averages."""
        self.first_seconds += LEARN * (min(scored.first_seconds, 2 * self.first_seconds) - self.first_seconds)
        if scored.n_rest:
            self.rest_seconds += LEARN * (
                min(scored.rest_seconds / scored.n_rest, 2 * self.rest_seconds) - self.rest_seconds
            )

    def scale(self, factor: float) -> None:
        """Drafted tokens take so much longer from now on; if that is news, what was lost before says nothing."""
        if factor != 1.0:
            self.first_seconds, self.rest_seconds = self.first_seconds * factor, self.rest_seconds * factor
            self.is_barred, self.lost = False, 0.0

    def is_probe_due(self) -> bool:
        """Counts the steps since the last probe; the pauses double.

        Belief is doubted before a probe that is not part of a row of them.
        """
        self.waited += 1
        if self.waited <= self.wait:
            return False
        if self.waited > 1:
            self.acceptance.doubt()
        self.waited, self.wait, self.is_barred = 0, max(FIRST_PROBE, min(2 * self.wait, LAST_PROBE)), False
        return True

    def note_pace(self, n_tokens: int, seconds: float) -> None:
        """Takes in what a step with it brought and took."""
        self.tokens, self.seconds = PACE * self.tokens + n_tokens, PACE * self.seconds + seconds

    def appeal(self, plain_rate: float) -> None:
        """Lets a barred drafter go whose pace was above plain decode's after all: then the machine had become slower,
        not the drafter.
        """
        if self.is_barred and self.tokens / self.seconds > plain_rate:
            self.is_barred, self.lost, self.sentence = False, 0.0, LAST_PROBE

    def hold_to_account(self, lost: float, plain_seconds: float, allowed: float) -> None:
        """Bars the drafter for a while when it loses time although it is believed to pay (a one-sided cumulative sum;
        Page, 1954).

        `lost` are a step's seconds beyond plain decode's. A long draft that fails loses many passes and proves little,
        so patience grows with the stake. It is barred for twice as long each time, until it has gained something in
        between.
        """
        self.stake = max(plain_seconds, self.stake + LEARN * (abs(lost) - self.stake))
        patience = PATIENCE * self.stake
        lost = min(lost, patience / 2)  # one step that something else held up proves nothing
        self.lost, self.gained = max(0.0, self.lost + lost), self.gained - lost
        if self.gained > patience:
            self.sentence = LAST_PROBE
        if self.lost > patience + allowed:
            self.is_barred, self.lost, self.gained, self.waited = True, 0.0, 0.0, 0
            self.wait, self.sentence = self.sentence, min(2 * self.sentence, LAST_SENTENCE)

    def learn_prefill(self, n_tokens: int, seconds: float) -> None:
        """Takes in what reading a prompt took."""
        self.prefill_seconds += PREFILL_LEARN * (seconds / n_tokens - self.prefill_seconds)
