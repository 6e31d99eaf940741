"""One loaded pair that answers: chat template, prefill with progress, decoding, text, stop and cancel.

The only door for the command line, the chat and the server. Plain data in, plain data out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import psutil

from runtime.chat import ChatTemplate, Message
from runtime.draft import Tokens
from runtime.errors import ContextError, TemplateError
from runtime.loading import Loaded, OnProgress, Options
from runtime.registry import Pair
from runtime.sampling import Sampler, Sampling
from runtime.stats import Stats
from runtime.text import TextStream

PREFILL = 256  # tokens decoded between two looks at `cancel`


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a reply. The last one has a finish reason and the final stats."""

    text: str
    tokens: tuple[int, ...] = ()
    drafted: tuple[bool, ...] = ()  # which of the tokens came from a draft
    pieces: tuple[str, ...] = ()  # the text by token, so that drafted ones can be shown; joined it is `text`
    finish_reason: str | None = None  # stop, length, cancelled
    stats: Stats | None = None


class Engine:
    """A pair in memory. One reply at a time."""

    def __init__(self, pair: Pair, options: Options | None = None, on_progress: OnProgress | None = None) -> None:
        self.pair = pair
        self._loaded = Loaded(pair, options or Options(), on_progress)
        self.loop, self.vocab = self._loaded.loop, self._loaded.target.vocab
        self.n_ctx = self._loaded.backend.n_ctx
        self._template: ChatTemplate | None = None

    def encode(self, prompt: str | Sequence[Message]) -> list[int]:
        """The ids of a raw prompt, or of a conversation in the model's chat template. Raises TemplateError."""
        if isinstance(prompt, str):
            ids, opens = self.vocab.encode(prompt, special=False), False
        else:
            text = self._chat_template().render(prompt)
            ids = self.vocab.encode(text, special=True)
            opens = bool(ids) and ids[0] == self.vocab.bos
        return [self.vocab.bos, *ids] if self.vocab.adds_bos and not opens else ids

    def _chat_template(self) -> ChatTemplate:
        if self._template is None:
            if not self._loaded.target.template:
                raise TemplateError(f"{self.pair.target.name} has no chat template. Use `--raw` to send the prompt as it is.")
            bos, eos = (self.vocab.special_text(token) for token in (self.vocab.bos, self.vocab.eos))
            self._template = ChatTemplate(self._loaded.target.template, bos, eos)
        return self._template

    def reply(
        self,
        prompt: str | Sequence[Message],
        sampling: Sampling,
        max_tokens: int | None = None,
        stops: Sequence[str] = (),
        cancel: Callable[[], bool] = lambda: False,
        on_prefill: Callable[[int, int], None] = lambda done, total: None,
    ) -> Iterator[Chunk]:
        """Streams the reply. Raises ContextError when the prompt does not fit, TemplateError, ModelError."""
        ids = self.encode(prompt)
        if not ids:
            raise ContextError("The prompt is empty. Say something.")
        if len(ids) >= self.n_ctx:
            raise ContextError(f"The prompt has {len(ids)} tokens, but the context holds {self.n_ctx}. Shorten it, or raise `--context`.")
        reply = _Reply(self, ids, sampling, min(max_tokens or self.n_ctx, self.n_ctx - len(ids)), stops)
        return reply.run(cancel, on_prefill)

    def close(self) -> None:
        """Frees the models."""
        self._loaded.close()


class _Reply:
    """The state of one reply: its tokens so far, its text, its numbers."""

    def __init__(self, engine: Engine, prompt: Sequence[int], sampling: Sampling, most: int, stops: Sequence[str]) -> None:
        self.engine, self.most, self.n_prompt = engine, most, len(prompt)
        self.tokens: Tokens = np.empty(len(prompt) + most, dtype=np.int32)
        self.tokens[: len(prompt)] = prompt
        self.n = len(prompt)
        self.sampler, self.text, self.stats = Sampler(sampling), TextStream(stops), Stats(prompt_n=len(prompt))
        self.finish_reason: str | None = None

    def run(self, cancel: Callable[[], bool], on_prefill: Callable[[int, int], None]) -> Iterator[Chunk]:
        """Prefill, then one chunk per target pass."""
        began = time.perf_counter()
        self._prefill(cancel, on_prefill)
        self.stats.prompt_seconds = time.perf_counter() - began
        while self.finish_reason is None:
            if cancel():
                self.finish_reason = "cancelled"
                break
            began = time.perf_counter()
            chunk = self._step()
            self.stats.decode_seconds += time.perf_counter() - began
            yield chunk
        self._close_stats()
        tail = self.text.finish()
        yield Chunk(tail, pieces=(tail,), finish_reason=self.finish_reason, stats=self.stats)

    def _prefill(self, cancel: Callable[[], bool], on_prefill: Callable[[int, int], None]) -> None:
        """Decodes the prompt but for its last token in pieces: the backend remembers, so the first step has little left to do."""
        backend, total = self.engine.loop.backend, self.n_prompt - 1
        self.stats.cached_n = backend.n_cached(self.tokens[: self.n_prompt])
        for end in [*range(self.stats.cached_n + PREFILL, total, PREFILL), total]:
            if cancel():
                self.finish_reason = "cancelled"
                return
            if end > self.stats.cached_n:
                backend.forward(self.tokens[:end])
            on_prefill(end, total)

    def _step(self) -> Chunk:
        """One target pass, cut where the model ends its turn or a stop string appears."""
        position = self.n - self.n_prompt
        step = self.engine.loop.step(self.tokens[: self.n], self.sampler, position, self.most - position)
        kept, pieces = 0, []
        for token in step.tokens:
            self.tokens[self.n + kept] = token
            kept += 1
            if self.engine.vocab.is_end(token):
                self.finish_reason = "stop"
                pieces.append("")
                break
            pieces.append(self.text.feed(self.engine.vocab.piece(token)))
            if self.text.stopped:
                self.finish_reason = "stop"
                break
        self.n += kept
        self.stats.count(step, kept)
        if self.finish_reason is None and self.n - self.n_prompt >= self.most:
            self.finish_reason = "length"
        drafted = tuple(i < step.n_accepted for i in range(kept))
        return Chunk("".join(pieces), step.tokens[:kept], drafted, tuple(pieces))

    def _close_stats(self) -> None:
        """What is only worth saying at the end."""
        stats, loop = self.stats, self.engine.loop
        stats.plain_per_second = loop.controller.plain_rate
        if loop.failed or 2 * stats.drafters["none"] > stats.passes:
            stats.reason = loop.why_plain()
        stats.memory_bytes = psutil.Process().memory_info().rss


__all__ = ["Chunk", "Engine", "Message", "Options", "Sampling"]
