"""Which drafter guesses next and how far: a draft token is worth its chance of acceptance times the seconds a token
costs.

Knows counts and times; knows no model, no tokens and no rule of acceptance. See DESIGN for the objective: expected
tokens per second, E(k) / (D(k) + T(1 + k)) against 1 / T(1) for plain decode.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from runtime.speculative.control.costs import PassCosts
from runtime.speculative.control.drafter_state import FIRST_PROBE, LEARN, Known, Scored
from runtime.speculative.control.policy import Policy, Price, best_length
from runtime.speculative.control.probes import Probes
from runtime.speculative.control.reasons import NONE_ON, Reason, why_plain

REFRESH = 8  # steps between two looks at what every drafter is worth
PLAIN_EVERY = (
    24,
    256,
)  # steps, at least and at most, after which plain passes are made, so that it is known what they cost
# Steps until the first, after which pauses double: what plain decode was found to cost at load may be wrong by much
FIRST_PLAIN = 16
PLAIN_RUN = 4  # of them
# Of decode time that they may cost: the less drafts gain, the more often they are made, and the more depends on them
PLAIN_SHARE = 0.002
# Plain passes in a row of which the last is one as in plain decode: drafts leave other things in the processor's caches
STEADY = 2
RARE = 0.25  # weight of such a pass where there are few
CHEAP = 0.01  # of a plain pass: a free drafter that takes more is asked as seldom as one that does not pay
IMPATIENCE = (
    0.1  # by which a second is dearer for each reply that waits its turn: a draft that fails holds them up as well
)
MARGIN = 0.05  # tokens per step that a parked drafter must promise before it is asked again


class Controller:
    """One decision per step: `begin`, then a question per drafter and token, then `learn`.

    `drafters` maps names to the seconds of a drafted token, as measured; those in `free` cost nothing to use once they
    have spoken, those in `reused` leave work behind that makes the target's pass over their tokens cheaper; `riding`
    says how many rows others have in every pass that they are asked before.
    """

    def __init__(
        self,
        costs: PassCosts,
        drafters: Mapping[str, float],
        max_k: int,
        fixed_k: int | None = None,
        off: Reason | None = None,
        free: Collection[str] = (),
        reused: Collection[str] = (),
        riding: Mapping[str, int] | None = None,
    ) -> None:
        self.costs, self.max_k, self.fixed_k = costs, max_k, fixed_k
        self.known = {
            name: Known(seconds, name in free, costs.copy() if name in reused else None)
            for name, seconds in drafters.items()
        }
        self._tables = [costs, *(known.costs for known in self.known.values() if known.costs)]
        self._riding = riding or {}
        self.off = off  # why there is nothing to choose
        self.overhead = 0.0  # seconds per token outside models: sampling and the like
        self.probes = Probes()
        self._probing: str | None = None  # the drafter that is asked in this step although it is not believed to pay
        self._probe_k = 0  # of its tokens that are verified then
        self._n_steps, self._since_steady, self._n_plain, self._is_plain = 0, 0, 0, False
        self.rate = 0.0  # tokens per second of the best way known
        self.n_others = 0  # replies that wait while this one's step is made
        self.begin(0)

    def set_kind(self, kind: str) -> None:
        """Says of what kind the text is from now on, because acceptance differs by kind."""
        for known in self.known.values():
            known.acceptance.set_kind(kind)

    @property
    def price(self) -> float:
        """Tokens that a second of drafting or verifying must bring."""
        return self.rate * (1 + IMPATIENCE * self.n_others)

    def begin(self, n_context: int, scores_unused: bool = True) -> None:
        """Takes stock before a step: what passes cost at this context length and, now and then, what each drafter
        promises.

        `scores_unused`: can a token be scored that was not verified?
        """
        self._scores_unused = scores_unused
        self._n_context = n_context
        self._passes = self.costs.up_to(self.max_k + 1, n_context)  # [max_k + 1] seconds, by width - 1
        self.plain_rate = 1 / max(self._passes[0] + self.overhead, 1e-9)  # tokens per second without drafts
        if self._n_steps % REFRESH == 0:
            self._take_stock()
        self._n_steps += 1
        self._probing = None
        self._is_plain = self.fixed_k is None and self._since_steady >= self._plain_every

    @property
    def _plain_every(self) -> float:
        """Steps between two runs of plain passes."""
        least, most = PLAIN_EVERY
        wanted = max(least, PLAIN_RUN / PLAIN_SHARE * (self.rate / self.plain_rate - 1))
        return min(wanted, most, max(FIRST_PLAIN, self._n_steps // 2))

    def _take_stock(self) -> None:
        """Values every drafter at the best rate, which follows from the values: a few rounds settle it."""
        self.rate = max(self.rate, self.plain_rate)
        is_time = self._n_steps % (8 * REFRESH) == 0
        stale = {name: known for name, known in self.known.items() if known.is_free or known.has_news or is_time}
        for _ in range(3):
            for name, known in stale.items():
                self._value(known, self._riding.get(name, 0))
            before, self.rate = (
                self.rate,
                max([self.plain_rate, *(known.rate for known in self.known.values() if not known.is_barred)]),
            )
            if abs(self.rate / before - 1) < 0.03:
                break
        for known in self.known.values():
            known.appeal(self.plain_rate)

    def _value(self, known: Known, n_riding: int) -> None:
        """At the best rate; a free drafter is worth what it brought lately.

        Rows that ride along are part of the price of asking.
        """
        if known.is_free:
            known.rate = (1 + known.surplus) * self.plain_rate
            return
        riding = max(0.0, self._passes[min(n_riding, self.max_k)] - self._passes[0])
        price = Price(known.first_seconds + riding, known.rest_seconds, self.overhead)
        known.policy = Policy(known.acceptance, self._passes_of(known), price, self.price)
        known.rate, known.surplus = known.policy.rate, known.policy.surplus

    def _passes_of(self, known: Known) -> list[float]:
        """[max_k + 1] seconds of passes over its tokens, by width - 1; one without a draft is the same for all."""
        return (
            [self._passes[0], *known.costs.up_to(self.max_k + 1, self._n_context)[1:]] if known.costs else self._passes
        )

    def _pays(self, known: Known) -> bool:
        # The value of the others' drafts has it in already
        asking = known.first_seconds * self.rate if known.is_free else 0.0
        return known.surplus > asking and not known.is_barred

    def is_worth_asking(self, name: str) -> bool:
        """Does the drafter pay, is it time to see again whether it does, or does asking cost next to nothing?"""
        known = self.known[name]
        if self.fixed_k is not None or (known.is_free and known.first_seconds < CHEAP * self._passes[0]):
            return True
        if self._is_plain:
            return False
        if known.policy is not None and not known.is_barred:
            pays = known.policy.asked[known.acceptance.last] > (MARGIN if known.waited else 0.0)
        else:
            pays = self._pays(known)
        if pays:
            known.waited, known.wait, known.n_right_probes = 0, FIRST_PROBE, 0
        elif not self.n_others and self.probes.is_due(known, self._passes_of(known)):
            self._probing, self._probe_k = name, self.probes.length(known, self._scores_unused, self._passes_of(known))
        return pays or self._probing == name

    def includes(self, name: str, n_drafted: int, survival: float, confidence: float) -> bool:
        """Is a token of that confidence, which survives with all before it with that chance, worth verifying?"""
        if (limit := self._limit(name)) is not None:
            return n_drafted < limit
        policy = self.known[name].policy
        return policy is not None and policy.includes(n_drafted, survival, confidence)

    def goes_on(self, name: str, n_drafted: int, survival: float, confidence: float) -> bool:
        """Is it worth drafting another token after one of that confidence?"""
        if (limit := self._limit(name)) is not None:
            return n_drafted < limit
        policy = self.known[name].policy
        return policy is not None and policy.goes_on(n_drafted, survival, confidence)

    def _limit(self, name: str) -> int | None:
        """How many tokens are drafted whatever they are worth, if any."""
        return self.fixed_k if self.fixed_k is not None else self._probe_k if self._probing == name else None

    def length(self, name: str, confidences: Sequence[float]) -> tuple[int, float]:
        """How much of what a free drafter says to use, and the tokens it brings; nothing, where a later drafter is
        expected to bring more.
        """
        if self.fixed_k is not None:
            k = min(self.fixed_k, len(confidences))
            return k, float(k)
        known = self.known[name]
        chances = [known.acceptance.chance(confidence) for confidence in confidences]
        k, surplus = best_length(chances, self._passes, self.price, self.overhead)
        known.surplus += LEARN * (surplus - known.surplus)
        forgone = max(
            (other.surplus for other in self.known.values() if not other.is_free and self._pays(other)), default=0.0
        )
        return (k, surplus) if surplus > forgone and not self._is_plain and not known.is_barred else (0, 0.0)

    def learn(self, scored: Sequence[Scored], n_tokens: int, draft: float, verify: float, total: float) -> None:
        """Takes in a finished step: what drafters said, how many tokens came, the seconds for drafting, for the pass,
        and in all.
        """
        self.probes.decode_seconds += total
        self.overhead += LEARN * (min(total - draft - verify, verify) / n_tokens - self.overhead)
        is_plain = not any(each.is_used or not self.known[each.name].is_free for each in scored)
        self._n_plain = self._n_plain + 1 if is_plain else 0
        self._since_steady = 0 if self._n_plain >= PLAIN_RUN else self._since_steady + 1
        for name in self.known.keys() - {each.name for each in scored}:
            self.known[name].acceptance.rest()
        for each in scored:
            known = self.known[each.name]
            if each.confidences:
                known.acceptance.observe(each.confidences, each.n_right, each.n_known)
            known.learn_times(each)
            lost = total - n_tokens / self.plain_rate
            if self._probing == each.name:
                self.probes.learn(known, each, lost)
            elif self.fixed_k is None and (each.is_used or not known.is_free):
                known.note_pace(n_tokens, total)
                known.hold_to_account(lost, 1 / self.plain_rate, self.probes.allowed)

    @property
    def is_steady(self) -> bool:
        """Was the last step as it would be in plain decode?"""
        return self._n_plain >= STEADY

    def learn_pass(self, name: str, width: int, n_context: int, seconds: float) -> None:
        """Takes in what a pass over that drafter's tokens took; the tables of others drift along."""
        own = self.costs_of(name, width)
        change = own.observe(width, n_context, seconds, RARE if self._is_plain else LEARN)
        for costs in self._tables:
            if costs is not own:
                costs.drift(1 + change)

    def costs_of(self, name: str, width: int) -> PassCosts:
        """The table that holds what passes over that drafter's tokens cost."""
        known = self.known.get(name)
        return known.costs if known and known.costs and width > 1 else self.costs

    def scale(self, widths: Callable[[int], bool], factor: float) -> None:
        """All passes of these widths take so much longer from now on."""
        for costs in self._tables:
            costs.scale(widths, factor)

    def repays(self, name: str, n_missing: int, n_reply: int) -> bool:
        """Will a reply of `n_reply` tokens repay what the drafter spends on `n_missing` tokens before it?"""
        saved = 1 / self.plain_rate - 1 / max(self.known[name].rate, 1e-9)
        return self.fixed_k is not None or n_reply * saved > n_missing * self.known[name].prefill_seconds

    def drop(self, name: str) -> None:
        """Forgets a drafter that broke."""
        del self.known[name]

    def state(self) -> dict[str, Any]:
        """What was learned of each drafter, as plain data for the next start."""
        return {name: known.acceptance.state() for name, known in self.known.items()}

    def restore(self, state: dict[str, Any]) -> None:
        """Takes up what `state` gave; what cannot be read is left as it is."""
        for name, known in self.known.items():
            try:
                known.acceptance.restore(state[name])
                known.is_new = False
            except (KeyError, TypeError, ValueError):
                continue
        self._n_steps = 0

    def reason(self) -> Reason:
        """Why the last step was plain."""
        return (
            why_plain(self.known, self._passes, self.plain_rate) if self.known and not self.off else self.off or NONE_ON
        )
