"""One reply as it is made: prefill with progress, one chunk per target pass, text, stop, cancel, a context that fills
up.

Knows the loop, a tokenizer and text; knows no files.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import psutil

from runtime.core.backend import Tokenizer
from runtime.core.draft import Tokens
from runtime.core.errors import StoppedError
from runtime.engine.reading import PromptReading
from runtime.engine.stats import Stats
from runtime.engine.text import TextStream
from runtime.engine.window import PromptWindow
from runtime.learning.learner import Made
from runtime.loading.exactness import Exactness
from runtime.sampling.logits import Report, TokenLogprobs
from runtime.sampling.sampler import Sampler
from runtime.speculative.control.explain import Pass
from runtime.speculative.loop import SpecLoop
from runtime.speculative.step import Due, RequestState, not_reading

EXPECTED = 256  # tokens of a reply of which nothing is known


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a reply. The last one has a finish reason and the final stats; one that only tells how much of the
    prompt has been read has the stats so far.
    """

    text: str
    tokens: tuple[int, ...] = ()
    drafted: tuple[bool, ...] = ()  # which of the tokens came from a draft
    pieces: tuple[str, ...] = ()  # the text by token, so that drafted ones can be shown; joined it is `text`
    logprobs: tuple[TokenLogprobs, ...] = ()  # one per token, where they were asked for
    finish_reason: str | None = None  # stop, length, cancelled
    notice: str = ""  # a sentence for the person, such as that the context is full
    stats: Stats | None = None
    stop: str = ""  # the stop string that ended the reply, in the last one
    made: Pass | None = None  # the pass that brought it
    n_read: int = 0  # tokens of the prompt that have been read; 0 once that is done


class Reply:
    """The state of one reply: its tokens so far, its text, its numbers."""

    def __init__(
        self,
        loop: SpecLoop,
        vocab: Tokenizer,
        window: PromptWindow,
        ids: Sequence[int],
        sampler: Sampler,
        max_tokens: int | None,
        stops: Sequence[str],
        report: Report | None,
        exactness: Exactness,
        expected: Sequence[int] = (),
        pieces: Mapping[int, bytes] | None = None,
    ) -> None:
        self.loop, self.vocab, self.window, self.sampler, self.report = loop, vocab, window, sampler, report
        self.n_ctx, self.expected = window.n_ctx, expected
        self._pieces = vocab.pieces if pieces is None else pieces
        self.tokens: Tokens = np.empty(self.n_ctx, dtype=np.int32)
        self.tokens[: len(ids)] = ids
        self.n_prompt = self.n = len(ids)
        self.left = max_tokens  # tokens to go; None: no limit
        self.text = TextStream(stops)
        exact_only = sampler.is_coupled and loop.is_exact_only
        self.stats = Stats(prompt_n=len(ids), exactness=exactness, exact_only=exact_only)
        self._has_begun = False  # is the reply made?
        self._n_unread, self._since = 0, 0.0  # tokens of the prompt that the pass of its first step reads; since when
        self.finish_reason: str | None = None
        self.notice = window.notice
        n_likely = EXPECTED if max_tokens is None else min(EXPECTED, max_tokens)
        self.request = RequestState(n_likely, exact_only=sampler.is_coupled, due=self._due)

    def made(self) -> Made:
        """The reply so far, for whoever learns from it."""
        return Made(self.tokens[: self.n], self.n_prompt, self.stats.steps)

    def take_up(self, said: Sequence[int], passes: Sequence[Pass]) -> None:
        """Goes on where an earlier attempt was broken off that had said these tokens, in these passes."""
        for token in said:
            self._take(token)
            self._look_at_limits()
        self.stats.steps += passes
        self.stats.decode_seconds = sum(each.seconds for each in passes)

    def run(
        self, cancel: Callable[[], bool], on_prefill: Callable[[int, int], None], pauses: bool = False
    ) -> Iterator[Chunk]:
        """Prefill, then one chunk per target pass; where it `pauses`, an empty one before the prompt and for each piece
        of it.
        """
        self.loop.join(self.request)
        try:
            yield from self._made(cancel, on_prefill, pauses)
        finally:
            self.loop.leave(self.request)

    def _made(
        self, cancel: Callable[[], bool], on_prefill: Callable[[int, int], None], pauses: bool
    ) -> Iterator[Chunk]:
        try:
            for n_read in self._prefill(cancel, on_prefill):
                if pauses:
                    yield Chunk("", n_read=n_read, stats=replace(self.stats))
        except StoppedError:
            self.finish_reason = "cancelled"
        try:
            while self.finish_reason is None:
                if cancel():
                    self.finish_reason = "cancelled"
                    break
                reads, total = self._n_unread > 0, self.n - 1
                chunk = self._step()
                if reads:
                    on_prefill(total, total)
                    if pauses:
                        chunk = replace(chunk, n_read=total + 1, stats=replace(self.stats))
                yield chunk
        except StoppedError:
            self.finish_reason = "cancelled"
        finally:  # also when nobody wants to hear the rest
            self.loop.finish(self.tokens[: self.n], self.n_prompt)
        self._close_stats()
        tail = self.text.finish()
        yield Chunk(
            tail, pieces=(tail,), finish_reason=self.finish_reason, notice=self.notice, stats=self.stats,
            stop=self.text.stop,
        )  # fmt: skip

    def _prefill(self, cancel: Callable[[], bool], on_prefill: Callable[[int, int], None]) -> Iterator[int]:
        """Reads the prompt in pieces, but for its last token, which is the first step's. So is the last piece where
        that changes nothing of what is said: one pass reads it and says the first token.

        Yields how much has been read, where all has with that token.
        """
        if self.finish_reason is not None:
            return
        reading = self._reading()
        self.request.unread, total = reading.unread, reading.total
        self.stats.cached_n = reading.n_cached
        if reading.is_short(self.n_ctx) and self._reads_late(reading, total, cancel):
            yield reading.n_cached  # those who came with it begin as well before its pass is made
            return
        if reading.n_cached:  # whoever watches a long prompt sees at once that it is not read from its beginning
            on_prefill(reading.n_cached, total)
        yield reading.n_cached
        for end in reading.pieces(self.n_ctx):
            began = time.perf_counter()
            if cancel():
                self.finish_reason = "cancelled"
                return
            if self._reads_late(reading, end, cancel):
                return
            self.loop.prefill(self.request, reading.tokens, end)
            on_prefill(end, total)
            if end == total:  # others' passes may have rows of its first step from now on
                self._begin_drafting(cancel)
            self.stats.prompt_seconds += time.perf_counter() - began
            yield end + (end == total)
        if self.left == 0:
            self.finish_reason = "length"

    def _reading(self) -> PromptReading:
        return PromptReading(self.loop, self.request, self.tokens[: self.n], self.n_prompt, self.stats.exactness)

    def _lost(self) -> PromptReading | None:
        """Return what the cache has lost and must be read again in the pieces it was read in before, or the next pass
        rounds otherwise, also for another reply that has rows of it.
        """
        exactness = self.stats.exactness
        may_round = exactness is not None and not exactness.is_exact
        if not may_round or not self.loop.is_exact_only or self.request.made is not None:
            return None
        reading = self._reading()
        return reading if reading.is_lost else None

    def _reads_late(self, reading: PromptReading, end: int, cancel: Callable[[], bool]) -> bool:
        """Is the piece up to `end` left to the pass of the first step? Then the reply begins."""
        self._n_unread = 0 if self.left == 0 else reading.n_late(end)
        if self._n_unread:
            self.request.n_early = int(self.loop.is_alone)
            self._since = time.perf_counter()
            self._begin_drafting(cancel)
        return self._n_unread > 0

    def _begin_drafting(self, cancel: Callable[[], bool]) -> None:
        """The drafters learn what is asked, and read the prompt where that will repay itself."""
        self.request.unread = not_reading
        if self.finish_reason is not None:
            return
        tokens = self.tokens[: self.n]
        self.loop.begin(self.request, tokens, self.expected, self.sampler.mask is not None, cancel)
        self._has_begun = True

    def _step(self) -> Chunk:
        """One target pass, cut where the model ends its turn or a stop string appears."""
        began = self._since if self._n_unread else time.perf_counter()
        if lost := self._lost():
            for end in lost.pieces(self.n_ctx):
                self.loop.prefill(self.request, lost.tokens, end)
        step = self.loop.step(self.request, *self._asked())
        pieces: list[str] = []
        for token in step.tokens:
            pieces.append(self._take(token))
            if self.finish_reason is not None:
                break
        n = len(pieces)
        if self.finish_reason is None:
            self._look_at_limits()
        # A step that came with another reply's took its time before it was asked for
        elapsed = time.perf_counter() - began
        seconds = step.seconds if self._n_unread else max(elapsed, step.seconds)
        self.stats.prompt_seconds += max(0.0, elapsed - seconds)
        self._n_unread = 0
        parts = step.draft_seconds, step.verify_seconds, step.seconds
        made = Pass(seconds, step.drafters, step.n_drafted, step.n_accepted, n, *parts, step.n_together, step.why)
        self.stats.steps.append(made)
        self.stats.decode_seconds += seconds
        drafted = tuple(i < step.n_accepted for i in range(n))
        return Chunk("".join(pieces), step.tokens[:n], drafted, tuple(pieces), step.logprobs[:n], made=made)

    def _asked(self) -> Due:
        """What the next step is asked."""
        room = self.n_ctx - self.n
        most = room if self.left is None else min(room, self.left)
        self.request.kind = "code" if self.text.is_code else "prose"
        return Due(self.tokens[: self.n], self.sampler, self.n - self.n_prompt, most, self.report, self._n_unread)

    def _due(self) -> Due | None:
        """The same, while the reply is made."""
        is_made = self.finish_reason is None and self._has_begun and self._lost() is None
        return self._asked() if is_made else None

    def _take(self, token: int) -> str:
        """The token becomes part of the reply; returns the text that it brings."""
        self.tokens[self.n] = token
        self.n += 1
        if self.left is not None:
            self.left -= 1
        is_end = self.vocab.ends[token]
        text = "" if is_end else self.text.feed(self._pieces[token])
        if is_end or self.text.stopped:
            self.finish_reason = "stop"
        return text

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
        reply = self.tokens[self.n_prompt : self.n].copy()
        ids = self.window.shrink(len(reply))
        if len(ids) >= self.n_prompt:
            return False
        self.tokens[: len(ids)] = ids
        self.n_prompt, self.n = len(ids), len(ids) + len(reply)
        self.tokens[self.n_prompt : self.n] = reply
        self.notice = self.window.notice
        return True

    def _close_stats(self) -> None:
        """What is only worth saying at the end."""
        stats, loop = self.stats, self.loop
        stats.plain_per_second = loop.controller.plain_alone
        if loop.lineup.is_impaired or 2 * stats.drafters["none"] > stats.n_passes:
            stats.reason = loop.why_plain(self.request)
        stats.n_near_ties = self.sampler.n_near_ties
        stats.memory_level = loop.lineup.memory_level
        stats.memory_bytes = psutil.Process().memory_info().rss
