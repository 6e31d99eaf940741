"""One reply as it is made: prefill with progress, one chunk per target pass, text, stop, cancel, a context that fills
up.

Knows the loop, a tokenizer and text; knows no files.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import psutil

from runtime.core.backend import Tokenizer
from runtime.core.draft import Tokens
from runtime.engine.chat_template import Message
from runtime.engine.stats import Stats
from runtime.engine.text import TextStream
from runtime.engine.window import fit
from runtime.loading.exactness import Exactness
from runtime.sampling.logits import TokenLogprobs
from runtime.sampling.sampler import Sampler
from runtime.speculative.loop import Part, SpecLoop

PREFILL = 256  # tokens decoded between two looks at `cancel`
EXPECTED = 256  # tokens of a reply of which nothing is known
ROOM = 0.25  # of the context that turns are dropped for, so that it is not done again at once


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a reply. The last one has a finish reason and the final stats."""

    text: str
    tokens: tuple[int, ...] = ()
    drafted: tuple[bool, ...] = ()  # which of the tokens came from a draft
    pieces: tuple[str, ...] = ()  # the text by token, so that drafted ones can be shown; joined it is `text`
    logprobs: tuple[TokenLogprobs, ...] = ()  # one per token, where they were asked for
    finish_reason: str | None = None  # stop, length, cancelled
    notice: str = ""  # a sentence for the person, such as that the context is full
    stats: Stats | None = None


class Conversation:
    """What was said before the reply, and what of it still has room."""

    def __init__(
        self,
        prompt: str | Sequence[Message],
        encode: Callable[[str | Sequence[Message]], list[int]],
        n_ctx: int,
        drops: bool,
    ) -> None:
        self.prompt, self.encode, self.n_ctx, self.drops = prompt, encode, n_ctx, drops
        self.notice = ""

    def begin(self, max_tokens: int | None) -> list[int]:
        """The prompt's ids, with room for the reply where turns may be dropped for it."""
        room = int(ROOM * self.n_ctx)
        return self.fit(self.n_ctx - min(max_tokens or room, room))

    def fit(self, most: int) -> list[int]:
        """The ids without the oldest turns, `most` of them if that can be done."""
        if isinstance(self.prompt, str) or not self.drops:
            return self.encode(self.prompt)
        kept, ids = fit(self.prompt, self.encode, most)
        if len(kept) < len(self.prompt):
            self.notice = f"The oldest turns were left out to make room in the context of {self.n_ctx} tokens."
        self.prompt = kept
        return ids


class Reply:
    """The state of one reply: its tokens so far, its text, its numbers."""

    def __init__(
        self,
        loop: SpecLoop,
        vocab: Tokenizer,
        conversation: Conversation,
        ids: Sequence[int],
        sampler: Sampler,
        max_tokens: int | None,
        stops: Sequence[str],
        n_logprobs: int | None,
        exactness: Exactness,
        expected: Sequence[int] = (),
    ) -> None:
        self.loop, self.vocab, self.conversation, self.sampler, self.n_logprobs = (
            loop,
            vocab,
            conversation,
            sampler,
            n_logprobs,
        )
        self.n_ctx, self.expected = conversation.n_ctx, expected
        self.tokens: Tokens = np.empty(self.n_ctx, dtype=np.int32)
        self.tokens[: len(ids)] = ids
        self.n_prompt = self.n = len(ids)
        self.left = max_tokens  # tokens to go; None: no limit
        self.text, self.stats = TextStream(stops), Stats(prompt_n=len(ids), exactness=exactness)
        self.finish_reason: str | None = None
        self.notice, self.part = conversation.notice, Part()

    def run(
        self, cancel: Callable[[], bool], on_prefill: Callable[[int, int], None], pauses: bool = False
    ) -> Iterator[Chunk]:
        """Prefill, then one chunk per target pass; where it `pauses`, an empty one for each piece of the prompt before
        them.
        """
        for _ in self._prefill(cancel, on_prefill):
            if pauses:
                yield Chunk("")
        self._begin_drafting(cancel)
        try:
            while self.finish_reason is None:
                if cancel():
                    self.finish_reason = "cancelled"
                    break
                began = time.perf_counter()
                self.loop.resume(self.part, self.tokens[: self.n])
                chunk = self._step()
                self.stats.decode_seconds += time.perf_counter() - began
                yield chunk
        finally:  # also when nobody wants to hear the rest
            for drafter in self.loop.drafters:
                drafter.finish(self.tokens[: self.n], self.n_prompt)
        self._close_stats()
        tail = self.text.finish()
        yield Chunk(tail, pieces=(tail,), finish_reason=self.finish_reason, notice=self.notice, stats=self.stats)

    def _prefill(self, cancel: Callable[[], bool], on_prefill: Callable[[int, int], None]) -> Iterator[None]:
        """Decodes the prompt but for its last token in pieces: the backend remembers, so the first step has little left
        to do.
        """
        backend, total = self.loop.backend, self.n_prompt - 1
        self.stats.cached_n = backend.n_cached(self.tokens[: self.n_prompt])
        first = (
            self.stats.cached_n // PREFILL + 1
        ) * PREFILL  # borders do not depend on how much drafts had left in the cache
        for end in [*range(first, total, PREFILL), total]:
            began = time.perf_counter()
            self.loop.resume(self.part, self.tokens[: self.n_prompt])
            self.loop.watch(self.tokens[: self.n_prompt])
            if cancel():
                self.finish_reason = "cancelled"
                return
            if end > self.stats.cached_n:
                backend.forward(self.tokens[:end])
            self.stats.prompt_seconds += time.perf_counter() - began
            on_prefill(end, total)
            yield

    def _begin_drafting(self, cancel: Callable[[], bool]) -> None:
        """The drafters learn what is asked, and take the prompt in where that will repay itself."""
        if self.finish_reason is not None:
            return
        began = time.perf_counter()
        for drafter in self.loop.drafters:
            drafter.begin(self.tokens[: self.n_prompt], self.expected)
        likely = EXPECTED if self.left is None else min(EXPECTED, self.left)
        self.loop.prepare(self.tokens[: self.n_prompt], likely, cancel)
        self.part = self.loop.part
        self.stats.prompt_seconds += time.perf_counter() - began

    def _step(self) -> Chunk:
        """One target pass, cut where the model ends its turn or a stop string appears."""
        room = self.n_ctx - self.n
        most = room if self.left is None else min(room, self.left)
        self.loop.controller.set_kind("code" if self.text.is_code else "prose")
        step = self.loop.step(self.tokens[: self.n], self.sampler, self.n - self.n_prompt, most, self.n_logprobs)
        pieces: list[str] = []
        for token in step.tokens:
            self.tokens[self.n] = token
            self.n += 1
            pieces.append("" if self.vocab.is_end(token) else self.text.feed(self.vocab.piece(token)))
            if self.vocab.is_end(token) or self.text.stopped:
                self.finish_reason = "stop"
                break
        if self.left is not None:
            self.left -= len(pieces)
        self.stats.count(step, len(pieces))
        if self.finish_reason is None:
            self._look_at_limits()
        drafted = tuple(i < step.n_accepted for i in range(len(pieces)))
        return Chunk("".join(pieces), step.tokens[: len(pieces)], drafted, tuple(pieces), step.logprobs[: len(pieces)])

    def _look_at_limits(self) -> None:
        """Ends the reply where it was asked to end, or where the context is full and nothing can be dropped."""
        if self.left == 0:
            self.finish_reason = "length"
        elif self.n == self.n_ctx and not self._make_room():
            self.finish_reason = "length"
            self.notice = (
                f"The context of {self.n_ctx} tokens is full, so the reply ends here. Shorten the prompt, or raise "
                "`--context`."
            )

    def _make_room(self) -> bool:
        """Leaves the oldest turns out; the backend decodes again only what follows the first of them."""
        said = self.tokens[self.n_prompt : self.n].copy()
        ids = self.conversation.fit(int((1 - ROOM) * self.n_ctx) - len(said))
        if len(ids) >= self.n_prompt:
            return False
        self.tokens[: len(ids)] = ids
        self.n_prompt, self.n = len(ids), len(ids) + len(said)
        self.tokens[self.n_prompt : self.n] = said
        self.notice = self.conversation.notice
        return True

    def _close_stats(self) -> None:
        """What is only worth saying at the end."""
        stats, loop = self.stats, self.loop
        stats.plain_per_second = loop.controller.plain_rate
        if loop.short or loop.failed or 2 * stats.drafters["none"] > stats.passes:
            stats.reason = loop.why_plain()
        stats.n_near_ties = self.sampler.n_near_ties
        stats.memory_level = loop.memory_level
        stats.memory_bytes = psutil.Process().memory_info().rss
