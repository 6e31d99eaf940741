"""`slipstream bench`: loads, measures with a progress bar and a time estimate, prints, writes the report.

Knows the terminal; leaves options to bench_plan.py and main.py.
"""

from __future__ import annotations

import json
import platform
import time
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

import psutil
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from app.cli.bench_plan import Plan
from app.cli.bench_report import page, show
from app.cli.bench_results import Results, as_json
from app.cli.bench_runs import WARM_UP, Engines, Runs
from app.terminal import Interrupt, print_json, print_message
from runtime.core.cores import n_cores
from runtime.engine import Options, machine
from runtime.models.registry import Pair

LONG = 600  # seconds from which on a shorter plan is suggested


def run(pair: Pair, options: Options, plan: Plan, html: Path | None, json_file: Path | None) -> int:
    """Measure and print, and write the report and the numbers to these files. Returns the exit code."""
    interrupt = Interrupt()
    with interrupt.watching():
        results = measure(pair, options, plan, interrupt)
    facts = conditions(pair, options, plan)
    summary = {"bench": "slipstream", **facts, **as_json(results)}
    try:
        if results.samples:
            show(results)
        else:
            print_message("interrupted before anything was measured")
        print_json(summary)
    finally:  # last, so that a full disk does not affect the terminal, and also after a broken pipe
        if html is not None:
            html.write_text(page(results, facts), encoding="utf8")
        if json_file is not None:
            replies = [asdict(sample) for sample in results.samples]
            json_file.write_text(
                json.dumps({**summary, "replies": replies}, ensure_ascii=False) + "\n", encoding="utf8"
            )
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


def conditions(pair: Pair, options: Options, plan: Plan) -> dict[str, str]:
    """Return the conditions of a benchmark in words: machine, versions, models, settings."""
    versions = machine.versions()
    memory = f"{psutil.virtual_memory().total / 2**30:.0f} GiB"
    return {
        "machine": f"{machine.processor()}, {n_cores()} cores, {memory}",
        "system": f"{platform.system()} {platform.release()}",
        "versions": f"slipstream {versions['slipstream']}, llama-cpp-python {versions['llama-cpp-python']}, "
        f"Python {versions['python']}",
        "target": describe_file(pair.target),
        "draft": describe_file(pair.draft) if pair.draft and "model" in plan.drafters else "none",
        "settings": settings(options, plan),
        "date": f"{datetime.now():%Y-%m-%d %H:%M}",
    }


def describe_file(path: Path) -> str:
    """Return a file's name and size."""
    return f"{path.name}, {path.stat().st_size / 1e6:,.1f} MB"


def settings(options: Options, plan: Plan) -> str:
    """Return the size of a round, and the options that were not left to measurement."""
    rounds = (
        f"{plan.runs} rounds of {plan.n_prompts} prompt{'s' * (plan.n_prompts > 1)} per kind, up to {plan.max_tokens} "
        "tokens each"
    )
    given = [
        f"context {options.n_ctx}" if options.n_ctx else "",
        f"threads {options.threads}" if options.threads else "threads by measurement",
        "exact kernels" if options.exact else "",
    ]
    return ", ".join([rounds, *filter(None, given)])
