"""`slipstream trace FILE`: sums up a trace in a table and a few sentences.

Knows rich; the numbers are those of `--stats`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from app.cli.choices import read_file
from app.cli.report import speed
from app.terminal import inert
from runtime.engine.stats import Stats, reasons, skipped
from runtime.engine.trace import TracedPass, TraceError, read

WIDTH = 120  # columns, if the output is not a terminal
COLUMNS = "passes", "drafted", "accepted", "acceptance", "tokens per pass", "draft ms", "target ms", "rest ms"


def show(path: Path) -> None:
    """Print the summary of a trace. Raises TraceError for an invalid file."""
    text = read_file(path)
    if not text.strip():
        raise TraceError(f"{path} is empty: no reply was generated with it. Ask something with --trace {path}")
    passes = read(text.removesuffix("\n").split("\n"), str(path))
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=WIDTH)
    console.print(table(passes))
    for line in sentences(passes):
        console.print(Text(inert(line)), soft_wrap=True)


def table(passes: Sequence[TracedPass]) -> Table:
    """Return a row for each drafter, most passes first: passes, acceptance and times."""
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
