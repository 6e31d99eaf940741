"""Chooses the turns to leave out of a conversation when the context is full: whole turns, the oldest first, never the
system prompt or the last question.

Knows messages and a function that counts their tokens; knows no model.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate

from runtime.conversation.chat_template import Message
from runtime.conversation.pictured import Pictured
from runtime.conversation.prompt import ChatPrompt, Prompt, PromptEncoder
from runtime.core.errors import StoppedError

POLICIES = ("stop", "drop-oldest")
HEADROOM = 0.25  # fraction of the context to free when turns are dropped, so that it is not soon needed again
LETTERS = 4  # characters per token of ordinary text
TRIES = 4  # estimates of the number of turns to leave out, before the search bisects

Encode = Callable[[Sequence[Message]], list[int]]
Count = Callable[[Message], int]


def never() -> bool:
    """Return False: nothing cancels."""
    return False


class PromptWindow:
    """A prompt and the part of it that fits in the context; turns can be left out only of a conversation."""

    def __init__(
        self, prompt: Prompt, encoder: PromptEncoder, n_ctx: int, drops: bool, cancel: Callable[[], bool] = never
    ) -> None:
        if isinstance(prompt, Pictured):
            encoder, prompt = encoder.seeing(prompt.images), prompt.prompt
        self._prompt, self._encoder, self.n_ctx, self._cancel = prompt, encoder, n_ctx, cancel
        self._talk = chat_prompt_of(prompt) if drops else None
        self.notice = ""  # a sentence about the turns that were left out

    def begin(self, max_tokens: int | None) -> list[int]:
        """Return the prompt's ids, with room for a reply if turns may be dropped. Raises StoppedError if cancelled."""
        room = int(HEADROOM * self.n_ctx)
        return self._fitted(self.n_ctx - min(max_tokens or room, room))

    def shrink(self, n_reply: int) -> list[int]:
        """Return the ids without the oldest turns, so that the reply, now of `n_reply` tokens, can continue."""
        return self._fitted(int((1 - HEADROOM) * self.n_ctx) - n_reply)

    def _fitted(self, most: int) -> list[int]:
        """Return at most `most` ids, if possible."""
        if (talk := self._talk) is None:
            return self._encoder.encode(self._prompt)
        begun = self._encoder.begun(talk)
        kept, ids = fit(talk.messages, self._encode, self._encoder.n_tokens, most - len(begun))
        n = len(questions_in(talk.messages)) - len(questions_in(kept))
        if (more := to_block(talk.messages, n, self.n_ctx)) > n:
            kept = without_oldest(talk.messages, more)
            ids = self._encode(kept)
        if n:
            self.notice = f"The oldest turns were left out to make room in the context of {self.n_ctx} tokens."
        self._talk = replace(talk, messages=tuple(kept))
        return [*ids, *begun]

    def _encode(self, messages: Sequence[Message]) -> list[int]:
        if self._cancel():
            raise StoppedError
        assert self._talk is not None
        return self._encoder.encode(replace(self._talk, messages=tuple(messages), begun=""), may_overflow=True)


def chat_prompt_of(prompt: Prompt) -> ChatPrompt | None:
    """Return the conversation of a prompt, or None for a prompt of which no turn can be left out."""
    if isinstance(prompt, Sequence) and not isinstance(prompt, str):
        return ChatPrompt(tuple(prompt))
    return prompt if isinstance(prompt, ChatPrompt) else None


def without_oldest(messages: Sequence[Message], n: int = 1) -> list[Message]:
    """Return the messages without the oldest `n` questions and their answers; the last question always stays."""
    questions = questions_in(messages)
    n = min(n, len(questions) - 1)
    gone = range(questions[0], questions[n]) if n > 0 else range(0)
    return [message for i, message in enumerate(messages) if i not in gone or message.role == "system"]


def questions_in(messages: Sequence[Message]) -> list[int]:
    """Return the indices of the questions."""
    return [i for i, message in enumerate(messages) if message.role == "user"]


def fit(messages: Sequence[Message], encode: Encode, n_tokens: Count, most: int) -> tuple[list[Message], list[int]]:
    """Return (messages, ids) without as many turns as bring the ids to `most`, or without all removable ones.

    Turns are counted from the last one back, so no more of a conversation is read than fits. The template's tokens
    around messages are estimated from the latest attempt.
    """
    questions = questions_in(messages)
    too_few, enough, n_tries = -1, max(0, len(questions) - 1), 0
    found: tuple[list[Message], list[int]] | None = None
    tried: tuple[list[Message], list[int]] | None = None  # the latest attempt
    while found is None or too_few + 1 < enough:
        if tried is None and is_short(messages, most):
            guess = 0
        else:
            guess = n_to_leave_out(messages, questions, n_tokens, most, around_each(tried, n_tokens))
        if found is not None and guess >= enough:
            break
        last = enough if found is None else enough - 1
        n = min(last, max(too_few + 1, guess)) if n_tries < TRIES else (too_few + 1 + last) // 2
        kept = without_oldest(messages, n)
        ids, n_tries = encode(kept), n_tries + 1
        tried = kept, ids
        if len(ids) <= most or n == last == enough:
            found, enough = tried, n
        else:
            too_few = n
    return found


def is_short(messages: Sequence[Message], most: int) -> bool:
    """Whether the whole is likely to fit, so that no turn need be counted."""
    return sum(len(message.content) for message in messages) <= LETTERS * most


def around_each(tried: tuple[list[Message], list[int]] | None, n_tokens: Count) -> float:
    """Return the tokens that the template put around each message of an attempt; 0.0 before the first one."""
    if tried is None or not tried[0]:
        return 0.0
    kept, ids = tried
    return max(0.0, (len(ids) - sum(map(n_tokens, kept))) / len(kept))


def n_to_leave_out(
    messages: Sequence[Message], questions: Sequence[int], n_tokens: Count, most: int, around: float
) -> int:
    """Return the number of turns that do not fit with the last ones, given `around` template tokens per message."""
    if not questions:
        return 0
    stays = [i < questions[0] or message.role == "system" for i, message in enumerate(messages)]
    left = most - sum(n_tokens(message) + around for message, stay in zip(messages, stays, strict=True) if stay)
    for i in reversed(range(len(messages))):
        left -= 0 if stays[i] else n_tokens(messages[i]) + around
        if left < 0:
            return bisect_right(questions, i)
    return 0


def to_block(messages: Sequence[Message], n: int, size: int) -> int:
    """Return the number of turns to leave out: `n` or more, up to the next block of `size` characters.

    So the next questions leave out the same turns, and their shared prefix stays cached.
    """
    questions = questions_in(messages)
    before = [0, *accumulate(len(message.content) for message in messages)]
    blocks = [before[i] // size for i in questions]
    return next((m for m in range(n, len(questions)) if n and blocks[m] != blocks[m - 1]), n)
