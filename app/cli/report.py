"""A reply's statistics in words, for `--stats`. Knows Stats; prints nothing itself."""

from __future__ import annotations

from runtime.engine.stats import Stats
from runtime.speculative.step import Widths

DISTURBED = 0.15  # share of the time taken by other programs from which on they are mentioned
BAR = 24  # characters of the longest bar


def describe(stats: Stats, fit: str = "", learning: str = "") -> str:
    """Return the report, a line for each fact. `fit`: what was loaded in the free memory; `learning`: the state of a
    head's training.
    """
    rows = [("prompt", prompt(stats)), ("speed", speed(stats))]
    if stats.draft_n:
        rows.append(
            ("accepted", f"{stats.draft_n_accepted} of {stats.draft_n} draft tokens ({stats.acceptance_rate:.0%})")
        )
    if stats.n_passes:
        rows.append(("per target pass", f"{stats.tokens_per_target_pass:.2f} tokens in {stats.n_passes} passes"))
    if stats.told and not stats.draft_n:
        rows.append(("drafts", "not reported by the server that has the model"))
    rows += [] if stats.told else passes(stats)
    if fit and not (stats.reason is not None and stats.reason.text == fit):
        rows.append(("at load", fit))
    if stats.exactness is not None and stats.exactness.tried > 1:
        rows.append(("reproducible", str(stats.exactness) + kept_to(stats)))
    if stats.reason is not None:
        rows.append(("why plain", f"{stats.reason.text} [{stats.reason.code}]"))
    if learning:
        rows.append(("learning", learning))
    return "\n".join([f"{label:>16}  {text}" for label, text in rows] + histogram(stats))


def passes(stats: Stats) -> list[tuple[str, str]]:
    """Return the drafters' passes and draft lengths, and the use of time and memory."""
    other = stats.own_seconds - stats.draft_seconds - stats.verify_seconds
    drafters = ", ".join(f"{name} {n} passes" for name, n in stats.drafters.most_common()).replace("none", "plain")
    times = f"draft {stats.draft_seconds * 1e3:.1f} ms, verify {stats.verify_seconds * 1e3:.1f} ms"
    return [
        ("drafters", drafters),
        ("K used", ", ".join(f"{k}: {n}" for k, n in sorted(stats.k.items()))),
        ("time", f"{times}, other {other * 1e3:.1f} ms"),
        ("memory", f"{stats.memory_bytes / 2**20:.0f} MiB taken, level {stats.memory_level}"),
    ]


def prompt(stats: Stats) -> str:
    """Return the prompt's length and time."""
    cached = f", {stats.cached_n} cached" if stats.cached_n else ""
    return f"{stats.prompt_n} tokens{cached}, {stats.prompt_seconds * 1e3:.0f} ms"


def speed(stats: Stats) -> str:
    """Return tokens per second, compared with plain decode. If the machine was busy, also return the estimated speed
    without other programs.
    """
    if not (stats.decode_seconds and stats.predicted_n):
        return "nothing was decoded"
    if not stats.plain_per_second:
        return f"{stats.predicted_per_second:.1f} tok/s"
    speed = f"{stats.predicted_per_second:.1f} tok/s, {stats.times_plain:.2f} times plain decode"
    if stats.held_up < DISTURBED:
        return f"{speed} ({stats.plain_per_second:.1f} tok/s as measured here)"
    own = stats.predicted_n / stats.own_seconds
    return (
        f"{speed}; other programs took {stats.held_up:.0%} of the time: without them {own:.1f} tok/s, plain "
        f"{stats.plain_per_second:.1f}"
    )


def kept_to(stats: Stats) -> str:
    """Return whether the reply was restricted to exact passes, or how often rounding could have changed a token."""
    if stats.exactness is None or stats.exactness.width >= stats.exactness.tried or stats.widths is Widths.ANY:
        return ""
    if not stats.n_inexact:
        return "; this reply used no wider pass"
    wider = f"{stats.n_inexact} of {stats.n_passes} passes of this reply were wider"
    return f"; {wider}, and {stats.n_near_ties} of {stats.predicted_n} choices were close enough to be changed by that"


def histogram(stats: Stats) -> list[str]:
    """Return the numbers of passes by accepted draft tokens, as bars."""
    if not stats.accepted_lengths:
        return []
    most = max(stats.accepted_lengths.values())
    lines = [f"{'accepted tokens':>16}  passes"]
    for length in range(max(stats.accepted_lengths) + 1):
        n = stats.accepted_lengths[length]
        lines.append(f"{length:>16}  {'█' * round(BAR * n / most)} {n}")
    return lines
