"""The numbers of replies in words: for `--stats`, and a trace, which `--trace` writes and `slipstream trace` sums up.

Rich is imported where it is used: it would delay each reply by 40 ms.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from app.cli.choices import read_file
from app.terminal import inert
from runtime.core.outside import expanded
from runtime.engine.stats import Stats, reasons, skipped
from runtime.engine.trace import TracedPass, TraceError, TraceFile, read
from runtime.models.registry import Pair
from runtime.speculative.step import Widths

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

WIDTH = 120  # columns, if the output is not a terminal
COLUMNS = "passes", "drafted", "accepted", "acceptance", "tokens per pass", "draft ms", "target ms", "rest ms"
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
    rows += [] if stats.told else pass_rows(stats)
    if fit and not (stats.reason is not None and stats.reason.text == fit):
        rows.append(("at load", fit))
    if stats.exactness is not None and stats.exactness.tried > 1:
        rows.append(("reproducible", str(stats.exactness) + kept_to(stats)))
    if stats.reason is not None:
        rows.append(("why plain", f"{stats.reason.text} [{stats.reason.code}]"))
    if learning:
        rows.append(("learning", learning))
    return "\n".join([f"{label:>16}  {text}" for label, text in rows] + histogram(stats))


def pass_rows(stats: Stats) -> list[tuple[str, str]]:
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


@contextmanager
def trace_to(path: Path | None, pair: Pair) -> Iterator[TraceFile | None]:
    """Open the file for passes until the block ends, or yield None without a path. Raises TraceError, and BadParameter
    for a remote model.
    """
    if path is None:
        yield None
        return
    if pair.upstream:
        raise typer.BadParameter(
            f"{pair.upstream} has the model and reports nothing about its passes. Leave it out.", param_hint="'--trace'"
        )
    with closing(TraceFile(expanded(path))) as file:
        yield file


def show_trace(path: Path) -> None:
    """Print the summary of a trace. Raises TraceError for an invalid file."""
    from rich.text import Text

    text = read_file(path)
    if not text.strip():
        raise TraceError(f"{path} is empty: no reply was generated with it. Ask something with --trace {path}")
    passes = read(text.removesuffix("\n").split("\n"), str(path))
    out = console()
    out.print(trace_table(passes))
    for line in sentences(passes):
        out.print(Text(inert(line)), soft_wrap=True)


def console() -> Console:
    """Return a console for standard output, of a fixed width if that is not a terminal."""
    from rich.console import Console

    made = Console(highlight=False)
    return made if made.is_terminal else Console(highlight=False, width=WIDTH)


def trace_table(passes: Sequence[TracedPass]) -> Table:
    """Return a row for each drafter, most passes first: passes, acceptance and times."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    made = Table(box=box.SIMPLE_HEAD, padding=(0, 1))
    made.add_column("drafter")
    for name in COLUMNS:
        made.add_column(name, justify="right")
    counts = Counter(each.made.drafter for each in passes)
    for name, _ in counts.most_common():
        steps = [each.made for each in passes if each.made.drafter == name]
        made.add_row(Text(inert("plain" if name == "none" else name)), *cells(Stats(steps=steps)))
    if len(counts) > 1:
        made.add_row("all", *cells(total(passes)))
    return made


def cells(stats: Stats) -> list[str]:
    """Return the cells of a row, in the order of COLUMNS."""
    rest = stats.own_seconds - stats.draft_seconds - stats.verify_seconds
    drafted = [f"{stats.draft_n}", f"{stats.draft_n_accepted}", f"{stats.acceptance_rate:.0%}"]
    parts = [f"{1e3 * seconds:.1f}" for seconds in (stats.draft_seconds, stats.verify_seconds, rest)]
    return [
        f"{stats.n_passes}",
        *(drafted if stats.draft_n else [""] * 3),
        f"{stats.tokens_per_target_pass:.2f}",
        *parts,
    ]


def total(passes: Sequence[TracedPass]) -> Stats:
    """Return the statistics of all replies together. The time of plain decode is each reply's last estimate."""
    rates = {each.sequence: each.why.plain_per_second for each in passes}
    plain_seconds = sum(each.made.n_tokens / rate for each in passes if (rate := rates[each.sequence]))
    steps = [each.made for each in passes]
    found = Stats(steps=steps, decode_seconds=sum(each.seconds for each in steps))
    found.plain_per_second = found.predicted_n / plain_seconds if plain_seconds else 0.0
    return found


def sentences(passes: Sequence[TracedPass]) -> list[str]:
    """Return the number of replies, their speed, and why passes were plain."""
    stats, n_replies = total(passes), len({each.sequence for each in passes})
    lines = [f"{n_replies} repl{'y' if n_replies == 1 else 'ies'}, {stats.predicted_n} tokens: {speed(stats)}"]
    if stats.replies_per_pass > 1:
        lines.append("A pass shared by several replies is counted, with its time, for each of them.")
    whys = [each.why for each in passes]
    lines += [f"{n:>6} plain: {reason}" for reason, n in reasons(whys)]
    return lines + [f"{n:>6} {text}" for text, n in skipped(whys)]
