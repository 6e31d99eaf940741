"""Statistics of one reply, derived from its passes. Plain data; knows no model."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from runtime.loading.exactness import Exactness
from runtime.speculative.control.explain import Pass, Why
from runtime.speculative.control.reasons import Reason
from runtime.speculative.step import Widths

ELSEWHERE = "elsewhere"  # drafter name for passes of another server
NUMBERS = re.compile(r"\d+(\.\d+)?")


@dataclass(frozen=True, slots=True)
class RemoteCounts:
    """Counts that another server reported for a reply; the draft counts are optional."""

    n_tokens: int
    n_drafted: int = 0
    n_accepted: int = 0
    own_seconds: float = 0.0  # decode seconds without waiting for other programs; 0: not reported

    @property
    def n_passes(self) -> int:
        """Number of passes, each of which adds one token of the target's own; 0 if no drafts were reported."""
        return self.n_tokens - self.n_accepted if self.n_drafted else 0


@dataclass(slots=True)
class Stats:
    """Counts and seconds of a reply; times exclude loading."""

    prompt_n: int = 0
    cached_n: int = 0  # prompt tokens that the target had cached
    prompt_seconds: float = 0.0  # until the first decode step
    decode_seconds: float = 0.0
    plain_per_second: float = 0.0  # measured tok/s of plain decode
    steps: list[Pass] = field(default_factory=list)
    reason: Reason | None = None  # why passes were plain, if most were or if a drafter is missing
    memory_bytes: int = 0  # resident memory of this process
    memory_level: str = "OK"  # memory level at the end: OK, TIGHT or CRITICAL
    exactness: Exactness | None = None
    widths: Widths = Widths.ANY  # permitted widths of passes
    embedded_n: int = 0  # number of embedded texts, for a request for embeddings
    n_near_ties: int = 0  # choices that rounding could have changed, if wider passes were used
    told: tuple[RemoteCounts, ...] = ()  # counts of another server that generated the reply, instead of steps

    @property
    def _parts(self) -> list[Pass | RemoteCounts]:
        """The items that token counts are summed over."""
        return [*self.steps, *self.told]

    @property
    def n_passes(self) -> int:
        """Number of passes of the target."""
        return len(self.steps) + sum(each.n_passes for each in self.told)

    @property
    def n_inexact(self) -> int:
        """Number of passes with more rows than those that round as plain decode does."""
        exact_rows = self.exactness.width if self.exactness else sys.maxsize
        return sum(each.n_together + each.n_drafted > exact_rows for each in self.steps)

    @property
    def replies_per_pass(self) -> float:
        """Mean number of sequences per pass; 0 without passes."""
        return sum(each.n_together for each in self.steps) / len(self.steps) if self.steps else 0.0

    @property
    def predicted_n(self) -> int:
        """Number of tokens of the reply."""
        return sum(each.n_tokens for each in self._parts)

    @property
    def draft_n(self) -> int:
        """Number of draft tokens."""
        return sum(each.n_drafted for each in self._parts)

    @property
    def draft_n_accepted(self) -> int:
        """Number of draft tokens that became part of the reply."""
        return sum(min(each.n_accepted, each.n_tokens) for each in self._parts)

    @property
    def draft_seconds(self) -> float:
        """Seconds spent on proposals."""
        return sum(each.draft_seconds for each in self.steps)

    @property
    def verify_seconds(self) -> float:
        """Seconds spent in the target's passes."""
        return sum(each.verify_seconds for each in self.steps)

    @property
    def accepted_lengths(self) -> Counter[int]:
        """Number of passes with a draft, by accepted draft tokens."""
        return Counter(each.n_accepted for each in self.steps if each.n_drafted)

    @property
    def drafters(self) -> Counter[str]:
        """Number of passes by drafter; "none" for plain passes."""
        return Counter(each.drafter for each in self.steps)

    @property
    def k(self) -> Counter[int]:
        """Number of passes by draft tokens."""
        return Counter(each.n_drafted for each in self.steps)

    @property
    def by_drafter(self) -> dict[str, dict[str, int]]:
        """Draft tokens and accepted draft tokens, by drafter."""
        made: dict[str, list[Pass]] = {}
        for each in self.steps:
            if each.n_drafted:
                made.setdefault(each.drafter, []).append(each)
        own = {name: Stats(steps=steps) for name, steps in made.items()}
        return {name: {"drafted": each.draft_n, "accepted": each.draft_n_accepted} for name, each in own.items()}

    @property
    def predicted_per_second(self) -> float:
        """Tokens per second of decoding."""
        return self.predicted_n / self.decode_seconds if self.decode_seconds else 0.0

    @property
    def own_seconds(self) -> float:
        """Seconds of decoding without waiting for other programs."""
        return sum(each.own_seconds for each in self._parts) or self.decode_seconds

    @property
    def times_plain(self) -> float:
        """Speed relative to plain decode on the same machine, without waiting for other programs; 0 if unknown.

        It is limited to the tokens per pass, because a plain pass never takes longer than one with drafts; a larger
        value would come from a plain pass measured on a busy machine.
        """
        plain_seconds = self.predicted_n / self.plain_per_second if self.plain_per_second else 0.0
        return min(plain_seconds / self.own_seconds, self.tokens_per_target_pass) if self.own_seconds else 0.0

    @property
    def held_up(self) -> float:
        """Fraction of decode time spent waiting for other programs."""
        return max(0.0, 1 - self.own_seconds / self.decode_seconds) if self.decode_seconds else 0.0

    @property
    def acceptance_rate(self) -> float:
        """Accepted draft tokens divided by draft tokens."""
        return self.draft_n_accepted / self.draft_n if self.draft_n else 0.0

    @property
    def tokens_per_target_pass(self) -> float:
        """Mean acceptance length, the target's own token included."""
        return self.predicted_n / self.n_passes if self.n_passes else 0.0

    def timings(self) -> dict[str, object]:
        """Return the statistics for programs, with llama.cpp's names where it has them; times in milliseconds."""
        accepted_lengths, drafters, k = self.accepted_lengths, self.drafters, self.k
        return {
            "prompt_n": self.prompt_n - self.cached_n,
            "cache_n": self.cached_n,
            "prompt_ms": round(1e3 * self.prompt_seconds, 3),
            "predicted_n": self.predicted_n,
            "predicted_ms": round(1e3 * self.decode_seconds, 3),
            "predicted_per_second": round(self.predicted_per_second, 2),
            "plain_per_second": round(self.plain_per_second, 2),
            "times_plain": round(self.times_plain, 3),
            "held_up": round(self.held_up, 3),
            "replies_per_pass": round(self.replies_per_pass, 2),
            "draft_n": self.draft_n,
            "draft_n_accepted": self.draft_n_accepted,
            "acceptance_rate": round(self.acceptance_rate, 4),
            "tokens_per_target_pass": round(self.tokens_per_target_pass, 3),
            "accepted_lengths": {str(n): accepted_lengths[n] for n in sorted(accepted_lengths)},
            "draft_ms": round(1e3 * self.draft_seconds, 3),
            "verify_ms": round(1e3 * self.verify_seconds, 3),
            "other_ms": round(1e3 * (self.decode_seconds - self.draft_seconds - self.verify_seconds), 3),
            "drafter": drafters.most_common(1)[0][0] if drafters else ELSEWHERE if self.told else "none",
            "drafters": dict(drafters),
            "by_drafter": self.by_drafter,
            "k": {str(n): k[n] for n in sorted(k)},
            "fallback_reason": self.reason and self.reason.code,
            "fallback_text": self.reason and self.reason.text,
            "memory_bytes": self.memory_bytes,
            "memory_level": self.memory_level,
            "exact_width": self.exactness and self.exactness.width,
            "is_exact": self.exactness and self.exactness.is_exact,
            "inexact_passes": self.n_inexact,
            "near_ties": self.n_near_ties,
        }


def reasons(whys: Sequence[Why]) -> list[tuple[str, int]]:
    """Return why passes were plain and how often, most frequent first."""
    return merged((each.reason, 1) for each in whys if each.reason)


def skipped(whys: Sequence[Why]) -> list[tuple[str, int]]:
    """Return which drafters were not asked, why and how often, most frequent first."""
    return merged((f"did not ask {name}: {reason}", 1) for each in whys for name, reason in each.unasked.items())


def merged(counts: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    """Return the sum of the counts of each text, largest first. Texts that differ only in numbers count as the last of
    them.
    """
    found, last = Counter[str](), dict[str, str]()
    for text, n in counts:
        form = NUMBERS.sub("#", text)
        found[form] += n
        last[form] = text
    return [(last[form], n) for form, n in found.most_common()]
