"""When to stop drafting: optimal stopping by dynamic programming over depth, the chance that all so far survives, and
the last confidence.

Everything is counted in tokens: a second is worth the tokens that the best way of decoding makes in it (Dinkelbach's
method for the ratio of expected tokens to expected time). Knows chances and seconds; knows no drafter, no tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from runtime.core.clock import Clock, wall
from runtime.core.drafter import CONTINUE, LAST, REJECT, UNKNOWN_TOKEN, Answer
from runtime.speculative.control.acceptance import N_BINS, Acceptance, bin_of
from runtime.speculative.control.tuning import TUNING

GRID = np.linspace(0.0, 1.0, 9)  # survival chances that values are computed for
PLACES = np.arange(len(GRID) * N_BINS)  # survival by bin of confidence, flat
UNSAID = np.array(Acceptance().moves + Acceptance().starts)  # counts before anything was said


@dataclass(frozen=True, slots=True)
class Price:
    """What the tokens of a draft cost: seconds until the first is known, and of each further one; of sampling, per
    token kept.
    """

    first: float
    rest: float
    overhead: float


class Policy:
    """What one drafter is worth at a `rate` in tokens per second, and how far to draft with it.

    `pass_seconds` [max_k + 1] are the target's seconds by width - 1.
    """

    def __init__(self, acceptance: Acceptance, pass_seconds: Sequence[float], price: Price, rate: float) -> None:
        rates = np.array([rate, (1 + TUNING.rate_step) * rate])
        self.chances = acceptance.chances  # as they were believed to be
        self._gain = 1 - rate * price.overhead
        self._stop = [-rate * seconds for seconds in pass_seconds]
        self._values: list[
            list[float]
        ] = []  # by number of tokens drafted; survival by bin of the last one's confidence, flat
        asked = self._solve(acceptance, np.array(pass_seconds), price, rates)
        self.asked = (
            asked[0] - self._stop[0]
        ).tolist()  # by the bin last known, the tokens that asking brings beyond a plain pass
        often = np.array(acceptance.visits) / sum(acceptance.visits)
        plain = -rates * pass_seconds[0]
        worth = np.maximum(asked, plain[:, None]) @ often
        # Tokens per step beyond plain decode, where it is asked whenever that pays
        self.expected_gain = float(worth[0] - plain[0])
        worth += 1 - rates * price.overhead
        mean_seconds = max(float(worth[0] - worth[1]) / (TUNING.rate_step * rate), 1e-12)
        self.rate = rate + float(worth[0]) / mean_seconds  # tokens per second that way

    def _solve(
        self, acceptance: Acceptance, pass_seconds: NDArray[np.float64], price: Price, rates: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Solves the program backward from the longest draft.

        Returns the value of asking for a first token, by rate and the bin last known.
        """
        moves, starts = transitions(acceptance)
        survival = (GRID[:, None] * np.array(self.chances)).ravel()  # after one more token of each confidence
        there, rates = interpolation(survival), rates[:, None]
        gain = (1 - rates * price.overhead) * survival - rates * price.rest  # of that token, less its time
        ends = (-rates * pass_seconds[:, None, None]).repeat(len(PLACES), axis=2)  # by depth, rate and place
        drawn = ends - rates * price.rest  # the same where the token's time has been spent
        value = ends[-1]
        for end, drawn_end in zip(ends[-2::-1], drawn[-2::-1], strict=True):
            self._values.append(value[0].tolist())
            best = np.maximum(drawn_end, gain + value @ there)
            value = np.maximum(end, (best.reshape(-1, N_BINS) @ moves).reshape(end.shape))
        self._values.append(value[0].tolist())
        self._values.reverse()
        asked: NDArray[np.float64] = best[:, -N_BINS:] @ starts + rates * (price.rest - price.first)
        return asked

    def _value(self, n_drafted: int, survival: float, which: int) -> float:
        """Tokens still to be expected, less what they cost, when so many are drafted and all of them survive with that
        chance.
        """
        place = survival * (len(GRID) - 1)
        low = min(int(place), len(GRID) - 2)
        share, values, at = place - low, self._values[n_drafted], low * N_BINS + which
        return values[at] * (1 - share) + values[at + N_BINS] * share

    def includes(self, n_drafted: int, survival: float, confidence: float) -> bool:
        """Is one more token, of that confidence and with that chance that it and all before it survive, worth
        verifying?
        """
        if n_drafted >= len(self._stop) - 1:
            return False
        return self._gain * survival + self._value(n_drafted + 1, survival, bin_of(confidence)) > self._stop[n_drafted]

    def goes_on(self, n_drafted: int, survival: float, confidence: float) -> bool:
        """Is it worth drafting another token, of which nothing is known yet, after one of that confidence?"""
        return self._value(n_drafted, survival, bin_of(confidence)) > self._stop[n_drafted] + 1e-12


class StoppingCriterion:
    """The criterion of one proposal, and what was proposed: asked once per draft token, in order.

    With a `limit` so many tokens are drafted whatever they are worth; else the policy decides, and without one nothing
    is. `seconds_for` says what so many tokens should take. The last of `confidences` and `tokens` may be a token that
    was rejected.
    """

    def __init__(
        self,
        policy: Policy | None,
        acceptance: Acceptance,
        limit: int | None,
        seconds_for: Callable[[int], float],
        clock: Clock = wall,
    ) -> None:
        self._policy, self._acceptance, self._limit = policy, acceptance, limit
        self._seconds_for, self._clock = seconds_for, clock
        self._began, self._first_seconds = clock(), 0.0
        self._survival, self._n_drafted = 1.0, 0
        self.confidences: list[float] = []
        self.tokens: list[int] = []

    def should_continue(self, confidence: float, token: int = UNKNOWN_TOKEN) -> Answer:
        """Is the next token, of that confidence, worth verifying, and if so, is one more worth drafting?"""
        if not self.confidences:
            self._first_seconds = self._clock() - self._began
        self.confidences.append(confidence)
        if token != UNKNOWN_TOKEN:
            self.tokens.append(token)
        if self._limit is not None:
            if self._n_drafted >= self._limit:
                return REJECT
            self._n_drafted += 1
            return CONTINUE if self._n_drafted < self._limit else LAST
        if self._policy is None:
            return REJECT
        answer = self._decide(self._policy, confidence)
        return LAST if answer is CONTINUE and self._is_held_up() else answer

    def _is_held_up(self) -> bool:
        """Did the tokens so far take much longer than believed? Then what is there is verified before one goes on."""
        n = len(self.confidences)
        return self._clock() - self._began > TUNING.held_up * self._seconds_for(n)

    def _decide(self, policy: Policy, confidence: float) -> Answer:
        """What the policy says of one more token of that confidence, and of another after it."""
        survival = self._survival * self._acceptance.chance(confidence)
        if not policy.includes(self._n_drafted, survival, confidence):
            return REJECT
        self._survival, self._n_drafted = survival, self._n_drafted + 1
        return CONTINUE if policy.goes_on(self._n_drafted, survival, confidence) else LAST

    def seconds(self) -> tuple[float, float]:
        """Seconds until the first token was known, and since then."""
        total = self._clock() - self._began
        first = self._first_seconds or total
        return first, total - first

    def drafted(self, draft_tokens: tuple[int, ...]) -> tuple[int, ...]:
        """The chain that can be scored, where `draft_tokens` were proposed.

        Under the rejection rule a rejected token is not named and not scored: it is accepted more often than it is met.
        """
        return tuple(self.tokens) or draft_tokens[: self._n_drafted]


def transitions(acceptance: Acceptance) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """How likely a bin of confidence follows on another: [after, before] within a draft, and from the last one of the
    step before.

    A step's first token is seen seldom, so it is taken to be somewhat like any other that this drafter said.
    """
    counts = np.array(acceptance.moves + acceptance.starts)
    said = np.maximum(counts - UNSAID, 0).sum(axis=0)
    counts[N_BINS:] += TUNING.pooled_tokens * said / (said.sum() + TUNING.pooled_half)
    probs = counts.T / np.add.reduce(counts, axis=1)
    return probs[:, :N_BINS], probs[:, N_BINS:]


def interpolation(survival: NDArray[np.float64]) -> NDArray[np.float64]:
    """[places, places] that takes values on the grid to those at `survival` [places], each in its own bin."""
    at = survival * (len(GRID) - 1)
    low = np.minimum(at.astype(int), len(GRID) - 2)
    near = low * N_BINS + PLACES % N_BINS
    weights = np.zeros((len(PLACES), len(PLACES)))
    weights[near, PLACES] = 1 - (at - low)
    weights[near + N_BINS, PLACES] = at - low
    return weights


def best_case(first: float, rest: float, pass_seconds: Sequence[float]) -> tuple[int, float]:
    """Return the draft length that saves most where every token is accepted, and how many times plain decode that is:
    (1 + k) T(1) / (D(k) + T(1 + k)). `pass_seconds` [max_k + 1] are T by width - 1; a draft token takes `first`, a
    further one `rest` seconds.
    """
    times = {
        k: (1 + k) * pass_seconds[0] / (first + (k - 1) * rest + seconds) for k, seconds in enumerate(pass_seconds) if k
    }
    k = max(times, key=times.__getitem__)
    return k, times[k]


def fastest_length(
    chances: Sequence[float], pass_seconds: Sequence[float], rate: float, overhead: float, prudence: float = 1.0
) -> tuple[int, float]:
    """Return the length of a draft that costs nothing to use with which tokens come fastest, if faster than at `rate`,
    and the tokens that it brings beyond a plain pass and its own time at that rate. The tokens' own chances are given;
    seconds beyond a plain pass count `prudence` times.

    What drafts brought elsewhere is no price: the tokens of this place have to be made in one way or another.
    """
    plain, survival, tokens, best, gain, fastest = pass_seconds[0], 1.0, 1.0, 0, 0.0, rate
    for k, chance in enumerate(chances[: len(pass_seconds) - 1], start=1):
        survival *= chance
        tokens += survival
        seconds = plain + prudence * (pass_seconds[k] - plain) + overhead * tokens
        if tokens > fastest * seconds:
            best, fastest, gain = k, tokens / seconds, tokens - 1 - rate * (seconds - plain - overhead)
    return best, gain
