"""The numbers of a reply, during it and afterwards, as short texts.

Knows the engine's Stats, whose definitions apply to every number shown; knows no widgets and calls no engine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, get_args

from app.tui.shared_engine import SharedEngine
from runtime.drafters.registry import find
from runtime.engine.stats import ELSEWHERE, Stats, Told
from runtime.speculative.control.explain import Explanation, Pass
from runtime.speculative.control.reasons import Code, Reason

ALONE = 1.05  # replies per pass, up to which they are not shown
LEAST = 40  # tokens, below which a ratio is not meaningful
FEW = 8  # passes, from which on a mostly plain reply is explained in a sentence
DISTURBED = 0.15  # share of the time taken by other programs, from which on a ratio is not meaningful


class ChatNumbers:
    """The current numbers: those of the latest reply, and the controller's latest explanation."""

    def __init__(self) -> None:
        self.reply = Stats()
        self.explanation: Explanation | None = None

    def add(self, passes: Sequence[Pass], explanation: Explanation | None) -> None:
        """Add the new passes of the reply."""
        reply = self.reply
        reply.steps += passes
        reply.decode_seconds += sum(each.seconds for each in passes)
        if explanation is not None:
            self.explanation, reply.plain_per_second = explanation, explanation.plain_per_second
            reply.reason = Reason("acceptance", explanation.why_plain) if is_plain(reply) else None


def is_plain(stats: Stats) -> bool:
    """Return whether the reply has enough passes and most of them were plain."""
    return 2 * stats.drafters["none"] > stats.n_passes >= FEW


def times(stats: Stats) -> float | None:
    """Return the speed relative to plain decode; None after too few tokens, or if other programs disturbed the
    measurement.
    """
    is_fair = stats.predicted_n >= LEAST and stats.held_up < DISTURBED
    return (stats.times_plain or None) if is_fair else None


def guesses_per_pass(stats: Stats) -> float:
    """Return the mean number of draft tokens per pass; tokens per pass are 1 plus the accepted ones."""
    return stats.draft_n / stats.n_passes if stats.n_passes else 0.0


def source(drafter: str) -> str:
    """Return the label of a drafter for people; the first one's for several combined."""
    name = drafter.partition("+")[0]
    known = find(name)
    return (known and known.label) or name


def sources(stats: Stats) -> Counter[str]:
    """Return the number of passes by drafter label."""
    counts: Counter[str] = Counter()
    for name, n in stats.drafters.items():
        if name not in ("none", ELSEWHERE):
            counts[source(name)] += n
    return counts


def is_elsewhere(stats: Stats) -> bool:
    """Return whether another server runs the passes; it may report only some of the numbers."""
    return bool(stats.told) or stats.drafters[ELSEWHERE] > 0


def summary(stats: Stats, n_ctx: int, memory_level: str = "OK") -> list[str]:
    """Return each number in a word or two, the most important first."""
    if not stats.predicted_n:
        return []
    told = speed(stats, memory_level)
    if stats.prompt_n or not is_elsewhere(stats):  # another server may not report the prompt length
        told.append(f"context {stats.prompt_n + stats.predicted_n}/{n_ctx}")
    if stats.draft_n or not is_elsewhere(stats):
        told.append(f"{stats.tokens_per_target_pass:.1f} tokens/pass")
    if stats.draft_n:
        told.append(f"{guesses_per_pass(stats):.1f} guesses/pass")
    if stats.memory_bytes:
        told.append(f"{stats.memory_bytes / 2**20:.0f} MiB")
    return told


def speed(stats: Stats, memory_level: str = "OK") -> list[str]:
    """Return the most important numbers: the speed, its ratio to plain decode, and the acceptance rate."""
    told = [f"{stats.predicted_per_second:.0f} tok/s"] + [f"memory {memory_level}"] * (memory_level != "OK")
    if (ratio := times(stats)) is not None:
        told.append(f"{ratio:.2f}× as fast")
    elif stats.held_up >= DISTURBED:
        told.append("busy machine")
    if stats.replies_per_pass > ALONE:
        told.append(f"{stats.replies_per_pass:.1f} replies/pass")
    if stats.draft_n or not is_elsewhere(stats):
        told.append(f"{stats.acceptance_rate:.0%} of guesses right" if stats.draft_n else "no guesses")
    return told


def line(stats: Stats) -> str:
    """Return the numbers that are kept below the reply."""
    return " · ".join(speed(stats)) if stats.predicted_n else ""


def sentence(stats: Stats, engine: SharedEngine | None) -> str:
    """Return a warning: drafters dropped for lack of memory, or the reason for few drafts."""
    if engine is not None and engine.given_up:
        return f"memory is {engine.memory_level}: {engine.given_up}"
    if engine is not None and engine.facts.left_out and not stats.steps:
        return str(engine.facts.left_out)
    if stats.reason is None:
        return ""
    return f"{'most passes had no guess' if stats.draft_n else 'no guesses'}: {stats.reason.text}"


def kept(stats: Stats) -> dict[str, Any]:
    """Return a reply's numbers as JSON data to store with it; consecutive equal passes are run-length encoded."""
    runs = groupby(stats.steps, lambda each: (each.drafters, each.n_drafted, each.n_accepted, each.n_tokens))
    return {
        "prompt_n": stats.prompt_n,
        "seconds": round(stats.decode_seconds, 4),
        "own_seconds": round(stats.own_seconds, 4),
        "plain_per_second": round(stats.plain_per_second, 2),
        "together": round(stats.replies_per_pass, 2),
        "reason": [stats.reason.code, stats.reason.text] if stats.reason is not None else None,
        "memory_bytes": stats.memory_bytes,
        "passes": [[len(list(run)), *key] for key, run in runs],
        "told": [[each.n_tokens, each.n_drafted, each.n_accepted, each.own_seconds] for each in stats.told],
    }


def stats_of(facts: Mapping[str, Any]) -> Stats:
    """Return the stored numbers of a reply, empty if there are none. Its passes get equal shares of the time."""
    told = facts.get("numbers")
    if not told:
        return Stats()
    n = sum(run[0] for run in told["passes"]) or 1
    seconds, own, together = told["seconds"] / n, told["own_seconds"] / n, told["together"]
    steps = [
        Pass(seconds, tuple(drafters), drafted, accepted, tokens, own_seconds=own, n_together=together)
        for length, drafters, drafted, accepted, tokens in told["passes"]
        for _ in range(length)
    ]
    reason = told["reason"]
    return Stats(
        prompt_n=told["prompt_n"],
        decode_seconds=told["seconds"],
        plain_per_second=told["plain_per_second"],
        steps=steps,
        reason=Reason(*reason) if reason and reason[0] in get_args(Code) else None,
        memory_bytes=told["memory_bytes"],
        told=tuple(Told(*each) for each in told.get("told", ())),
    )


def fitted(summary: Sequence[str], width: int) -> str:
    """Return as many of the numbers, from the first on, as fit into `width` characters."""
    line = ""
    for number in summary:
        longer = f"{line} · {number}" if line else number
        line = longer if len(longer) <= width else line
    return line
