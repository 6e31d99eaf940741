"""Consent to train drafts on a user's chats: asked once on a terminal, and remembered either way."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

import typer
from platformdirs import user_data_path

from runtime.core.outside import NotTextError, text_of
from runtime.models.plain_file import read_plain
from runtime.training.extra import TrainingError

YES, NO = "yes", "no"
QUESTION = "Let drafts learn from the questions in your chats? They are read on this machine only and never leave it."
INSTEAD = "Leave out `--from`, or name a text file or folder."


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
