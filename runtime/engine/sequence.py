"""One sequence: a prompt and the reply to it as it is made. Bookkeeping only: it never asks a model.

Knows tokens and text; knows no decoder and no scheduler.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as List
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from runtime.conversation.window import PromptWindow
from runtime.core.draft import Tokens
from runtime.engine.output import Chunk
from runtime.engine.stats import Stats
from runtime.engine.text import TextStream
from runtime.learning.learner import Made
from runtime.loading.exactness import Exactness
from runtime.sampling.logits import Report
from runtime.sampling.sampler import Sampler
from runtime.speculative.control.explain import Pass
from runtime.speculative.step import DraftingState, Step, StepInput, Widths
from runtime.speculative.verify import rule_of

EXPECTED = 256  # tokens of a reply of which nothing is known


@dataclass(frozen=True, slots=True)
class Request:
    """What a sequence was asked for, as far as it does not change."""

    sampler: Sampler
    max_tokens: int | None = None  # of the reply; 0: the prompt is only read
    stops: tuple[str, ...] = ()
    report: Report | None = None
    expected: List[int] = ()  # tokens that the reply is thought to have
    is_short: bool = False  # does it go before others, where sequences take turns?
    n_indent: int = 0  # spaces or tabs that each line after the first must begin with
    exactness: Exactness | None = None  # of the target's passes
    is_exact: bool = True  # do all passes round alike, in whatever pieces a prompt is read?
    widths: Widths = Widths.EXACT  # of passes


class TokenBuffer:
    """Holds up to `n_ctx` tokens; the first `n_prompt` of `n` are the prompt's."""

    def __init__(self, prompt: List[int], n_ctx: int) -> None:
        self._array: Tokens = np.empty(n_ctx, dtype=np.int32)
        self._array[: len(prompt)] = prompt
        self.n_prompt = self.n = len(prompt)

    @property
    def tokens(self) -> Tokens:
        """Prompt and reply [n], a view."""
        return self._array[: self.n]

    @property
    def n_reply(self) -> int:
        """Tokens of the reply."""
        return self.n - self.n_prompt

    @property
    def room(self) -> int:
        """Tokens that it can still take."""
        return len(self._array) - self.n

    def append(self, token: int) -> None:
        """Add a token of the reply."""
        self._array[self.n] = token
        self.n += 1

    def replace_prompt(self, prompt: List[int]) -> None:
        """Put another prompt, which is no longer, before the reply."""
        reply = self.tokens[self.n_prompt :].copy()
        self._array[: len(prompt)] = prompt
        self.n_prompt, self.n = len(prompt), len(prompt) + len(reply)
        self._array[self.n_prompt : self.n] = reply


class Vocabulary(NamedTuple):
    """What tokens add to the text of a reply, and which end it."""

    pieces: Mapping[int, bytes]
    ends: Mapping[int, bool]


class Sequence:
    """A sequence is read, then decoded, until it has a `finish_reason`."""

    def __init__(
        self, number: int, ids: List[int], window: PromptWindow, request: Request, vocabulary: Vocabulary
    ) -> None:
        self.number, self.window, self.request, self._vocabulary = number, window, request, vocabulary
        self.buffer, self.text = TokenBuffer(ids, window.n_ctx), TextStream(request.stops, request.n_indent)
        self.drafting = DraftingState(self._n_likely, rule_of(request.sampler), request.widths)
        self.stats = Stats(prompt_n=len(ids), exactness=request.exactness, widths=request.widths)
        self.n_read = 0  # tokens that passes have read so far, though the cache may have lost some
        self.has_begun = False  # do drafters know it?
        self.n_early = 0  # tokens that came with its prompt's last piece, before others could come
        self.finish_reason: str | None = None

    @property
    def _n_likely(self) -> int:
        most = self.request.max_tokens
        return EXPECTED if most is None else min(EXPECTED, most)

    @property
    def tokens(self) -> Tokens:
        """Prompt and reply [n]."""
        return self.buffer.tokens

    @property
    def is_reading(self) -> bool:
        """Must tokens be read before the next one can be decoded?"""
        return self.n_read < self.buffer.n - 1

    @property
    def left(self) -> int | None:
        """Tokens to go; None: no limit."""
        most = self.request.max_tokens
        return None if most is None else most - self.buffer.n_reply

    @property
    def notice(self) -> str:
        """A sentence on what the context had no room for; "" where it had."""
        if self.finish_reason == "length" and self.left != 0 and not self.buffer.room:
            return (
                f"The context of {self.window.n_ctx} tokens is full, so the reply ends here. Shorten the prompt, or "
                "raise `--context`."
            )
        return self.window.notice

    def made(self) -> Made:
        """Return the reply so far, for whoever learns from it."""
        return Made(self.tokens, self.buffer.n_prompt, self.stats.steps)

    def take_up(self, said: List[int], passes: List[Pass]) -> None:
        """Go on where an earlier attempt was broken off that had said these tokens, in these passes."""
        for token in said:
            self._take(token)
            self._look_at_limits()
        self.stats.steps += passes
        self.stats.decode_seconds = sum(each.seconds for each in passes)

    def progress(self, n_read: int) -> Chunk:
        """Return a chunk that tells how much of the prompt has been read."""
        return Chunk("", n_read=n_read, stats=replace(self.stats))

    def input(self, n_unread: int = 0) -> StepInput:
        """Return what its next step decodes after, and how much."""
        left, room = self.left, self.buffer.room
        self.drafting.kind = "code" if self.text.is_code else "prose"
        most = room if left is None else min(room, left)
        position, request = self.buffer.n_reply, self.request
        return StepInput(self.drafting, self.tokens, request.sampler, position, most, request.report, n_unread)

    def commit(self, step: Step, seconds: float, n_unread: int = 0) -> Chunk:
        """Add a step's tokens, up to where the model ends its turn or a stop string appears; the step took so many
        seconds, in which it also read `n_unread` tokens of the prompt.
        """
        pieces: list[str] = []
        for token in step.tokens:
            pieces.append(self._take(token))
            if self.finish_reason is not None:
                break
        n = len(pieces)
        if self.finish_reason is None:
            self._look_at_limits()
        self.n_read = self.buffer.n - 1
        own = step.seconds if n_unread else max(seconds, step.seconds)
        self.stats.prompt_seconds += max(0.0, seconds - own)
        parts = step.draft_seconds, step.verify_seconds, step.seconds
        made = Pass(own, step.drafters, step.n_drafted, step.n_accepted, n, *parts, step.n_together, step.why)
        self.stats.steps.append(made)
        self.stats.decode_seconds += own
        drafted = tuple(i < step.n_accepted for i in range(n))
        chunk = Chunk("".join(pieces), step.tokens[:n], drafted, tuple(pieces), step.logprobs[:n], made=made)
        if not n_unread:
            return chunk
        return replace(chunk, n_read=self.stats.prompt_n, stats=replace(self.stats))

    def _take(self, token: int) -> str:
        """Add a token to the reply. Returns the text that it brings."""
        self.buffer.append(token)
        is_end = self._vocabulary.ends[token]
        text = "" if is_end else self.text.feed(self._vocabulary.pieces[token])
        if is_end or self.text.stopped:
            self.finish_reason = "length" if self.text.is_outdented else "stop"
        return text

    def _look_at_limits(self) -> None:
        """End the reply where it was asked to end, or where the context is full and nothing can be dropped."""
        if self.left == 0 or (not self.buffer.room and not self._make_room()):
            self.finish_reason = "length"

    def _make_room(self) -> bool:
        """Leave the oldest turns out; only what follows the first of them is read again."""
        ids = self.window.shrink(self.buffer.n_reply)
        if len(ids) >= self.buffer.n_prompt:
            return False
        self.buffer.replace_prompt(ids)
        return True

    def end(self) -> Chunk:
        """Return the last chunk."""
        tail = self.text.finish()
        return Chunk(
            tail, pieces=(tail,), finish_reason=self.finish_reason, notice=self.notice, stats=self.stats,
            stop=self.text.stop,
        )  # fmt: skip
