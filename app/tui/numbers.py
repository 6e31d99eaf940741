"""The numbers of a reply, during it and afterwards, as short texts.

Knows the engine's Stats, whose definitions apply to every number shown; knows no widgets and calls no engine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, get_args

from runtime.core.drafter import NO_DRAFTER
from runtime.drafters.registry import described
from runtime.engine import Engine
from runtime.engine.stats import ELSEWHERE, RemoteCounts, Stats, reasons, skipped
from runtime.speculative.control.explain import Explanation, Pass
from runtime.speculative.control.reasons import Code, Reason

ALIKE = 0.05  # deviation of a ratio from 1, up to which two speeds count as the same
DRAFTED = 0.1  # share of passes with drafts, below which a reply is not compared with plain decode
LEAST = 40  # tokens, below which a ratio is not meaningful
FEWEST = 20  # draft tokens or passes, below which no rate and no reason is meaningful
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
    return 2 * stats.drafters["none"] > stats.n_passes >= FEWEST


def times(stats: Stats) -> float | None:
    """Return the speed relative to plain decode; None if that is unknown, after too few tokens or guesses, or if other
    programs disturbed the measurement.

    Plain passes count as what they are, so that noise in their times is no gain and no loss. The tokens of passes with
    drafts are compared with the time that plain passes would have taken for them.
    """
    is_fair = stats.predicted_n >= LEAST and stats.held_up < DISTURBED
    if not is_fair or stats.draft_n < FEWEST or not (stats.plain_per_second and stats.own_seconds):
        return None
    if stats.told:  # another server reports sums alone
        return stats.times_plain
    drafted = [each for each in stats.steps if each.n_drafted]
    if len(drafted) < DRAFTED * stats.n_passes:
        return None
    plain_seconds = sum(each.n_tokens for each in drafted) / stats.plain_per_second
    gained = plain_seconds - sum(each.own_seconds for each in drafted)
    return min(1 + gained / stats.own_seconds, stats.tokens_per_target_pass)


def acceptance(stats: Stats) -> float | None:
    """Return the acceptance rate; None after too few draft tokens."""
    return stats.acceptance_rate if stats.draft_n >= FEWEST else None


def guesses_per_pass(stats: Stats) -> float:
    """Return the mean number of draft tokens per pass; 0 after too few draft tokens."""
    return stats.draft_n / stats.n_passes if stats.n_passes and stats.draft_n >= FEWEST else 0.0


def sources(stats: Stats) -> Counter[str]:
    """Return the number of passes by the drafters' descriptions."""
    counts: Counter[str] = Counter()
    for name, n in stats.drafters.items():
        if name not in ("none", ELSEWHERE):
            counts[described(name)] += n
    return counts


def is_elsewhere(stats: Stats) -> bool:
    """Return whether another server runs the passes; it may report only some of the numbers."""
    return bool(stats.told) or stats.drafters[ELSEWHERE] > 0


def rate(stats: Stats) -> str:
    """Return the tokens per second."""
    return f"{stats.predicted_per_second:.0f} tok/s"


def speed(stats: Stats) -> list[str]:
    """Return the tokens per second, and their ratio to plain decode where that is news."""
    ratio = times(stats)
    is_news = ratio is not None and abs(ratio - 1) > ALIKE
    return [rate(stats), f"{ratio:.1f} times as fast"] if is_news else [rate(stats)]


def usage(stats: Stats, n_ctx: int) -> list[str]:
    """Return how much of the context and of memory is used."""
    is_known = stats.prompt_n or not is_elsewhere(stats)  # another server may not report the prompt length
    told = [f"context {stats.prompt_n + stats.predicted_n}/{n_ctx}"] if is_known and stats.predicted_n else []
    return told + ([f"{stats.memory_bytes / 2**20:.0f} MiB"] if stats.memory_bytes else [])


def by_pass(stats: Stats) -> list[str]:
    """Return the tokens and the draft tokens per pass; none if there were hardly any draft tokens."""
    if not (guesses := round(guesses_per_pass(stats), 1)):
        return []
    return [f"Written at once: {stats.tokens_per_target_pass:.1f}", f"Guessed ahead: {guesses:.1f}"]


def line(stats: Stats) -> str:
    """Return the numbers that are kept below the reply."""
    return " · ".join(speed(stats)) if stats.predicted_n else ""


def sentence(stats: Stats, engine: Engine | None) -> str:
    """Return a fault: drafters dropped for lack of memory, a missing part of the pair, or a drafter that failed."""
    if engine is not None and engine.status.given_up:
        return f"memory is short: {engine.status.given_up}"
    if engine is not None and engine.facts.faults and not stats.steps:
        return str(engine.facts.faults)
    return stats.reason.text if stats.reason is not None and stats.reason.code == "draft-error" else ""


def facts_of(stats: Stats) -> dict[str, Any]:
    """Return the facts to store with a reply: its numbers below it, for this program, and for people."""
    return {"line": line(stats), "numbers": kept(stats), "measured": measured(stats)}


def kept(stats: Stats) -> dict[str, Any]:
    """Return a reply's numbers as JSON data to store with it; consecutive equal passes are run-length encoded."""
    runs = groupby(stats.steps, lambda each: ([each.drafter], each.n_drafted, each.n_accepted, each.n_tokens))
    return {
        "prompt_n": stats.prompt_n,
        "seconds": round(stats.decode_seconds, 4),
        "own_seconds": round(stats.own_seconds, 4),
        "plain_per_second": round(stats.plain_per_second, 2),
        "together": round(stats.replies_per_pass, 2),
        "reason": [stats.reason.code, stats.reason.text] if stats.reason is not None else None,
        "memory_bytes": stats.memory_bytes,
        "passes": [[len(list(run)), *key] for key, run in runs],
        "guess_seconds": guess_seconds(stats),
        "drafted_seconds": round(sum(each.own_seconds for each in stats.steps if each.n_drafted), 4),
        "unguessed": unguessed(stats),
        "told": [[each.n_tokens, each.n_drafted, each.n_accepted, each.own_seconds] for each in stats.told],
    }


def unguessed(stats: Stats) -> list[tuple[str, int]]:
    """Return why passes had no guess and how often, as far as they were traced."""
    whys = [each.why for each in stats.steps if each.why]
    return [*reasons(whys), *skipped(whys)]


def guess_seconds(stats: Stats) -> dict[str, float]:
    """Return the mean seconds of a draft token, by drafters."""
    drafted = [each for each in stats.steps if each.n_drafted]
    totals = {each.drafter: Stats(steps=[one for one in drafted if one.drafter == each.drafter]) for each in drafted}
    return {drafter: round(own.draft_seconds / own.draft_n, 7) for drafter, own in totals.items()}


def measured(stats: Stats) -> dict[str, Any]:
    """Return a reply's numbers for people and programs, such as an export."""
    return {
        "prompt_tokens": stats.prompt_n,
        "tokens": stats.predicted_n,
        "passes": stats.n_passes,
        "tokens_per_second": round(stats.predicted_per_second, 2),
        "plain_tokens_per_second": round(stats.plain_per_second, 2),
        "drafted": stats.draft_n,
        "accepted": stats.draft_n_accepted,
        "prompt_seconds": round(stats.prompt_seconds, 3),
        "decode_seconds": round(stats.decode_seconds, 3),
    }


def stats_of(facts: Mapping[str, Any]) -> Stats:
    """Return the stored numbers of a reply, empty if there are none. Its passes with drafts get equal shares of their
    time, and so do those without.
    """
    told = facts.get("numbers")
    if not told:
        return Stats()
    n_passes = sum(run[0] for run in told["passes"]) or 1
    n_drafted = sum(length for length, _, k, *_ in told["passes"] if k)
    own, together = told["own_seconds"], told["together"]
    drafted = told.get("drafted_seconds", own * n_drafted / n_passes)
    shares = (own - drafted) / max(1, n_passes - n_drafted), drafted / max(1, n_drafted)
    guess, held_up = told.get("guess_seconds", {}), told["seconds"] / own if own else 1.0
    steps = [
        Pass(shares[k > 0] * held_up, drafter, k, right, n, guess.get(drafter, 0.0) * k, 0.0, shares[k > 0], together)
        for length, names, k, right, n in told["passes"]
        for drafter in ["+".join(names) or NO_DRAFTER] * length
    ]
    reason = told["reason"]
    return Stats(
        prompt_n=told["prompt_n"],
        decode_seconds=told["seconds"],
        plain_per_second=told["plain_per_second"],
        steps=steps,
        reason=Reason(*reason) if reason and reason[0] in get_args(Code) else None,
        memory_bytes=told["memory_bytes"],
        told=tuple(RemoteCounts(*each) for each in told.get("told", ())),
    )


def reasons_of(facts: Mapping[str, Any]) -> list[tuple[str, int]]:
    """Return the stored reasons why passes of a reply had no guess, with counts."""
    return [(str(text), int(n)) for text, n in (facts.get("numbers") or {}).get("unguessed", ())]


def fitted(summary: Sequence[str], width: int) -> str:
    """Return as many of the numbers, from the first on, as fit into `width` characters."""
    line = ""
    for number in summary:
        longer = f"{line} · {number}" if line else number
        line = longer if len(longer) <= width else line
    return line
