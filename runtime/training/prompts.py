"""Prompts for a target whose replies a draft learns from: a person's prompts, texts, or a neutral set.

Knows texts and files; the caller supplies the text of chats.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path

from runtime.core import outside
from runtime.training.conditions import TrainingError

NEUTRAL = Path(__file__).with_name("neutral.txt")  # a prompt per line
APART = 8  # 1/n of the prompts is held out
MAX_PROMPT, MIN_PROMPT = 1200, 8  # characters of a prompt
N_TRIED, TRIED_CHARACTERS = 8, 300  # held-out prompts that a draft is tried with, at most; and characters of one
KINDS = (".txt", ".md", ".rst", ".py")
LARGEST = 2**24  # bytes read from a file, at most


def neutral() -> list[str]:
    """Return prompts that come from no chat."""
    return [line for line in NEUTRAL.read_text(encoding="utf8").splitlines() if line]


def from_path(path: Path) -> list[str]:
    """Return the paragraphs of a file, or of the text files in a folder, as prompts. Raises TrainingError."""
    files = sorted(each for each in path.rglob("*") if each.suffix in KINDS) if path.is_dir() else [path]
    found = distinct(prompt for file in files for prompt in paragraphs(text_of(file)))
    if not found:
        raise TrainingError(f"{path} has no paragraphs of text. Name a text file or a folder with some.")
    return found


def from_chats(questions: Iterable[str]) -> list[str]:
    """Return the beginnings of a person's questions. Raises TrainingError if there are none."""
    found = distinct(question.strip()[:MAX_PROMPT] for question in questions)
    if not found:
        raise TrainingError("There are no chats to learn from yet. Leave out `--from`, or name a text file or folder.")
    return found


def text_of(file: Path) -> str:
    """Return the text of a file, up to LARGEST bytes. Raises TrainingError."""
    try:
        with file.open("rb") as opened:
            data = opened.read(LARGEST)
        return outside.text_of(data, is_cut=len(data) == LARGEST)
    except (OSError, outside.NotTextError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise TrainingError(f"{file} cannot be read ({reason}). Name a text file that you may read.") from error


def paragraphs(text: str) -> Iterator[str]:
    """Yield the paragraphs between empty lines, shortened, without very short ones."""
    for part in text.split("\n\n"):
        if len(found := part.strip()[:MAX_PROMPT]) >= MIN_PROMPT:
            yield found


def distinct(prompts: Iterable[str]) -> list[str]:
    """Return the prompts without duplicates, in order."""
    return list(dict.fromkeys(prompt for prompt in prompts if prompt.strip()))


def is_apart(prompt: str) -> bool:
    """Whether the prompt is held out. The same prompt always is, or never, whatever the others are."""
    return sha256(prompt.encode()).digest()[0] % APART == 0


def split(prompts: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the prompts to learn from, and those held out; of two or more prompts, at least one is held out."""
    all_of_them = list(prompts)
    apart = [prompt for prompt in all_of_them if is_apart(prompt)] or all_of_them[-1:]
    return [prompt for prompt in all_of_them if prompt not in apart] or all_of_them, apart


def to_try(apart: Sequence[str]) -> list[str]:
    """Return held-out prompts to try a draft with."""
    return [prompt[:TRIED_CHARACTERS] for prompt in apart[:N_TRIED]]
