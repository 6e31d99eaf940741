"""What to leave out of a conversation when the context is full: whole turns, the oldest first; never the system prompt
or the last question.

Knows messages and a way to count their tokens; knows no model.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate

from runtime.conversation.chat_template import Message
from runtime.conversation.prompt import Prompt, PromptEncoder, Talk
from runtime.core.errors import StoppedError

POLICIES = ("stop", "drop-oldest")
HEADROOM = 0.25  # of the context that turns are dropped for, so that it is not done again at once
LETTERS = 4  # of a token of usual text
TRIES = 4  # guesses at how many turns to leave out, before the number is halved in

Encode = Callable[[Sequence[Message]], list[int]]
Count = Callable[[Message], int]


def never() -> bool:
    """Nobody cancels."""
    return False


class PromptWindow:
    """A prompt, and what of it still has room in the context; only of a conversation can turns be left out."""

    def __init__(
        self, prompt: Prompt, encoder: PromptEncoder, n_ctx: int, drops: bool, cancel: Callable[[], bool] = never
    ) -> None:
        self._prompt, self._encoder, self.n_ctx, self._cancel = prompt, encoder, n_ctx, cancel
        self._talk = talk_of(prompt) if drops else None
        self.notice = ""  # a sentence about what was left out

    def begin(self, max_tokens: int | None) -> list[int]:
        """The prompt's ids, with room for the reply where turns may be dropped for it. Raises StoppedError when that is
        cancelled.
        """
        room = int(HEADROOM * self.n_ctx)
        return self._fitted(self.n_ctx - min(max_tokens or room, room))

    def shrink(self, n_reply: int) -> list[int]:
        """The ids without the oldest turns, so that the reply, of so many tokens, can go on."""
        return self._fitted(int((1 - HEADROOM) * self.n_ctx) - n_reply)

    def _fitted(self, most: int) -> list[int]:
        """At most `most` ids, if that can be done."""
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


def talk_of(prompt: Prompt) -> Talk | None:
    """The conversation that a prompt is; None for one of which no turn can be left out."""
    if isinstance(prompt, Sequence) and not isinstance(prompt, str):
        return Talk(tuple(prompt))
    return prompt if isinstance(prompt, Talk) else None


def without_oldest(messages: Sequence[Message], n: int = 1) -> list[Message]:
    """Leaves out the oldest `n` questions and what answered them; the last question stays, whatever `n` is."""
    questions = questions_in(messages)
    n = min(n, len(questions) - 1)
    gone = range(questions[0], questions[n]) if n > 0 else range(0)
    return [message for i, message in enumerate(messages) if i not in gone or message.role == "system"]


def questions_in(messages: Sequence[Message]) -> list[int]:
    """Where the questions are."""
    return [i for i, message in enumerate(messages) if message.role == "user"]


def fit(messages: Sequence[Message], encode: Encode, n_tokens: Count, most: int) -> tuple[list[Message], list[int]]:
    """(messages, ids) with as few turns left out as bring the ids to `most`, or with all left out that may be.

    Turns are counted from the last one back, so no more of a conversation is looked at than has room, and what the
    template puts around messages is learned from the first attempts at the whole.
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
    """Is the whole likely to have room, so that no turn need be counted?"""
    return sum(len(message.content) for message in messages) <= LETTERS * most


def around_each(tried: tuple[list[Message], list[int]] | None, n_tokens: Count) -> float:
    """Tokens that the template put around each message of an attempt; 0.0 before there was any."""
    if tried is None or not tried[0]:
        return 0.0
    kept, ids = tried
    return max(0.0, (len(ids) - sum(map(n_tokens, kept))) / len(kept))


def n_to_leave_out(
    messages: Sequence[Message], questions: Sequence[int], n_tokens: Count, most: int, around: float
) -> int:
    """How many turns have no room beside the last ones, where so many tokens are `around` each message."""
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
    """At least `n` turns to be left out, so many that the next questions of a conversation leave out the same, and what
    they begin with need not be read again: up to where another `size` characters of the conversation end.
    """
    questions = questions_in(messages)
    before = [0, *accumulate(len(message.content) for message in messages)]
    blocks = [before[i] // size for i in questions]
    return next((m for m in range(n, len(questions)) if n and blocks[m] != blocks[m - 1]), n)
