"""The numbers of a reply while it is made and after, in words that fit a line.

Knows passes and what the controller explains; knows no widgets and asks no engine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from app.tui.shared_engine import SharedEngine
from runtime.engine.stats import ELSEWHERE, Stats
from runtime.speculative.control.explain import Explanation, Pass

ALONE = 1.05  # replies in a pass, up to which nothing is said of others
RECENT = 32  # passes that live numbers look back on
LEAST = 40  # tokens, below which a ratio says nothing
FEW = 8  # from which on most of them being plain is worth a sentence


class ReplyNumbers:
    """The numbers of one reply, counted as its passes come."""

    def __init__(self) -> None:
        self.n_tokens = self.n_prompt = 0
        self.passes: list[Pass] = []
        self.stats: Stats | None = None  # once the reply is complete

    def add(self, n_tokens: int, passes: Sequence[Pass]) -> None:
        """Counts passes, and the tokens that came of them."""
        self.n_tokens += n_tokens
        self.passes += passes

    def per_second(self) -> float:
        """Tokens per second of decoding."""
        if self.stats is not None:
            return self.stats.predicted_per_second
        seconds = sum(each.seconds for each in self.passes)
        return self.n_tokens / seconds if seconds else 0.0

    def plain_per_second(self, explanation: Explanation | None) -> float:
        """Tokens per second that plain decode would make; 0.0 where that is unknown."""
        if self.stats is not None:
            return self.stats.plain_per_second
        return explanation.plain_per_second if explanation is not None else 0.0

    def times(self, plain: float) -> float:
        """Times that many tokens per second, without what other programs took."""
        if self.stats is not None:
            return self.stats.times_plain
        own = sum(each.own_seconds for each in self.passes)
        return min(self.n_tokens / own / plain if own else self.per_second() / plain, self.n_tokens / len(self.passes))

    def replies_per_pass(self) -> float:
        """Replies that shared a recent pass, in the mean."""
        recent = self.passes[-RECENT:]
        return sum(each.n_together for each in recent) / max(1, len(recent))

    def acceptance(self) -> float | None:
        """Accepted / drafted; None without drafts."""
        if self.stats is not None and self.stats.told:
            return self.stats.acceptance_rate if self.stats.draft_n else None
        drafted = sum(each.n_drafted for each in self.passes)
        return sum(each.n_accepted for each in self.passes) / drafted if drafted else None

    def drafter(self) -> str:
        """The drafter of most of the recent passes that had a draft."""
        names = Counter(each.drafter for each in self.passes[-RECENT:] if each.n_drafted)
        return names.most_common(1)[0][0] if names else ""

    def k(self) -> float:
        """Mean draft length of the recent passes that had one."""
        lengths = [each.n_drafted for each in self.passes[-RECENT:] if each.n_drafted]
        return sum(lengths) / len(lengths) if lengths else 0.0

    def is_plain(self) -> bool:
        """Were most of enough passes plain?"""
        return 2 * sum(each.drafter == "none" for each in self.passes) > len(self.passes) >= FEW

    def summary(self, explanation: Explanation | None, n_ctx: int, memory_level: str = "OK") -> list[str]:
        """Each number in a word or two, the most important first."""
        if not self.passes:
            return []
        summary = [f"{self.per_second():.0f} tok/s"] + [f"memory {memory_level}"] * (memory_level != "OK")
        if (plain := self.plain_per_second(explanation)) and self.n_tokens >= LEAST:
            summary.append(f"{self.times(plain):.2f}× plain")
        if (n := self.replies_per_pass()) > ALONE:
            summary.append(f"{n:.1f} replies/pass")
        if (acceptance := self.acceptance()) is not None:
            summary.append(f"{acceptance:.0%} accepted")
        if self.is_elsewhere():
            return summary + self.told(n_ctx)
        summary.append(f"K {self.k():.0f} {self.drafter()}" if self.k() else "K 0")
        summary.append(f"{self.n_tokens / len(self.passes):.1f}/pass")
        summary.append(f"ctx {self.n_prompt + self.n_tokens}/{n_ctx}")
        if self.stats is not None and self.stats.memory_bytes:
            summary.append(f"{self.stats.memory_bytes / 2**20:.0f} MiB")
        return summary

    def is_elsewhere(self) -> bool:
        """Does another server make the passes, of which it tells what it likes?"""
        return self.passes[-1].drafters == (ELSEWHERE,)

    def told(self, n_ctx: int) -> list[str]:
        """What another server has told when the reply is complete."""
        if self.stats is None:
            return []
        passes = [f"{self.stats.tokens_per_target_pass:.1f}/pass"] * bool(self.stats.n_passes)
        return [*passes, f"ctx {self.stats.prompt_n + self.stats.predicted_n}/{n_ctx}"]

    def reason(self, explanation: Explanation | None) -> str:
        """Why speculation is off, if it mostly is."""
        if self.stats is not None:
            return self.stats.reason.text if self.stats.reason is not None else ""
        return explanation.why_plain if explanation is not None and self.is_plain() else ""

    def sentence(self, explanation: Explanation | None, engine: SharedEngine | None) -> str:
        """What must not be overlooked: drafters given up or left out for want of memory, or why speculation is off."""
        if engine is not None and engine.given_up:
            return f"memory is {engine.memory_level}: {engine.given_up}"
        if engine is not None and engine.facts.left_out and not self.passes:
            return str(engine.facts.left_out)
        reason = self.reason(explanation)
        return f"plain decode: {reason}" if reason else ""

    def line(self) -> str:
        """The three numbers that stay under the reply for good."""
        return " · ".join(self.summary(None, 0)[:3])


class ChatNumbers:
    """What is known of decoding in this chat: the last reply, all passes, the controller's latest explanation."""

    def __init__(self) -> None:
        self.reply = ReplyNumbers()
        self.passes: list[Pass] = []
        self.explanation: Explanation | None = None

    def add(self, n_tokens: int, passes: Sequence[Pass], explanation: Explanation | None) -> None:
        """Counts what came of the reply."""
        self.reply.add(n_tokens, passes)
        self.passes += passes
        self.explanation = explanation or self.explanation

    def summary(self, engine: SharedEngine | None) -> list[str]:
        """The last reply's numbers; nothing without an engine or a reply."""
        return (
            self.reply.summary(self.explanation, engine.facts.n_ctx, engine.memory_level) if engine is not None else []
        )

    def sentence(self, engine: SharedEngine | None) -> str:
        """What must not be overlooked in the last reply or in what the engine lacks."""
        return self.reply.sentence(self.explanation, engine)


def fitted(summary: Sequence[str], width: int) -> str:
    """As many of the numbers, from the first, as have room."""
    line = ""
    for number in summary:
        longer = f"{line} · {number}" if line else number
        line = longer if len(longer) <= width else line
    return line
