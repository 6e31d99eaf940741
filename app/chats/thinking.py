"""What a model thought before it answered, told apart from the answer. Knows text only."""

from __future__ import annotations

OPEN, CLOSE = "<think>", "</think>"


def split_thinking(text: str) -> tuple[str, str]:
    """The thinking at the start of a reply, and the answer. Thinking without an end is all there is yet."""
    if not text.lstrip().startswith(OPEN):
        return "", text
    thought, _, answer = text.lstrip().removeprefix(OPEN).partition(CLOSE)
    return thought.strip(), answer.lstrip("\n")
