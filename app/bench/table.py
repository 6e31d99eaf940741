"""A benchmark's results on a terminal: a table per temperature and a few sentences. Knows rich and words.py."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from app.bench.results import Results
from app.bench.words import TableRow, headlines, kinds, rows, verdict

WIDTH = 120  # columns, if the output is not a terminal


def show(results: Results) -> None:
    """Print all results on standard output."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=WIDTH)
    for temperature in dict.fromkeys(cell.temperature for cell in results.cells):
        console.print(table(results, temperature))
    for headline in headlines(results):
        console.print(f"{headline.number:>8} {headline.text}", soft_wrap=True)
    console.print(f"{'':>8} {verdict(results)}", soft_wrap=True)


def table(results: Results, temperature: float) -> Table:
    """Return a table with a row for each configuration and a column for each kind of text."""
    title = f"temperature {temperature:g}{', with a seed' if temperature else ''}; by kind: times plain"
    made = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold", padding=(0, 1))
    made.add_column("setting")
    for name in ("tok/s", "times plain", *kinds(results, temperature)):
        made.add_column(name, justify="right")
    for row in rows(results, temperature):
        made.add_row(row.way, row.speed, row.ratio, *marked(row))
    return made


def marked(row: TableRow) -> list[Text]:
    """Return the cells of a row, the fastest of each kind highlighted."""
    return [
        Text(text, style="bold green" if is_best else "")
        for text, is_best in zip(row.by_kind, row.is_best, strict=True)
    ]
