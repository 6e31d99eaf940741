"""When to stop drafting: optimal stopping by dynamic programming over depth, survival (the probability that all draft
tokens so far are accepted), and the last confidence.

All values are in tokens: a second is worth the tokens that the best decoding method generates in it (Dinkelbach's
method for the ratio of expected tokens to expected time). Knows probabilities and seconds; knows no drafter, no tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from runtime.core.cores import Clock, wall
from runtime.core.drafter import CONTINUE, LAST, REJECT, UNKNOWN_TOKEN, Answer
from runtime.speculative.control.acceptance import N_BINS, Acceptance, bin_of
from runtime.speculative.control.tuning import TUNING

GRID = np.linspace(0.0, 1.0, 9)  # survival probabilities for which values are computed
PLACES = np.arange(len(GRID) * N_BINS)  # indices of survival by bin of confidence, flat
PRIOR_COUNTS = np.array(Acceptance().moves + Acceptance().starts)  # of transitions, before any draft


@dataclass(frozen=True, slots=True)
class Price:
    """Cost of a draft's tokens in seconds: of the first, of each further one, and of sampling per accepted token."""

    first: float
    rest: float
    overhead: float


class Policy:
    """Value of one drafter at a `rate` in tokens per second, and the stopping rule for its drafts.

    `pass_seconds` [max_k + 1] are the seconds of the target's passes by width - 1.
    """

    def __init__(self, acceptance: Acceptance, pass_seconds: Sequence[float], price: Price, rate: float) -> None:
        rates = np.array([rate, (1 + TUNING.rate_step) * rate])  # the second for a derivative
        # Acceptance probabilities when the policy was solved, and the number of tokens seen before
        self.chances, self.n_seen = acceptance.chances, acceptance.n_seen
        self._gain = 1 - rate * price.overhead
        self._stop = [-rate * seconds for seconds in pass_seconds]
        self._values: list[list[float]] = []  # by number of draft tokens; survival by bin of the last confidence, flat
        asked = self._solve(acceptance, np.array(pass_seconds), price, rates)
        self.asked = (
            asked[0] - self._stop[0]
        ).tolist()  # by last known bin: expected tokens gained by a proposal over a plain pass
        often = np.array(acceptance.visits) / sum(acceptance.visits)
        plain = -rates * pass_seconds[0]
        worth = np.maximum(asked, plain[:, None]) @ often
        # Tokens per step beyond plain decode, if it proposes whenever that pays
        self.expected_gain = float(worth[0] - plain[0])
        worth += 1 - rates * price.overhead
        mean_seconds = max(float(worth[0] - worth[1]) / (TUNING.rate_step * rate), 1e-12)
        self.rate = rate + float(worth[0]) / mean_seconds  # tokens per second with such proposals

    def _solve(
        self, acceptance: Acceptance, pass_seconds: NDArray[np.float64], price: Price, rates: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Solve the dynamic program backward from the longest draft.

        Returns the value of drafting a first token, by rate and last known bin.
        """
        moves, starts = transitions(acceptance)
        survival = (GRID[:, None] * np.array(self.chances)).ravel()  # after one more token of each confidence
        there, rates = interpolation(survival), rates[:, None]
        gain = (1 - rates * price.overhead) * survival - rates * price.rest  # value of that token, less its time
        ends = (-rates * pass_seconds[:, None, None]).repeat(len(PLACES), axis=2)  # by depth, rate and place
        drawn = ends - rates * price.rest  # the same after drafting a token that is left out
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
        """Return the expected further tokens, less the cost of drafting them and of the pass, after `n_drafted` tokens
        with this survival probability. `which` is the bin of the last confidence.
        """
        place = survival * (len(GRID) - 1)
        low = min(int(place), len(GRID) - 2)
        share, values, at = place - low, self._values[n_drafted], low * N_BINS + which
        return values[at] * (1 - share) + values[at + N_BINS] * share

    def includes(self, n_drafted: int, survival: float, confidence: float) -> bool:
        """Return whether one more token of this confidence is worth verifying. `survival` is the probability that it
        and all before it are accepted.
        """
        if n_drafted >= len(self._stop) - 1:
            return False
        return self._gain * survival + self._value(n_drafted + 1, survival, bin_of(confidence)) > self._stop[n_drafted]

    def continues(self, n_drafted: int, survival: float, confidence: float) -> bool:
        """Return whether to draft another token after one of this confidence."""
        return self._value(n_drafted, survival, bin_of(confidence)) > self._stop[n_drafted] + 1e-12


class StoppingCriterion:
    """The stopping criterion of one proposal, which also records its tokens; called once per draft token, in order.

    With a `limit`, that number of tokens is kept regardless of their value; else the policy decides, and without one
    none is kept. `seconds_for` returns the expected seconds of a number of tokens. The last of `confidences` and
    `tokens` may be of a token that this criterion rejected.
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
        """Decide whether a newly drafted token is worth verifying, and if so, whether to draft another."""
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
        survival = self._survival * self._acceptance.chance(confidence)
        policy = self._policy
        if policy is None or not policy.includes(self._n_drafted, survival, confidence):
            return REJECT
        self._survival, self._n_drafted = survival, self._n_drafted + 1
        goes_on = policy.continues(self._n_drafted, survival, confidence) and not self._is_stalled()
        return CONTINUE if goes_on else LAST

    def _is_stalled(self) -> bool:
        """Return whether the tokens so far took much longer than expected; they are then verified without more."""
        return self._clock() - self._began > TUNING.held_up * self._seconds_for(len(self.confidences))

    @property
    def n_rest(self) -> int:
        """Number of its tokens after the first."""
        return max(0, len(self.confidences) - 1)

    def seconds(self) -> tuple[float, float]:
        """Return the seconds until the first token was known, and the seconds since then."""
        total = self._clock() - self._began
        first = self._first_seconds or total
        return first, total - first

    def drafted(self, draft_tokens: tuple[int, ...]) -> tuple[int, ...]:
        """Return the chain that can be scored, given the proposed `draft_tokens`.

        Under the rejection rule, a token that the criterion left out is unknown and not scored, because it would be
        accepted more often than it equals the next token of the text.
        """
        return tuple(self.tokens) or draft_tokens[: self._n_drafted]


def transitions(acceptance: Acceptance) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the transition probabilities between confidence bins, [after, before]: within a draft, and from the
    previous step's last bin to the first token's.

    First tokens are rare, so the distribution over all tokens of this drafter is added to their counts.
    """
    counts = np.array(acceptance.moves + acceptance.starts)
    observed = np.maximum(counts - PRIOR_COUNTS, 0).sum(axis=0)
    counts[N_BINS:] += TUNING.pooled_tokens * observed / (observed.sum() + TUNING.pooled_half)
    probs = counts.T / np.add.reduce(counts, axis=1)
    return probs[:, :N_BINS], probs[:, N_BINS:]


def interpolation(survival: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the matrix [places, places] that interpolates values on the grid at `survival` [places], each in its own
    bin.
    """
    at = survival * (len(GRID) - 1)
    low = np.minimum(at.astype(int), len(GRID) - 2)
    near = low * N_BINS + PLACES % N_BINS
    weights = np.zeros((len(PLACES), len(PLACES)))
    weights[near, PLACES] = 1 - (at - low)
    weights[near + N_BINS, PLACES] = at - low
    return weights


def best_case(first: float, rest: float, pass_seconds: Sequence[float], rate: float = 1.0) -> tuple[int, float]:
    """Return the draft length with the highest speed if each token is accepted with probability `rate`, and its speed
    relative to plain decode: n T(1) / (D(k) + T(1 + k)), with n = 1 + rate + ... + rate^k tokens.

    `pass_seconds` [max_k + 1] are T by width - 1. The first draft token takes `first` seconds, a further one `rest`.
    """
    times = {
        k: sum(rate**i for i in range(1 + k)) * pass_seconds[0] / (first + (k - 1) * rest + seconds)
        for k, seconds in enumerate(pass_seconds)
        if k
    }
    k = max(times, key=times.__getitem__)
    return k, times[k]


def fastest_length(
    chances: Sequence[float], pass_seconds: Sequence[float], rate: float, overhead: float
) -> tuple[int, float]:
    """Return the fastest length of a draft that already exists (0 if none is faster than `rate`), and its gain in
    tokens over a plain pass, less the cost of its extra time at `rate`.

    `chances` are the acceptance probabilities of its tokens. The length maximizes the tokens per second of this step
    alone, not those of the whole reply.
    """
    plain, survival, tokens, best, gain, fastest = pass_seconds[0], 1.0, 1.0, 0, 0.0, rate
    for k, chance in enumerate(chances[: len(pass_seconds) - 1], start=1):
        survival *= chance
        tokens += survival
        seconds = pass_seconds[k] + overhead * tokens
        if tokens > fastest * seconds:
            best, fastest, gain = k, tokens / seconds, tokens - 1 - rate * (seconds - plain - overhead)
    return best, gain
