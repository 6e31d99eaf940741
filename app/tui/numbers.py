"""The numbers of a reply while it is made and after, in words that fit a line. Knows no widgets."""

from __future__ import annotations

from collections import Counter

from app.tui.turns import SharedEngine
from runtime.engine.stats import Stats
from runtime.speculative.control.explain import Explanation, Pass

RECENT = 32  # passes that live numbers look back on
FEW = 8  # from which on most of them being plain is worth a sentence


class Tally:
    """Counts passes as they come."""

    def __init__(self) -> None:
        self.n_tokens = self.n_prompt = 0
        self.passes: list[Pass] = []
        self.stats: Stats | None = None  # once the reply is complete

    def add(self, n_tokens: int, passes: list[Pass]) -> None:
        """Takes in passes, and the tokens that came of them."""
        self.n_tokens += n_tokens
        self.passes += passes

    def per_second(self) -> float:
        """Tokens per second of decoding."""
        if self.stats is not None:
            return self.stats.predicted_per_second
        seconds = sum(each.seconds for each in self.passes)
        return self.n_tokens / seconds if seconds else 0.0

    def acceptance(self) -> float | None:
        """Accepted / drafted; None without drafts."""
        drafted = sum(each.n_drafted for each in self.passes)
        return sum(each.n_accepted for each in self.passes) / drafted if drafted else None

    def drafter(self) -> str:
        """Who guessed in most of the recent passes that had a guess."""
        names = Counter(each.drafter for each in self.passes[-RECENT:] if each.n_drafted)
        return names.most_common(1)[0][0] if names else ""

    def k(self) -> float:
        """Mean draft length of the recent passes that had one."""
        lengths = [each.n_drafted for each in self.passes[-RECENT:] if each.n_drafted]
        return sum(lengths) / len(lengths) if lengths else 0.0

    def is_plain(self) -> bool:
        """Were most of enough passes plain?"""
        return 2 * sum(each.drafter == "none" for each in self.passes) > len(self.passes) >= FEW

    def words(self, explanation: Explanation | None, n_ctx: int, memory_level: str = "OK") -> list[str]:
        """The most important first."""
        if not self.passes:
            return []
        words = [f"{self.per_second():.0f} tok/s"] + [f"memory {memory_level}"] * (memory_level != "OK")
        plain = (
            self.stats.plain_per_second
            if self.stats is not None
            else explanation.plain_per_second
            if explanation is not None
            else 0.0
        )
        if plain:
            words.append(f"{self.per_second() / plain:.2f}× plain")
        if (acceptance := self.acceptance()) is not None:
            words.append(f"{acceptance:.0%} accepted")
        words += [
            f"K {self.k():.0f} {self.drafter()}" if self.k() else "K 0",
            f"{self.n_tokens / len(self.passes):.1f}/pass",
        ]
        words.append(f"ctx {self.n_prompt + self.n_tokens}/{n_ctx}")
        if self.stats is not None and self.stats.memory_bytes:
            words.append(f"{self.stats.memory_bytes / 2**20:.0f} MiB")
        return words

    def reason(self, explanation: Explanation | None) -> str:
        """Why speculation is off, if it mostly is."""
        if self.stats is not None:
            return self.stats.reason.text if self.stats.reason is not None else ""
        return explanation.why_plain if explanation is not None and self.is_plain() else ""

    def sentence(self, explanation: Explanation | None, engine: SharedEngine | None) -> str:
        """What must not be overlooked: drafters given up or left out for want of memory, or why speculation is off."""
        if engine is not None and engine.given_up:
            return f"memory is {engine.memory_level}: {engine.given_up}"
        if engine is not None and engine.left_out and not self.passes:
            return str(engine.left_out)
        reason = self.reason(explanation)
        return f"plain decode: {reason}" if reason else ""

    def line(self) -> str:
        """What stands under the reply for good."""
        return " · ".join(self.words(None, 0)[:3]) if self.passes else ""


def fitted(words: list[str], width: int) -> str:
    """As many of the words, from the first, as have room."""
    line = ""
    for word in words:
        longer = f"{line} · {word}" if line else word
        line = longer if len(longer) <= width else line
    return line
