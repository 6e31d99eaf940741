"""`slipstream models distill`: trains a draft for a target on the target's own replies, and shows how that goes.

Knows the terminal, and whether this person lets a draft learn from their chats.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from platformdirs import user_data_path
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from app.chats.said import latest_questions
from app.models.info import gigabytes
from app.models.pair import say, usual_candidates
from app.terminal import inert
from runtime.core.errors import StoppedError
from runtime.models.registry import load_registry, local_pair
from runtime.tools.pairing import GAIN, Target, Trial, remembered
from runtime.training.extra import TrainingError, require_extra
from runtime.training.job import (
    HEAD,
    MODEL,
    Job,
    most_promising,
    require_memory,
    seconds_of_guess,
    why_no_head,
)
from runtime.training.prompts import from_path, neutral, split
from runtime.training.verdict import break_even, extended, gain, why_not

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runtime.training.run import Stage

CHATS = "chats"
INTERRUPTED = 130
CONTEXT = 1024  # tokens, while a draft learns
STARTS_OVER = "Give the same command again: it goes on where it was."


def distill(
    name: str, kind: str, source: str, n_tokens: int, n_bytes: int, epochs: int, device: str, threads: int
) -> None:
    """Trains, measures, keeps what gains; raises SlipstreamError and Exit."""
    require_extra()
    target = Target(local_pair(name, load_registry()))
    target.pair = replace(target.pair, context=target.pair.context or CONTEXT)
    if why := target.undraftable:
        raise TrainingError(f"Nothing can draft for {target.pair.target.name}: {why}.")
    chosen, lacking = kind, why_no_head(target.facts)
    if lacking and kind != MODEL:
        say(f"{lacking[0].upper()}{lacking[1:]}, so a draft model is trained instead of a head.")
        chosen = MODEL
    learn, apart = split(prompts(source))
    with flagged() as is_cancelled:
        try:
            model, sought = target.pair.target, chosen or HEAD
            job = Job(model, sought, tuple(learn), tuple(apart), n_tokens, n_bytes, epochs, 0, threads, device)
            trained(target, job, chosen, is_cancelled)
        except StoppedError:
            say(f"Stopped, and what was learned so far is kept. {STARTS_OVER}")
            raise typer.Exit(INTERRUPTED) from None


def trained(target: Target, job: Job, kind: str, is_cancelled: Callable[[], bool]) -> None:
    """Runs the parts, one after the other. Raises StoppedError, SlipstreamError."""
    from runtime.training import run

    plain = target.open(None)
    try:
        passes = target.pass_seconds(plain)
        job = replace(job, kind=kind or most_promising(target.facts, passes))
        require_memory(target.facts, job.kind)
        say(
            f"Training a {'head' if job.kind == HEAD else 'draft model'} for {job.target.name} on {job.most_tokens:,} "
            f"tokens of its own replies to {len(job.prompts)} prompts; {len(job.apart)} are held out. At most "
            f"{gigabytes(job.n_bytes)} are kept in {job.folder} meanwhile."
        )
        guess = seconds_of_guess(target.facts, job.kind, passes[0])
        with shown(passes, guess) as report:
            run.collect(job, plain, report, is_cancelled)
            plain.close()
            run.read_all(job, report, is_cancelled)
            path, before, after = run.train(job, report, is_cancelled)
    finally:
        plain.close()
    judge(target, job, path, (before, after), (guess, passes))
    run.clean_up(job)


def judge(
    target: Target, job: Job, path: Path, right: tuple[tuple[float, ...], ...], costs: tuple[float, list[float]]
) -> None:
    """Measures the draft with the real controller on held-out prompts, and keeps it if it gains."""
    without, kept = remembered(job.target), False
    plain = target.open(without)
    try:
        trial: Trial = target.try_out(plain, path, job.apart[:8])
    finally:
        plain.close()
    say(f"On held-out prompts {right[0][0]:.0%} of its first guesses were right before, and {right[1][0]:.0%} are now.")
    try:
        if kept := trial.gain >= GAIN:
            target.keep({path: trial}, usual_candidates(job.target))
            print(
                f"Kept: {inert(str(path))} drafts for {job.target.name}, {trial.gain:.2f} times as fast as without it."
            )
        else:
            print(f"Not kept. {why_not(*costs, right[1][0], trial.gain)}")
    finally:
        if not kept:
            path.unlink(missing_ok=True)


def prompts(source: str) -> list[str]:
    """What the target is asked. Raises TrainingError."""
    if source == CHATS:
        ask_once()
        found = latest_questions()
        if not found:
            raise TrainingError(
                "There are no chats to learn from yet. Leave out `--from`, or name a text file or folder."
            )
        return found
    return from_path(Path(source).expanduser()) if source else neutral()


def consent() -> Path:
    """The file that says that drafts may learn from this person's chats."""
    return user_data_path("slipstream") / "drafts-learn-from-chats"


def ask_once() -> None:
    """Asks whether a draft may learn from chats, if that was never allowed. Raises TrainingError."""
    if consent().exists():
        return
    if not sys.stdin.isatty() or not typer.confirm(
        "Let drafts learn from the questions in your chats? They are read on this machine alone and never leave it.",
        err=True,
    ):
        raise TrainingError("Nothing is learned from your chats. Leave out `--from`, or name a text file or folder.")
    consent().parent.mkdir(parents=True, exist_ok=True)
    consent().touch(0o600)


@contextmanager
def flagged() -> Iterator[Callable[[], bool]]:
    """Ctrl+C raises a flag, so that a step is never broken off in its middle; the second one is not waited for."""
    raised: list[int] = []

    def heed(number: int, _: object) -> None:
        if raised:
            raise KeyboardInterrupt
        raised.append(number)

    before = signal.signal(signal.SIGINT, heed)
    try:
        yield lambda: bool(raised)
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def shown(passes: list[float], guess: float) -> Iterator[Callable[[Stage], None]]:
    """A bar for each part; without a terminal, a line."""
    console = Console(stderr=True, highlight=False)
    columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[note]}"), TimeElapsedColumn()
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        bars: dict[str, int] = {}

        def report(stage: Stage) -> None:
            if stage.what not in bars:
                bars[stage.what] = progress.add_task(stage.what, total=stage.total, note="")
                if not console.is_terminal:
                    say(f"{stage.what[0].upper()}{stage.what[1:]} ...")
            note = noted(stage, passes, guess)
            progress.update(bars[stage.what], completed=stage.done, note=note)  # type: ignore[arg-type]

        yield report


def noted(stage: Stage, passes: list[float], guess: float) -> str:
    """Numbers beside a bar."""
    if stage.told is None:
        return f"{stage.done:,} of {stage.total:,}"
    told = stage.told
    faster = gain(extended(told.right, len(passes)), guess, passes)
    return (
        f"loss {told.loss:.2f}, {told.right[0]:.0%} of first guesses right, {told.seconds_left / 60:.0f} min left, "
        f"{faster:.2f} times as fast expected (pays from {min(1.0, break_even(guess, passes)):.0%})"
    )
