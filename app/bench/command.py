"""`slipstream bench`: loads, measures with a progress bar and a time estimate, prints, writes the report.

Knows the terminal; leaves options to plan.py and app/cli.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import typer
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from app.bench.engines import Engines
from app.bench.facts import Facts
from app.bench.plan import Plan
from app.bench.plots import plots
from app.bench.results import Results
from app.bench.runs import WARM_UP, Runs
from app.bench.words import TableRow, as_json, headlines, kinds, rows, verdict
from app.terminal import Interrupt, print_json, print_note
from runtime.engine import Options
from runtime.models.registry import Pair

WIDTH = 120  # columns, if the output is not a terminal
LONG = 600  # seconds from which on a shorter plan is suggested


@dataclass(frozen=True, slots=True)
class Files:
    """The files for results that the terminal does not show."""

    html: Path | None
    json: Path | None

    def check(self) -> None:
        """Raises BadParameter for a file that cannot be written, before the long run."""
        for path, option in ((self.html, "'--html'"), (self.json, "'--json'")):
            if path is not None and not is_writable(path):
                text = f"{path} cannot be written. Name a file in a folder that exists and that you may write to."
                raise typer.BadParameter(text, param_hint=option)


def is_writable(path: Path) -> bool:
    """Return whether the file can be changed or created."""
    return not path.is_dir() and path.parent.is_dir() and os.access(path if path.exists() else path.parent, os.W_OK)


def run(pair: Pair, options: Options, plan: Plan, files: Files) -> int:
    """Measure and print. Returns the exit code."""
    files.check()
    interrupt = Interrupt()
    with interrupt.watching():
        results = measure(pair, options, plan, interrupt)
    facts = Facts.of(pair, options, plan)
    summary = as_json(results, facts)
    try:
        if results.samples:
            show(results)
        else:
            print_note("slipstream: interrupted before anything was measured")
        print_json(summary)
    finally:  # last, so that a full disk does not affect the terminal, and also after a broken pipe
        write(files, results, facts, summary)
    return interrupt.code if results.is_interrupted else int(results.n_different > 0)


def measure(pair: Pair, options: Options, plan: Plan, interrupt: Interrupt) -> Results:
    """Run all rounds, or those before an interrupt."""
    console = Console(stderr=True, highlight=False)
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with (
        Engines(pair, options, plan.ways, lambda: not interrupt.pressed) as engines,
        Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress,
    ):
        runs = Runs(engines, plan, lambda: interrupt.pressed)
        with suppress(KeyboardInterrupt):  # interrupted while a model was loading
            make_rounds(runs, progress)
        runs.results.is_interrupted = interrupt.pressed
        return runs.results


def make_rounds(runs: Runs, progress: Progress) -> None:
    """Run the warm-up, print an estimate, and run the rounds that count."""
    n_tasks = len(runs.tasks())
    bar = progress.add_task("Loading", total=(runs.plan.runs + 1) * n_tasks)
    for number in range(WARM_UP, runs.plan.runs + 1):
        began, loading = time.perf_counter(), runs.engines.seconds
        for i, task in enumerate(runs.round(number)):
            what = f"{f'Round {number}' if number else 'Warming up'}: {task.way.name}, {task.cell}"
            progress.update(bar, description=what, completed=number * n_tasks + i)
        if number == WARM_UP and not runs.is_cancelled():
            seconds = time.perf_counter() - began - (runs.engines.seconds - loading if runs.engines.all_fit else 0.0)
            progress.console.print(estimate(seconds * runs.plan.runs, runs.plan), soft_wrap=True)


def estimate(seconds: float, plan: Plan) -> str:
    """Return the expected duration in words, before the rounds that count."""
    n_minutes, n_seconds = divmod(round(seconds), 60)
    about = f"{n_minutes} min {n_seconds} s" if n_minutes else f"{n_seconds} s"
    shorter = " `--quick` measures less." if seconds > LONG else ""
    n_replies = plan.runs * plan.n_prompts * len(plan.cells) * len(plan.ways)
    return f"About {about} for {n_replies:,} replies; Ctrl+C ends it with the results so far.{shorter}"


def write(files: Files, results: Results, facts: Facts, summary: dict[str, Any]) -> None:
    """Write the report, and the JSON object with the numbers of every reply."""
    if files.html is not None:
        files.html.write_text(page(results, facts), encoding="utf8")
    if files.json is not None:
        samples = [asdict(sample) for sample in results.samples]
        files.json.write_text(json.dumps({**summary, "replies": samples}, ensure_ascii=False) + "\n", encoding="utf8")


def page(results: Results, facts: Facts) -> str:
    """Return the whole document."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    temperatures = dict.fromkeys(cell.temperature for cell in results.cells)
    return environment.get_template("report.html").render(
        results=results,
        facts=facts,
        headlines=headlines(results),
        tables=[
            {"temperature": each, "kinds": kinds(results, each), "rows": rows(results, each)} for each in temperatures
        ],
        plots=[{"title": plot.title, "caption": plot.caption, "svg": Markup(plot.svg)} for plot in plots(results)],
        verdict=verdict(results),
    )


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
