"""An engine whose model runs on another server. Chat, command line and server use it like any engine.

It reports its limits: the server decides about reproducible replies, drafts and their costs. The server's statistics
about drafts are passed on.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from itertools import count
from threading import RLock, Thread
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.conversation.chat_template import USUAL_FORM, Message, TemplateForm
from runtime.conversation.prompt import Prompt
from runtime.conversation.quoting import Rendered
from runtime.conversation.window import POLICIES
from runtime.core.backend import SERVERS, OnProgress
from runtime.core.errors import ContextError, SettingsError
from runtime.core.limits import UNLIMITED, Admission
from runtime.engine.engine import Ask
from runtime.engine.output import Chunk, Sink, Status, ignore
from runtime.engine.streams import PushedEngine
from runtime.loading.options import Options
from runtime.models.registry import Pair
from runtime.speculative.control.explain import Explanation, Pass
from runtime.upstream.connection import Connection, EventStream
from runtime.upstream.reply import UpstreamReply
from runtime.upstream.request import body_of, path_of, without_oldest_turn
from runtime.upstream.server import Drafted, facts_of, look_when_loaded, read_metrics, where
from runtime.upstream.words import END, Words

DROPPED = "The oldest turns were left out, because the server says that the conversation is too long for its model."


class Exchange:
    """A reply that waits, or that a thread of its own reads from the server. Its sink gets outputs up to its end."""

    def __init__(self, number: int, ask: Ask, sink: Sink, words: Words) -> None:
        self.number, self.ask, self.sink = number, ask, sink
        self.reply = UpstreamReply(words, ask.stops)
        self._stream: EventStream | None = None
        self._lock, self.is_running, self._is_over = RLock(), False, False

    def tell(self, output: Chunk | Exception) -> None:
        """Pass an output on, unless the reply has ended."""
        with self._lock:
            if not self._is_over:
                self._is_over = isinstance(output, Exception) or output.finish_reason is not None
                self.sink(output)

    def read(self, open_stream: Callable[[Ask], EventStream]) -> None:
        """Pass on what the server sends, without the oldest turns if the conversation is too long for its model. The
        first output is empty. Raises UpstreamError, ContextError and SettingsError.
        """
        ask, stream = self.ask, open_stream(self.ask)  # refuses unsupported settings immediately
        self.tell(Chunk(""))
        while True:
            with self._lock:
                if self._is_over:
                    return
                self._stream = stream
            try:
                self._take_all(stream)
                return
            except ContextError:
                shorter = without_oldest_turn(ask)
                if shorter is None or self.reply.has_begun:
                    raise
                ask, stream, self.reply.notice = shorter, open_stream(shorter), DROPPED

    def _take_all(self, stream: EventStream) -> None:
        with closing(stream.events()) as events:
            for event in events:
                with self._lock:
                    for chunk in self.reply.chunks(event):
                        self.tell(chunk)
                if self._is_over or self.reply.is_over:
                    stream.stop()
                    break

    def cancel(self) -> None:
        """End the reply with what has arrived, at once, and cancel the rest, which the server notices."""
        with self._lock:
            if not self._is_over:
                self.reply.finish_reason = "cancelled"
                self.tell(self.reply.end())
        self.stop()

    def stop(self) -> None:
        """Cancel the rest of the reply, whose thread then ends."""
        if self._stream:
            self._stream.stop()


class UpstreamEngine(PushedEngine):
    """A model on another server. Several replies may be generated at the same time; each is read by its own thread."""

    def __init__(self, pair: Pair, options: Options | None = None, on_progress: OnProgress | None = None) -> None:
        """Query the server, and wait while it is loading its model. Raises UpstreamError, or KeyboardInterrupt."""
        report = on_progress or (lambda part, share: True)
        if not report("target", 0.0):
            raise KeyboardInterrupt
        self.limits = options.limits if options else UNLIMITED
        self.pair, self._words, self._reply = pair, Words(), UpstreamReply(Words(), ())
        self._connection = Connection(pair.upstream, os.environ.get(pair.upstream_key, ""), pair.upstream_key)
        self._server = look_when_loaded(self._connection, pair.upstream_model, lambda: report(SERVERS, 0.0))
        self._drafted: Drafted | None = None
        self._look_at_metrics()
        self.facts = facts_of(self._server, self._connection, options or Options())
        self._numbers, self._lock, self._admission = count(1), RLock(), Admission(self.limits)
        self._exchanges: list[Exchange] = []

    def encode(self, prompt: Prompt) -> list[int]:
        """Return the ids of Words for a prompt; see Engine."""
        return self._words.encode(prompt)

    def render(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = (), form: TemplateForm = USUAL_FORM
    ) -> Rendered:
        """Return the conversation as it is sent; the server decides what the model reads. Raises TemplateError."""
        return self._words.render(messages, tools, form)

    def tokenize(self, text: str, *, special: bool = True, bos: bool = False) -> list[int]:
        """Return the ids of Words for a text; see Engine."""
        return self._words.encode(text)

    def token_bytes(self, token: int) -> bytes:
        """Return the bytes of a token; see Engine."""
        return self._words.bytes_of(token)

    def token_text(self, token: int) -> str:
        """Return the text of a token; see Engine."""
        return self._words.bytes_of(token).decode("utf8", "replace")

    def is_end(self, token: int) -> bool:
        """Return whether a token ends the turn; see Engine."""
        return token == END

    @property
    def end_tokens(self) -> tuple[int, ...]:
        """A placeholder for the model's own."""
        return (END,)

    def add(self, ask: Ask, sink: Sink) -> int:
        """See Engine. If the server fails, the sink gets an UpstreamError."""
        exchange = Exchange(next(self._numbers), ask, sink, self._words)
        with self._lock:
            self.limits.check(ask, *self._waiting_and_running(), holds_one=False)
            self._exchanges.append(exchange)
            self._admit()
        return exchange.number

    def _waiting_and_running(self) -> tuple[list[Exchange], list[Exchange]]:
        found = tuple(self._exchanges)
        return [each for each in found if not each.is_running], [each for each in found if each.is_running]

    def _admit(self) -> None:
        for exchange in self._admission.admit(*self._waiting_and_running(), holds_one=False):
            exchange.is_running = True
            Thread(target=self._read, args=(exchange,), daemon=True, name="upstream").start()

    def _read(self, exchange: Exchange) -> None:
        self._reply = exchange.reply
        try:
            exchange.read(self._stream)
            if exchange.reply.finish_reason is None:
                raise self._connection.broken()
            self._look_at_metrics()
            exchange.tell(exchange.reply.end())
        except Exception as error:
            exchange.tell(error)
        finally:
            self._leave(exchange)

    def _stream(self, ask: Ask) -> EventStream:
        """Return the stream of events for a request. Raises SettingsError for unsupported settings."""
        if ask.when_full not in POLICIES:
            raise SettingsError(f"when_full is '{ask.when_full}': it must be one of {', '.join(POLICIES)}.")
        if not (prompt := self._words.decode(ask.prompt)):
            raise ContextError("The prompt is empty. Write something.")
        return EventStream(self._connection, path_of(prompt), body_of(ask, prompt, self._server))

    def _leave(self, exchange: Exchange) -> None:
        """Give up the place of a reply that has ended, or that still waits."""
        with self._lock:
            self._exchanges = [each for each in self._exchanges if each is not exchange]
            self._admit()

    def cancel(self, number: int) -> None:
        """See Engine."""
        for exchange in tuple(self._exchanges):
            if exchange.number == number:
                exchange.cancel()
                self._leave(exchange)

    def end(self, number: int) -> None:
        """See Engine."""
        for exchange in tuple(self._exchanges):
            if exchange.number == number:
                exchange.sink = ignore
        self.cancel(number)

    def _look_at_metrics(self) -> None:
        """Read the server's statistics about drafts, if it has metrics."""
        if self._server.has_metrics:
            self._drafted = read_metrics(self._connection)

    def passes(self, first: int = 0) -> tuple[Pass, ...]:
        """Return the pieces of the last reply as passes, because the actual passes are unknown."""
        return tuple(self._reply.passes[first:])

    def explain(self) -> Explanation:
        """Return the explanation that the server decides about drafts, with its statistics."""
        told = f"; {self._drafted}" if self._drafted else ""
        why = f"{where(self._server, self._connection)} has the model and decides about drafts itself{told}"
        return Explanation((), (), 0.0, 0.0, 0.0, None, (), None, 0.0, 0.0, 0.0, why)

    def texts_to_ids(self, texts: Sequence[str], cuts: bool = False) -> list[list[int]]:
        """Raise SettingsError as `embed` does."""
        self.embed(())
        return []

    def pairs_to_ids(self, query: str, documents: Sequence[str]) -> list[list[int]]:
        """Raise SettingsError as `embed` does."""
        self.embed(())
        return []

    def embed(self, inputs: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        """Raise SettingsError: neither embeddings nor scores are available here."""
        raise SettingsError(f"Embeddings are made by {where(self._server, self._connection)}. Send the request there.")

    def close(self) -> None:
        """End the replies that are being generated."""
        for exchange in tuple(self._exchanges):
            exchange.stop()

    @property
    def status(self) -> Status:
        """See Engine; the server decides how many conversations it caches."""
        waiting, running = self._waiting_and_running()
        return Status(len(running), len(waiting))
