"""The numbers of one reply, counted as it is decoded. Plain data; knows no model."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from runtime.loading.exactness import Exactness
from runtime.speculative.control.reasons import Reason
from runtime.speculative.loop import Step


@dataclass(slots=True)
class Stats:
    """Counts and seconds of a reply; times exclude loading."""

    prompt_n: int = 0
    cached_n: int = 0  # of the prompt, already held by the target's cache
    prompt_seconds: float = 0.0  # until the first decode step
    predicted_n: int = 0
    passes: int = 0
    draft_n: int = 0
    draft_n_accepted: int = 0
    draft_seconds: float = 0.0
    verify_seconds: float = 0.0
    decode_seconds: float = 0.0
    plain_per_second: float = 0.0  # tok/s of plain decode as measured here
    accepted_lengths: Counter[int] = field(default_factory=Counter)  # accepted draft tokens per drafted pass -> passes
    drafters: Counter[str] = field(default_factory=Counter)  # passes by drafter, "none" for plain ones
    k: Counter[int] = field(default_factory=Counter)  # drafted tokens -> passes
    # Per pass: seconds, drafter, tokens drafted, accepted
    steps: list[tuple[float, str, int, int]] = field(default_factory=list)
    reason: Reason | None = None  # why passes were plain, when most were
    memory_bytes: int = 0  # of this process
    memory_level: str = "OK"  # how short memory was at the end: OK, TIGHT or CRITICAL
    exactness: Exactness | None = None
    n_near_ties: int = 0  # choices that rounding could have turned, where kernels are not exact

    def count(self, step: Step, n_kept: int) -> None:
        """Adds a step of whose tokens `n_kept` became part of the reply."""
        self.passes += 1
        self.predicted_n += n_kept
        self.draft_n += step.n_drafted
        self.draft_n_accepted += min(step.n_accepted, n_kept)
        self.draft_seconds += step.draft_seconds
        self.verify_seconds += step.verify_seconds
        self.drafters[step.drafter] += 1
        self.k[step.n_drafted] += 1
        self.steps.append((step.seconds, step.drafter, step.n_drafted, step.n_accepted))
        if step.n_drafted:
            self.accepted_lengths[step.n_accepted] += 1

    @property
    def by_drafter(self) -> dict[str, dict[str, int]]:
        """Tokens drafted and accepted, by drafter: what became of a prediction, among others."""
        counts: dict[str, dict[str, int]] = {}
        for _, name, n_drafted, n_accepted in self.steps:
            if n_drafted:
                count = counts.setdefault(name, {"drafted": 0, "accepted": 0})
                count["drafted"] += n_drafted
                count["accepted"] += n_accepted
        return counts

    @property
    def predicted_per_second(self) -> float:
        """Tokens per second of decoding."""
        return self.predicted_n / self.decode_seconds if self.decode_seconds else 0.0

    @property
    def acceptance_rate(self) -> float:
        """Accepted / drafted."""
        return self.draft_n_accepted / self.draft_n if self.draft_n else 0.0

    @property
    def tokens_per_target_pass(self) -> float:
        """Mean acceptance length, the target's own token included."""
        return self.predicted_n / self.passes if self.passes else 0.0

    def timings(self) -> dict[str, object]:
        """For programs; llama.cpp's names where it has them. Times in milliseconds."""
        return {
            "prompt_n": self.prompt_n,
            "cache_n": self.cached_n,
            "prompt_ms": round(1e3 * self.prompt_seconds, 3),
            "predicted_n": self.predicted_n,
            "predicted_ms": round(1e3 * self.decode_seconds, 3),
            "predicted_per_second": round(self.predicted_per_second, 2),
            "plain_per_second": round(self.plain_per_second, 2),
            "draft_n": self.draft_n,
            "draft_n_accepted": self.draft_n_accepted,
            "acceptance_rate": round(self.acceptance_rate, 4),
            "tokens_per_target_pass": round(self.tokens_per_target_pass, 3),
            "accepted_lengths": {str(n): self.accepted_lengths[n] for n in sorted(self.accepted_lengths)},
            "draft_ms": round(1e3 * self.draft_seconds, 3),
            "verify_ms": round(1e3 * self.verify_seconds, 3),
            "other_ms": round(1e3 * (self.decode_seconds - self.draft_seconds - self.verify_seconds), 3),
            "drafter": self.drafters.most_common(1)[0][0] if self.drafters else "none",
            "drafters": dict(self.drafters),
            "by_drafter": self.by_drafter,
            "k": {str(n): self.k[n] for n in sorted(self.k)},
            "fallback_reason": self.reason and self.reason.code,
            "fallback_text": self.reason and self.reason.text,
            "memory_bytes": self.memory_bytes,
            "memory_level": self.memory_level,
            "exact_width": self.exactness and self.exactness.width,
            "is_exact": self.exactness and self.exactness.is_exact,
            "near_ties": self.n_near_ties,
        }
