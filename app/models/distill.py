"""`slipstream models distill`: trains a draft for a target on the target's own replies and shows the progress.

Knows the terminal.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import typer
from platformdirs import user_data_path
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from app.chats.database import latest_questions
from app.models.pair import outcome, say, successes, tried, usual_candidates
from app.terminal import Interrupt, gigabytes, print_text
from runtime.core.errors import StoppedError
from runtime.core.outside import NotTextError, expanded, read_plain, text_of
from runtime.engine import Engine, Message, Prompt, Sampling
from runtime.engine.paired import GAIN, remembered
from runtime.engine.pairing import Target, best_of
from runtime.models.registry import load_registry, local_pair
from runtime.training import begun, made_drafts
from runtime.training.collecting import MAX_TOKENS, Stage, collect, is_enough, read_all
from runtime.training.conditions import TrainingError, require_extra
from runtime.training.job import (
    HEAD,
    MODEL,
    Job,
    extended,
    gain,
    most_promising,
    require_memory,
    seconds_of_guess,
    why_no_head,
)
from runtime.training.prompts import from_chats, from_path, neutral, split, to_try
from runtime.training.samples import MAX_TEXT_TOKENS, Sample, not_written

if TYPE_CHECKING:
    from collections.abc import Iterator

YES, NO = "yes", "no"
QUESTION = "Let drafts learn from the questions in your chats? They are read on this machine only and never leave it."
INSTEAD = "Leave out `--from`, or name a text file or folder."
CHATS = "chats"
CONTEXT = 1024  # tokens of context during training
TOO_SHORT = "Its replies are too short to learn from and to measure on. Name a file with other prompts with `--from`."
STARTS_OVER = "Run the same command again: it resumes where it stopped."


def distill(
    name: str, kind: str, source: str, n_tokens: int, n_bytes: int, epochs: int, device: str, threads: int
) -> None:
    """Train a draft, measure it and keep it if it gains. Raises SlipstreamError and Exit."""
    require_extra()
    target = Target(local_pair(name, load_registry()))
    target.pair = replace(target.pair, context=target.pair.context or CONTEXT)
    if why := target.undraftable:
        raise TrainingError(f"Nothing can draft for {target.pair.target.name}: {why}.")
    chosen, lacking = kind, why_no_head(target.facts)
    if lacking and kind in ("", HEAD):
        say(f"{lacking[0].upper()}{lacking[1:]}, so a draft model is trained instead of a head.")
        chosen = MODEL
    learn, apart = map(tuple, split(prompts(source)))
    order = (chosen, CHATS) if source == CHATS else (chosen, *learn, "", *apart)
    job = Job(target.pair.target, chosen, learn, apart, order, n_tokens, n_bytes, epochs, 0, threads, device)
    with Interrupt().watching() as interrupt, begun.alone(job):
        try:
            trained(target, job, lambda: interrupt.pressed)
        except StoppedError:
            say(f"Stopped. The progress so far is kept. {STARTS_OVER}")
            raise typer.Exit(interrupt.code) from None


def trained(target: Target, job: Job, is_cancelled: Callable[[], bool]) -> None:
    """Run the stages one after the other. Raises StoppedError and SlipstreamError."""
    from runtime.training import run

    run.require_device(job.device)
    say(f"Opening {job.target.name}, and measuring what its passes cost here ...")
    is_new = begun.read(job.folder) is None
    plain = target.open(None)
    try:
        passes = target.pass_seconds(plain)
        job, work = begun.resumed(job, lambda: most_promising(target.facts, passes))
        require_memory(target.facts, job.kind)
        if why := job.why_no_room:
            begun.end(job)
            raise TrainingError(why)
        say(told(job, is_new))
        guess = seconds_of_guess(target.facts, job.kind, passes[0])
        with shown(passes, guess) as report:
            collect(job, work, partial(replied, plain, is_cancelled), report, is_cancelled)
            plain.close()
            read_all(job, work, report, is_cancelled)
            if not is_enough(job, work):
                begun.end(job)
                raise TrainingError(TOO_SHORT)
            draft, before, after = run.train(job, work, report, is_cancelled)
    finally:
        plain.close()
    say(f"On held-out prompts {before:.0%} of its first draft tokens were right before, and {after:.0%} now.")
    settle(target, job, draft)
    begun.end(job)


def replied(engine: Engine, is_cancelled: Callable[[], bool], prompt: str, sampling: Sampling) -> Sample:
    """Return the text of a reply. The prompt is shortened until the text has room for a reply."""
    while True:
        asked: Prompt = [Message("user", prompt)] if engine.facts.template else prompt
        ids = engine.encode(asked)
        if len(ids) <= MAX_TEXT_TOKENS // 2 or not prompt:
            break
        prompt = prompt[: len(prompt) // 2]
    chunks = engine.reply(asked, sampling, MAX_TOKENS, cancel=is_cancelled)
    reply = [token for chunk in chunks for token in chunk.tokens]
    return Sample(np.array([*ids, *reply], dtype=np.int32), len(ids))


def told(job: Job, is_new: bool) -> str:
    """Return what is started or resumed, in words."""
    doing = "Training" if is_new else "Continuing to train"
    what = {HEAD: "a head", MODEL: "a draft model"}.get(job.kind, f"{job.kind.title()} heads")
    return (
        f"{doing} {what} for {job.target.name} on {job.most_tokens:,} "
        f"tokens of its own replies to {len(job.prompts)} prompts; {len(job.apart)} are held out. At most "
        f"{gigabytes(job.n_bytes)} are kept in {job.folder} meanwhile."
    )


def settle(target: Target, job: Job, draft: Path) -> None:
    """Try the draft, and the one that was kept before, as `models pair` does, on held-out prompts; keep the better."""
    target.prompts = to_try(job.apart)
    with closing(target.open(None)) as plain:
        trials = {each: tried(target, plain, each) for each in (draft, remembered(job.target)) if each}
    measured = successes(trials)
    if best_of(measured) != draft:
        names = {draft: "It"} | {each: f"{each.name}, which was kept before" for each in trials if each != draft}
        found = "; ".join(f"{names[each]}: {outcome(trial)}" for each, trial in trials.items())
        costs = measured[draft].costs if draft in measured else ""
        print_text(f"Not kept. {found}. {GAIN} times the speed is required{costs and f', and {costs}'}.")
        return
    try:
        path = made_drafts.moved(job.target, job.kind, draft)
    except OSError as error:
        raise not_written(draft.parent, error) from error
    target.keep({path: measured[draft]}, usual_candidates(job.target))
    print_text(f"Kept: {path} drafts for {job.target.name}, {measured[draft].ratio:.2f} times as fast as without it.")


def prompts(source: str) -> list[str]:
    """Return the prompts for the target. Raises TrainingError."""
    if source == CHATS:
        ask_once()
        return from_chats(latest_questions())
    return from_path(expanded(Path(source))) if source else neutral()


@contextmanager
def shown(passes: list[float], guess: float) -> Iterator[Callable[[Stage], None]]:
    """Show a bar for each stage, or a line without a terminal."""
    console = Console(stderr=True, highlight=False)
    columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[note]}"), TimeElapsedColumn()
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        bars: dict[str, TaskID] = {}

        def report(stage: Stage) -> None:
            if stage.what not in bars:
                bars[stage.what] = progress.add_task(stage.what, total=stage.total, note="")
                if not console.is_terminal:
                    say(f"{stage.what[0].upper()}{stage.what[1:]} ...")
            progress.update(bars[stage.what], completed=stage.done)
            seconds = next(task.time_remaining for task in progress.tasks if task.id == bars[stage.what])
            progress.update(bars[stage.what], note=noted(stage, seconds, passes, guess))

        yield report


def noted(stage: Stage, seconds: float | None, passes: list[float], guess: float) -> str:
    """Return the numbers next to a bar. `seconds`: the remaining time, if known; a training reports its own."""
    if not stage.right:
        return f"{stage.done:,} of {stage.total:,}" + (f", {left(seconds)}" if seconds else "")
    faster = gain(extended(stage.right, len(passes)), guess, passes)
    return (
        f"loss {stage.loss:.2f}, {stage.right[0]:.0%} of first tokens right, {left(stage.seconds_left)}, "
        f"{faster:.2f} times as fast expected"
    )


def left(seconds: float) -> str:
    """Return a remaining time in words."""
    return f"{seconds:.0f} s left" if seconds < 100 else f"{seconds / 60:.0f} min left"


def answer_file() -> Path:
    """Return the file that stores the answer."""
    return user_data_path("slipstream") / "drafts-learn-from-chats"


def answer() -> str:
    """Return the stored answer. "" if there is none."""
    with suppress(OSError, NotTextError):
        text = text_of(read_plain(answer_file())).strip()
        return text if text in (YES, NO) else ""
    return ""


def ask_once() -> None:
    """Ask unless there is an answer. Raises TrainingError if drafts may not learn from chats."""
    given = answer()
    if not given:
        if not sys.stdin.isatty():
            raise TrainingError(
                "Whether drafts may learn from your chats can only be asked on a terminal: run this command there "
                "once, or leave out `--from`."
            )
        given = YES if typer.confirm(QUESTION, err=True) else NO
        answer_file().parent.mkdir(0o700, parents=True, exist_ok=True)
        answer_file().touch(0o600)
        answer_file().write_text(given)
    if given == NO:
        raise TrainingError(
            f"Nothing is learned from your chats, as you answered. {INSTEAD} To be asked again, remove {answer_file()}."
        )
