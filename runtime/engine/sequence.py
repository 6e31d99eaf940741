"""One sequence: a prompt and its reply so far; and a batch of some. Bookkeeping only; never runs a model.

Knows tokens and text; knows no decoder and no scheduler.
"""

from __future__ import annotations

from collections.abc import Sequence as List
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import psutil

from runtime.backends.stored.saved_states import SavedState
from runtime.conversation.window import PromptWindow
from runtime.core.draft import NO_DRAFT, Adapters, PassInput, Tokens
from runtime.core.image_runs import ImageRun, has_images
from runtime.engine.binding import Binding
from runtime.engine.engine import Ask
from runtime.engine.output import Chunk
from runtime.engine.stats import Stats
from runtime.engine.text import TextStream
from runtime.speculative.control.explain import Pass
from runtime.speculative.decoder import Decoder
from runtime.speculative.step import DraftingState, PromptReading, Step, StepInput, TextKind, Widths
from runtime.speculative.verify import rule_of
from runtime.training.background import GeneratedReply

EXPECTED = 256  # assumed tokens of a reply of unknown length


class TokenBuffer:
    """A buffer of up to `n_ctx` tokens; the first `n_prompt` of its `n` tokens are the prompt."""

    def __init__(self, prompt: List[int], n_ctx: int) -> None:
        self._array: Tokens = np.empty(n_ctx, dtype=np.int32)
        self._array[: len(prompt)] = prompt
        self.n_prompt = self.n = len(prompt)

    @property
    def tokens(self) -> Tokens:
        """Prompt and reply [n] as a view."""
        return self._array[: self.n]

    @property
    def n_reply(self) -> int:
        """Number of tokens of the reply."""
        return self.n - self.n_prompt

    @property
    def room(self) -> int:
        """Number of tokens that can still be added."""
        return len(self._array) - self.n

    def append(self, token: int) -> None:
        """Add a token of the reply."""
        self._array[self.n] = token
        self.n += 1

    def replace_prompt(self, prompt: List[int]) -> None:
        """Replace the prompt by one that is not longer."""
        reply = self.tokens[self.n_prompt :].copy()
        self._array[: len(prompt)] = prompt
        self.n_prompt, self.n = len(prompt), len(prompt) + len(reply)
        self._array[self.n_prompt : self.n] = reply


class Sequence:
    """A prompt and its reply: prefilled, then decoded until it has a `finish_reason`."""

    def __init__(self, number: int, ask: Ask, ids: List[int], window: PromptWindow, binding: Binding) -> None:
        """Begin with the prompt's `ids`, and resume an interrupted reply: at its end, if the context is smaller now."""
        self.number, self.ask, self.window, self.binding = number, ask, window, binding
        self.buffer, self.text = TokenBuffer(ids, window.n_ctx), TextStream(ask.stops, ask.n_indent)
        n_likely = EXPECTED if ask.max_tokens is None else min(EXPECTED, ask.max_tokens)
        rule, kind = rule_of(binding.sampler), TextKind("", binding.adapters)
        reading = PromptReading(has_images=has_images(self.tokens))
        self.drafting = DraftingState(n_likely, rule, binding.widths, kind, ask.is_traced, reading=reading)
        self.images: Future[list[ImageRun]] | None = None  # those of its prompt, which are kept as long as it is
        self.stats = Stats(prompt_n=len(ids), exactness=binding.exactness, widths=binding.widths)
        self.n_read = 0  # tokens that passes have read so far; some may have been evicted from the cache
        self.stored: Future[SavedState | None] | None = None  # state of its prompt that is being read from disk
        self.finish_reason: str | None = None
        for token in ask.reply_tokens:
            self._take(token)
            self._look_at_limits()
        self.stats.steps += ask.passes
        self.stats.decode_seconds = sum(each.seconds for each in ask.passes)

    @property
    def tokens(self) -> Tokens:
        """Prompt and reply [n]."""
        return self.buffer.tokens

    @property
    def needs_exact_widths(self) -> bool:
        """Whether all its passes must round as plain decode does."""
        return self.binding.widths is Widths.EXACT

    @property
    def adapters(self) -> Adapters:
        """The LoRA adapters of its passes."""
        return self.binding.adapters

    @property
    def is_reading(self) -> bool:
        """Whether tokens must be read before the next one can be decoded."""
        return self.n_read < self.buffer.n - 1

    @property
    def left(self) -> int | None:
        """Number of tokens up to `max_tokens`; None: no limit."""
        most = self.ask.max_tokens
        return None if most is None else most - self.buffer.n_reply

    @property
    def notice(self) -> str:
        """A sentence about text that did not fit into the context; "" if all did."""
        if self.finish_reason == "length" and self.left != 0 and not self.buffer.room:
            return (
                f"The context of {self.window.n_ctx} tokens is full, so the reply ends here. Shorten the prompt, or "
                "raise `--context`."
            )
        return self.window.notice

    def generated(self) -> GeneratedReply:
        """Return the reply so far, for training."""
        return GeneratedReply(self.tokens, self.buffer.n_prompt, self.stats.steps)

    def complete_stats(self, decoder: Decoder) -> None:
        """Add what is known of a reply when it ends."""
        stats, active = self.stats, decoder.active
        stats.plain_per_second = decoder.controller.plain_alone(self.buffer.n)
        if active.is_impaired or 2 * stats.drafters["none"] > stats.n_passes:
            stats.reason = decoder.why_plain(self.drafting)
        stats.n_near_ties = self.binding.sampler.n_near_ties
        stats.memory_level, stats.memory_bytes = active.memory_level, psutil.Process().memory_info().rss

    def progress(self, n_read: int) -> Chunk:
        """Return a chunk that reports how much of the prompt has been read."""
        return Chunk("", n_read=n_read, stats=replace(self.stats))

    def input(self, n_unread: int = 0) -> StepInput:
        """Return the input of its next step."""
        left, room = self.left, self.buffer.room
        self.drafting.kind = TextKind("code" if self.text.is_code else "prose", self.adapters)
        most = room if left is None else min(room, left)
        bound, n_reply, is_end = self.binding, self.buffer.n_reply, self.binding.ends.__getitem__
        return StepInput(self.drafting, self.tokens, bound.sampler, n_reply, most, bound.report, n_unread, is_end)

    def commit(self, step: Step, seconds: float, n_unread: int = 0) -> Chunk:
        """Add a step's tokens up to the end of the turn or a stop string, and return their chunk.

        The whole step took `seconds`, in which it also read `n_unread` prompt tokens.
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
        generated = Pass(own, step.drafter, step.n_drafted, step.n_accepted, n, *parts, step.n_together, step.why)
        self.stats.steps.append(generated)
        self.stats.decode_seconds += own
        drafted = tuple(i < step.n_accepted for i in range(n))
        limit = self.binding.sampler.surprise_limit(step.tokens[:n])
        chunk = Chunk("".join(pieces), step.tokens[:n], drafted, tuple(pieces), step.logprobs[:n])
        chunk = replace(chunk, made=generated, surprise_limit=limit)
        if not n_unread:
            return chunk
        return replace(chunk, n_read=self.stats.prompt_n, stats=replace(self.stats))

    def _take(self, token: int) -> str:
        """Add a token to the reply, in the context if there is room, and return the text that becomes certain."""
        if self.buffer.room:
            self.buffer.append(token)
        is_end = self.binding.ends[token]
        text = "" if is_end else self.text.feed(self.binding.pieces[token])
        if is_end or self.text.stopped:
            self.finish_reason = "length" if self.text.is_outdented else "stop"
        return text

    def _look_at_limits(self) -> None:
        """End the reply at its token limit, or if the context is full and nothing can be dropped."""
        if self.left == 0 or (not self.buffer.room and not self._make_room()):
            self.finish_reason = "length"

    def _make_room(self) -> bool:
        """Drop the oldest turns; only the text after the first of them is read again. Return whether that made room."""
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


class PromptPiece(NamedTuple):
    """A piece of a prompt that a pass reads."""

    sequence: Sequence
    start: int  # its first position
    end: int  # the position after its last one


@dataclass(slots=True)
class Batch:
    """The work of one pass."""

    decoding: list[tuple[Sequence, int]] = field(default_factory=list)  # (sequence, prompt tokens that it also reads)
    reading: list[PromptPiece] = field(default_factory=list)  # pieces of the prompts of others

    @property
    def sequences(self) -> list[Sequence]:
        """Its sequences: first those that decode, then those that only read."""
        return [*(each for each, _ in self.decoding), *(piece.sequence for piece in self.reading)]

    @property
    def inputs(self) -> list[StepInput]:
        """The inputs of those that decode."""
        return [each.input(n_unread) for each, n_unread in self.decoding]

    @property
    def prompts(self) -> list[PassInput]:
        """The prompts of those that only read, up to where they are read."""
        return [
            PassInput(each.tokens[:end], NO_DRAFT, each.needs_exact_widths, each.adapters)
            for each, _, end in self.reading
        ]

    @property
    def n_rows(self) -> dict[Sequence, int]:
        """The number of prompt tokens that it reads of each sequence that has some."""
        own = {each: n_unread for each, n_unread in self.decoding if n_unread}
        return own | {each: end - start for each, start, end in self.reading}
