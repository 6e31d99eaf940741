"""An engine whose model runs on another server. Chat, command line and server use it like any engine.

It reports its limits: the server decides about reproducible replies, drafts and their costs. The server's statistics
about drafts are passed on.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from runtime.conversation.chat_template import USUAL_FORM, Message, TemplateForm
from runtime.conversation.prompt import Prompt
from runtime.conversation.quoting import Rendered
from runtime.conversation.window import POLICIES
from runtime.core.backend import SERVERS, OnProgress
from runtime.core.errors import ContextError, SettingsError
from runtime.core.limits import UNLIMITED
from runtime.engine.engine import Ask, Engine, EngineFacts
from runtime.engine.output import Chunk, Status
from runtime.loading.exactness import Exactness
from runtime.loading.options import Options
from runtime.models.registry import Pair
from runtime.speculative.control.explain import Explanation, Pass
from runtime.upstream.connection import Connection, EventStream
from runtime.upstream.exchange import Event, Exchange
from runtime.upstream.reply import UpstreamReply
from runtime.upstream.request import body_of, path_of
from runtime.upstream.server import PROGRAMS, Server, look_when_loaded
from runtime.upstream.speculation import Drafted, read_metrics
from runtime.upstream.threaded import ThreadedReplies
from runtime.upstream.words import END, N_BYTES, TEMPLATE, Words

USUAL_CONTEXT = 131_072  # tokens, where a server does not report its context
POLL_SECONDS = 0.05  # seconds to wait for more of a reply between two checks for cancellation
DROPPED = "The oldest turns were left out, because the server says that the conversation is too long for its model."


class UpstreamEngine(ThreadedReplies, Engine):
    """A model on another server. Several replies may be generated at the same time; each is read by its own thread."""

    def __init__(self, pair: Pair, options: Options | None = None, on_progress: OnProgress | None = None) -> None:
        """Query the server, and wait while it is loading its model. Raises UpstreamError, or KeyboardInterrupt."""
        super().__init__(options.limits if options else UNLIMITED)
        report = on_progress or (lambda part, share: True)
        if not report("target", 0.0):
            raise KeyboardInterrupt
        self.pair, self._words, self._reply = pair, Words(), UpstreamReply(Words(), ())
        self._connection = Connection(pair.upstream, os.environ.get(pair.upstream_key, ""), pair.upstream_key)
        self._server = look_when_loaded(self._connection, pair.upstream_model, lambda: report(SERVERS, 0.0))
        self._drafted: Drafted | None = None
        self._look_at_metrics()
        self.facts = facts_of(self._server, self._connection, options or Options())
        self._exchanges = set[Exchange]()

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

    def answer(self, ask: Ask, cancel: Callable[[], bool], on_prefill: Callable[[int, int], None]) -> Iterator[Chunk]:
        """Yield the chunks of a reply; see Engine. Raises UpstreamError during the reply if the server fails."""
        if ask.when_full not in POLICIES:
            raise SettingsError(f"when_full is '{ask.when_full}': it must be one of {', '.join(POLICIES)}.")
        prompt = self._words.decode(ask.prompt)
        if not prompt:
            raise ContextError("The prompt is empty. Write something.")
        self._stream(ask)  # refuses unsupported settings immediately
        self._reply = UpstreamReply(self._words, ask.stops)
        return self._chunks(self._reply, ask, cancel, on_prefill)

    def _stream(self, ask: Ask) -> EventStream:
        """Return the stream of events for a request. Raises SettingsError for unsupported settings."""
        prompt = self._words.decode(ask.prompt)
        return EventStream(self._connection, path_of(prompt), body_of(ask, prompt, self._server))

    def _chunks(
        self, reply: UpstreamReply, ask: Ask, cancel: Callable[[], bool], on_prefill: Callable[[int, int], None]
    ) -> Iterator[Chunk]:
        exchange = Exchange(ask, self._stream)
        self._exchanges.add(exchange)
        try:
            for event in self._events(reply, exchange, cancel):
                yield from self._taken(reply, event, on_prefill)
        finally:
            self._exchanges.discard(exchange)
            exchange.stop()
        if reply.finish_reason is None:
            raise self._connection.broken()
        self._look_at_metrics()
        yield reply.end()

    def _events(self, reply: UpstreamReply, exchange: Exchange, cancel: Callable[[], bool]) -> Iterator[Event]:
        """Yield the events of a reply until it is over or cancelled, and NOTHING regularly while none arrives."""
        while not reply.is_over:
            try:
                event = exchange.next(POLL_SECONDS)
            except ContextError:
                if reply.has_begun or not exchange.ask_for_less():
                    raise
                reply.notice = DROPPED
                continue
            if cancel():
                reply.finish_reason = "cancelled"
                return
            if event is None:
                return
            yield event

    def _taken(self, reply: UpstreamReply, event: Event, on_prefill: Callable[[int, int], None]) -> Iterator[Chunk]:
        """Yield the chunks of an event, and report the prompt as read when the first text arrives."""
        if progress := reply.progress(event):
            done, total = progress
            on_prefill(max(0, min(done, total - 2)), total - 1)
        for chunk in reply.take(event):
            if len(reply.passes) == 1:
                on_prefill(*([progress[1] - 1] * 2 if progress else (0, 0)))
            yield chunk

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

    def embed(self, tokens: Sequence[int]) -> list[float]:
        """Raise SettingsError: embeddings are not available here."""
        raise SettingsError(f"Embeddings are made by {where(self._server, self._connection)}. Send the request there.")

    def close(self) -> None:
        """End the replies that are being generated."""
        for exchange in tuple(self._exchanges):
            exchange.stop()

    @property
    def status(self) -> Status:
        """See Engine; the server decides how many conversations it caches."""
        return Status(len(self._running), len(self._waiting))


def where(server: Server, connection: Connection) -> str:
    """Return the program and its address."""
    return f"{PROGRAMS.get(server.program, 'the server')} at {connection.base}"


def facts_of(server: Server, connection: Connection, options: Options) -> EngineFacts:
    """Return the facts about a model on another server, with notes on unknown ones and ignored options."""
    place = where(server, connection)
    ignored = [name for name, is_asked in (
        ("drafters", options.drafters is not None), ("exact kernels", options.exact), ("threads", options.threads),
        ("a context", options.n_ctx),
    ) if is_asked]  # fmt: skip
    left_out = remark = f"{server.model} is run by {place}, which decides about drafts and reproducibility"
    if ignored:
        left_out += f"; these options have no effect: {', '.join(ignored)}"
    unsaid = "" if server.n_ctx else "; it does not report the size of its context"
    plainly = "; the key goes there unencrypted" if connection.has_key and connection.base.startswith("http:") else ""
    return EngineFacts(
        n_ctx=server.n_ctx or USUAL_CONTEXT,
        n_ctx_train=server.n_ctx or USUAL_CONTEXT,
        n_vocab=N_BYTES,
        n_embd=0,
        n_bytes=0,
        template=TEMPLATE,
        fit=f"{server.model} at {connection.base}{unsaid}{plainly}",
        left_out=left_out,
        exactness=Exactness(1, 1),
        is_reproducible=False,
        can_draft=False,
        could_be_exact=False,
        has_gpu=False,
        can_infill=False,
        shares_passes=True,
        upstream=place,
        remark=remark,
    )
