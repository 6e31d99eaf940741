"""What to leave out of a conversation when the context is full: whole turns, the oldest first; never the system prompt
or the last question.

Knows messages and a way to count their tokens; knows no model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from runtime.engine.chat_template import Message

POLICIES = ("stop", "drop-oldest")


def drop_oldest(messages: Sequence[Message]) -> list[Message]:
    """Without the oldest question and what answered it; the same messages when only the last question is left."""
    questions = [i for i, message in enumerate(messages) if message.role == "user"]
    if len(questions) < 2:
        return list(messages)
    turn = range(questions[0], questions[1])
    return [message for i, message in enumerate(messages) if i not in turn or message.role == "system"]


def fit(
    messages: Sequence[Message], encode: Callable[[Sequence[Message]], list[int]], most: int
) -> tuple[list[Message], list[int]]:
    """(messages, ids) with as few turns left out as bring the ids to `most`, or with all left out that may be."""
    kept, ids = list(messages), encode(messages)
    while len(ids) > most and len(shorter := drop_oldest(kept)) < len(kept):
        kept, ids = shorter, encode(shorter)
    return kept, ids
