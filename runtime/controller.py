"""Which drafter guesses next and how far: a draft token is worth its chance of acceptance times the seconds a token costs.

Knows counts and times; knows no model, no tokens and no rule of acceptance. See DESIGN for the objective: expected tokens per second,
E(k) / (D(k) + T(1 + k)) against 1 / T(1) for plain decode.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from runtime.costs import PassCosts

DECAY = 0.97  # per step: what was learned 23 steps ago counts half
PRIOR_WEIGHT, PRIOR_ACCEPTANCE = 2.0, 0.8
BINS = (0.2, 0.4, 0.6, 0.8, 0.9, 0.97)  # edges between which confidences are calibrated together
FIRST_PROBE, LAST_PROBE = 8, 512  # steps between two probes of a parked drafter
PROBE_SHARE = 0.01  # of decode time that probes may cost
CHEAP = 0.01  # of a plain pass: a drafter that asks no more is always asked
SELDOM = 0.9  # share of steps in which a drafter that looks things up is taken to find nothing, before it was seen
PROBE_K = 2  # tokens that a probe drafts whatever is believed
LOOK_AHEAD = 4  # tokens past a step in T(n)
LEARN = 0.1  # weight of a new time
PREFILL_LEARN = 0.5  # the same for a prefill, which is rare and long
PREFILL_SHARE = 0.25  # of a drafted token's seconds, for a token of a prompt, before any was measured


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a step was not speculative: a code for programs, a sentence for people."""

    code: str  # acceptance, cost, memory, draft-error, vocab, grammar, context, user, architecture
    text: str


@dataclass(frozen=True, slots=True)
class Scored:
    """What a drafter said in a step, compared with what came."""

    name: str
    confidences: Sequence[float]  # of its tokens, as far as something came to compare them with
    n_right: int  # of them, from the first
    n_said: int
    seconds: float
    is_used: bool  # did the target see it, or was it only scored?
    was_open: bool = True  # could it have been used, or had another drafter's proposal been taken already?


class Acceptance:
    """What is known of one drafter: acceptance by depth and by confidence, and the seconds of a drafted token.

    Counts are decayed. A token counts as tried only when all before it were accepted: an accepted window says "at least".
    """

    def __init__(self, max_k: int, seconds: float) -> None:
        self.seconds = seconds  # per drafted token
        self.prefill_seconds = seconds * PREFILL_SHARE  # per token of a prompt
        self.tried, self.accepted = [0.0] * max_k, [0.0] * max_k
        middles = [(low + high) / 2 for low, high in zip((0.0, *BINS), (*BINS, 1.0), strict=True)]
        self.bins = [[PRIOR_WEIGHT, PRIOR_WEIGHT * middle] for middle in middles]  # tried, accepted
        self._total = [PRIOR_WEIGHT, PRIOR_WEIGHT * PRIOR_ACCEPTANCE]
        self.seen = [1.0] * len(self.bins)  # how often a confidence fell into each bin
        self.declined = 0.0  # share of the times it was asked and drafted nothing

    @property
    def rate(self) -> float:
        """Chance that a tried token is accepted."""
        return self._total[1] / self._total[0]

    def at(self, depth: int) -> float:
        """The same for the token at that depth (0 = first), leaning on the overall rate where little was seen."""
        return (self.accepted[depth] + PRIOR_WEIGHT * self.rate) / (self.tried[depth] + PRIOR_WEIGHT)

    def calibrated(self, confidence: float) -> float:
        """The chance of acceptance that such a confidence has meant."""
        tried, accepted = self.bins[bin_of(confidence)]
        return accepted / tried

    def doubt(self) -> None:
        """Lets what was learned long ago count half, so that a probe after a long pause can change the belief."""
        for cell in (self._total, *self.bins):
            cell[:] = [(cell[0] + PRIOR_WEIGHT) / 2, (cell[1] + PRIOR_WEIGHT * cell[1] / cell[0]) / 2]
        self.declined /= 2
        for counts in (self.tried, self.accepted):
            counts[:] = [count / 2 for count in counts]

    def observe(self, confidences: Sequence[float], n_accepted: int) -> None:
        """Learns from a verified draft with these confidences of which the first `n_accepted` were accepted."""
        for counts in (self.tried, self.accepted, self._total, self.seen):
            for i in range(len(counts)):
                counts[i] *= DECAY
        for depth, confidence in enumerate(confidences[: n_accepted + 1]):
            hit, which = float(depth < n_accepted), bin_of(confidence)
            self.seen[which] += 1
            for counts in (self._total, cell := self.bins[which]):
                counts[0] += 1
                counts[1] += hit
            if cell[0] > 100:
                cell[0], cell[1] = cell[0] / 2, cell[1] / 2
            self.tried[depth] += 1
            self.accepted[depth] += hit


def bin_of(confidence: float) -> int:
    """Index into the calibration bins."""
    return sum(confidence >= edge for edge in BINS)


class Controller:
    """One decision per step: `begin`, then a question per drafter and token, then `learn`.

    `drafters` maps names, in the order in which they are asked, to the measured seconds of a drafted token.
    """

    def __init__(self, costs: PassCosts, drafters: dict[str, float], max_k: int, fixed_k: int | None = None, off: Reason | None = None) -> None:
        self.costs, self.max_k, self.fixed_k = costs, max_k, fixed_k
        self.known = {name: Acceptance(max_k, seconds) for name, seconds in drafters.items()}
        for known in self.known.values():
            known.declined = SELDOM if known.seconds < CHEAP * costs.seconds(1, 0) else 0.0
        self.off = off  # why there is nothing to choose
        self.overhead = 0.0  # seconds per token outside models: sampling and the like
        self.decode_seconds, self.probe_seconds = 0.0, 0.0  # the ledger
        self._parked = dict.fromkeys(drafters, (0, FIRST_PROBE))  # steps since the last probe, steps until the next
        self._probing: str | None = None  # the drafter that is asked in this step although it is not believed to pay
        self.begin(0)

    def begin(self, n_context: int) -> None:
        """Takes stock before a step: what passes cost at this context length and what each drafter promises."""
        self._passes = self.costs.up_to(self.max_k + 1, n_context)  # [max_k + 1] seconds, by width - 1
        self.plain_rate = 1 / max(self._passes[0] + self.overhead, 1e-9)  # tokens per second without drafts
        self._rates = {name: self._best(known) for name, known in self.known.items()}
        self._parked.update({name: (0, FIRST_PROBE) for name, rate in self._rates.items() if rate > self.plain_rate})
        self._best_rate = max(self.plain_rate, *self._rates.values()) if self._rates else self.plain_rate
        self._probing = None

    def _best(self, known: Acceptance) -> float:
        """The best expected tokens per second over all k: E(k) / (D(k) + T(1 + k)), and a plain pass whenever it declines."""
        drafts, expected, survival, best = 1 - known.declined, 1.0, 1.0, 0.0
        spent = known.declined * (known.seconds + self._passes[0])
        for k, seconds in enumerate(self._passes[1:], start=1):
            survival *= known.at(k - 1)
            expected += drafts * survival
            best = max(best, expected / (spent + drafts * (k * known.seconds + seconds) + expected * self.overhead))
        return best

    def is_worth_asking(self, name: str) -> bool:
        """Does the drafter pay on average, is it time to see again whether it does, or does asking cost next to nothing?"""
        pays = self.fixed_k is not None or self._rates[name] > self.plain_rate
        if not pays and self._is_probe_due(name):
            self._probing = name
            self.known[name].doubt()
        return pays or self._probing == name or self.known[name].seconds < CHEAP * self._passes[0]

    def _is_probe_due(self, name: str) -> bool:
        """Counts the steps since the last probe; the pauses double."""
        waited, wait = self._parked[name]
        due = waited >= wait and self.probe_seconds <= PROBE_SHARE * self.decode_seconds
        self._parked[name] = (0, min(2 * wait, LAST_PROBE)) if due else (waited + 1, wait)
        return due

    def goes_on(self, name: str, survival: float, depth: int, confidence: float, max_k: int) -> bool:
        """Is the token at `depth`, given that those before it survive with that chance, worth verifying and what follows drafting?

        The first token must also make up for what the drafters that are asked later would have brought.
        """
        if (limit := self._limit(name)) is not None:
            return depth < limit
        forgone = self._forgone(name) if depth == 0 else 0.0
        return self._surplus(name, survival * self.known[name].calibrated(confidence), depth, max_k) >= forgone

    def is_worth_drafting(self, name: str, survival: float, depth: int, max_k: int) -> bool:
        """Is the token at `depth`, whose confidence is not known yet, worth drafting? What it brings on average, being free to stop then."""
        if (limit := self._limit(name)) is not None:
            return depth < limit
        known = self.known[name]
        worth = sum(
            seen * max(0.0, self._surplus(name, survival * accepted / tried, depth, max_k))
            for seen, (tried, accepted) in zip(known.seen, known.bins, strict=True)
        )
        return worth >= sum(known.seen) * self._best_rate * known.seconds

    def _limit(self, name: str) -> int | None:
        """How many tokens are drafted whatever they are worth, if any."""
        return self.fixed_k if self.fixed_k is not None else PROBE_K if self._probing == name else None

    def _surplus(self, name: str, chance: float, depth: int, max_k: int) -> float:
        """Tokens gained by verifying the token at `depth`, which survives with `chance`, beyond what its seconds bring at the best rate.

        Looks a few tokens past a step in T(n).
        """
        known, here, gain, best = self.known[name], self._passes[depth], 0.0, -math.inf
        for ahead in range(1, min(LOOK_AHEAD, max_k - depth) + 1):
            gain += chance * (1 - self._best_rate * self.overhead)
            best = max(best, gain - self._best_rate * (self._passes[depth + ahead] - here + (ahead - 1) * known.seconds))
            chance *= known.rate
        return best

    def _forgone(self, name: str) -> float:
        """Tokens per plain pass that the best later drafter would bring beyond plain decode."""
        names = list(self._rates)
        later = [self._rates[other] for other in names[names.index(name) + 1 :]]
        return max(0.0, max(later, default=0.0) / self.plain_rate - 1)

    def learn(self, scored: Sequence[Scored], n_tokens: int, draft: float, verify: float, total: float) -> None:
        """Takes in a finished step: what drafters said, how many tokens came, the seconds for drafting, for the pass, and in all."""
        self.decode_seconds += total
        self.overhead += LEARN * (min(total - draft - verify, verify) / n_tokens - self.overhead)
        for each in scored:
            known = self.known[each.name]
            if each.was_open:
                known.declined += (1 - DECAY) * (float(not each.is_used) - known.declined)
            if each.n_said:
                known.observe(each.confidences, each.n_right)
                known.seconds += LEARN * (min(each.seconds / each.n_said, 2 * known.seconds) - known.seconds)
            if self._probing == each.name and each.is_used:
                self.probe_seconds += max(0.0, total - n_tokens / self.plain_rate)

    def repays(self, name: str, n_missing: int, n_reply: int) -> bool:
        """Will a reply of `n_reply` tokens bring in what the drafter spends on taking in `n_missing` tokens before it?"""
        saved = 1 / self.plain_rate - 1 / max(self._rates[name], 1e-9)
        return self.fixed_k is not None or n_reply * saved > n_missing * self.known[name].prefill_seconds

    def learn_prefill(self, name: str, n_tokens: int, seconds: float) -> None:
        """Takes in what it did spend."""
        known = self.known[name]
        known.prefill_seconds += PREFILL_LEARN * (seconds / n_tokens - known.prefill_seconds)

    def drop(self, name: str) -> None:
        """Forgets a drafter that broke."""
        del self.known[name]
        del self._rates[name]

    def reason(self) -> Reason:
        """Why the last step was plain."""
        if self.off is not None or not self.known:
            return self.off or Reason("user", "no drafter is switched on")
        name = max(self._rates, key=self._rates.__getitem__)
        known, plain = self.known[name], self._passes[0]
        ceiling = max((1 + k) * plain / (k * known.seconds + seconds) for k, seconds in enumerate(self._passes) if k)
        if ceiling <= 1:
            return Reason("cost", f"drafts cost more than they can save here: at best {ceiling:.2f} times plain decode")
        gain = self._rates[name] / self.plain_rate
        if gain > 1:
            return Reason(
                "acceptance", f"the {name} drafter helps where it is sure, but had nothing worth checking in {known.declined:.0%} of the steps"
            )
        text = f"{known.rate:.0%} of what the {name} drafter says is accepted, good for {gain:.2f} times plain decode at best"
        return Reason("acceptance", text)
