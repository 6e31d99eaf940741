"""What to leave out of a conversation when the context is full: whole turns, the oldest first; never the system prompt
or the last question.

Knows messages and a way to count their tokens; knows no model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from runtime.engine.chat_template import Message
from runtime.engine.prompt import Prompt, PromptEncoder

POLICIES = ("stop", "drop-oldest")
HEADROOM = 0.25  # of the context that turns are dropped for, so that it is not done again at once


class PromptWindow:
    """A prompt, and what of it still has room in the context; only of a conversation can turns be left out."""

    def __init__(self, prompt: Prompt, encoder: PromptEncoder, n_ctx: int, drops: bool) -> None:
        self._prompt, self._encoder, self.n_ctx, self._drops = prompt, encoder, n_ctx, drops
        self.notice = ""  # a sentence about what was left out

    def begin(self, max_tokens: int | None) -> list[int]:
        """The prompt's ids, with room for the reply where turns may be dropped for it."""
        room = int(HEADROOM * self.n_ctx)
        return self._fitted(self.n_ctx - min(max_tokens or room, room))

    def shrink(self, n_reply: int) -> list[int]:
        """The ids without the oldest turns, so that the reply, of so many tokens, can go on."""
        return self._fitted(int((1 - HEADROOM) * self.n_ctx) - n_reply)

    def _fitted(self, most: int) -> list[int]:
        """At most `most` ids, if that can be done."""
        prompt = self._prompt
        if not self._drops or not isinstance(prompt, Sequence) or isinstance(prompt, str):
            return self._encoder.encode(prompt)
        kept, ids = fit(prompt, partial(self._encoder.encode, may_overflow=True), most)
        if len(kept) < len(prompt):
            self.notice = f"The oldest turns were left out to make room in the context of {self.n_ctx} tokens."
        self._prompt = kept
        return ids


def drop_oldest(messages: Sequence[Message]) -> list[Message]:
    """Leaves out the oldest question and what answered it; changes nothing when only the last question is left."""
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
