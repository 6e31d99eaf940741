"""An engine whose model another server has. Chat, command line and server ask it as any engine.

What cannot be had there is said: whether a text comes again, drafts and their costs are that server's; what it tells of
them is passed on.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from queue import Empty, SimpleQueue
from typing import Any

from runtime.core.backend import OnProgress
from runtime.core.errors import ContextError, SettingsError
from runtime.engine.chat_template import USUAL_FORM, Message, TemplateForm
from runtime.engine.engine import Ask, Engine, EngineFacts
from runtime.engine.prompt import Prompt
from runtime.engine.reply import Chunk
from runtime.engine.window import POLICIES, talk_of, without_oldest
from runtime.loading.exactness import Exactness
from runtime.loading.options import Options
from runtime.models.registry import Pair
from runtime.speculative.control.explain import Explanation, Pass
from runtime.upstream.connection import Connection, EventStream
from runtime.upstream.reply import UpstreamReply
from runtime.upstream.request import body_of, path_of
from runtime.upstream.server import PROGRAMS, UNKNOWN, Server, look_at
from runtime.upstream.speculation import Drafted, read_metrics
from runtime.upstream.words import END, N_BYTES, TEMPLATE, Words

LOOK, GLANCE = 0.05, 0.005  # seconds to wait for more of a reply: alone, and where others want their turn
DROPPED = "The oldest turns were left out, as the server says that the conversation is too long for its model."
Came = dict[str, Any] | BaseException | None  # an event, what went wrong, or the end


class UpstreamEngine(Engine):
    """A model of another server's. Replies may be made at once, and one thread reads each."""

    def __init__(self, pair: Pair, options: Options | None = None, on_progress: OnProgress | None = None) -> None:
        """Raises UpstreamError."""
        if on_progress and not on_progress("target", 0.0):
            raise KeyboardInterrupt
        self.pair, self._words, self._reply = pair, Words(), UpstreamReply(Words(), ())
        self._connection = Connection(pair.upstream, os.environ.get(pair.upstream_key, ""), pair.upstream_key)
        self._server = look_at(self._connection, pair.upstream_model)
        self._drafted: Drafted | None = None
        self._look_at_metrics()
        self.facts = facts_of(self._server, self._connection, options or Options())
        self._streams = set[EventStream]()

    def encode(self, prompt: Prompt) -> list[int]:
        """As Engine says; the ids are those of Words."""
        return self._words.encode(prompt)

    def render(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = (), form: TemplateForm = USUAL_FORM
    ) -> str:
        """The conversation as it is sent; what the model reads of it the server decides. Raises TemplateError."""
        return self._words.render(messages, tools, form)

    def tokenize(self, text: str, *, special: bool = True, bos: bool = False) -> list[int]:
        """As Engine says; the ids are those of Words."""
        return self._words.encode(text)

    def token_bytes(self, token: int) -> bytes:
        """As Engine says."""
        return self._words.bytes_of(token)

    def token_text(self, token: int) -> str:
        """As Engine says."""
        return self._words.bytes_of(token).decode("utf8", "replace")

    def is_end(self, token: int) -> bool:
        """As Engine says."""
        return token == END

    @property
    def end_tokens(self) -> tuple[int, ...]:
        """One that stands for whichever the model has."""
        return (END,)

    def answer(
        self, ask: Ask, cancel: Callable[[], bool], on_prefill: Callable[[int, int], None], pauses: bool
    ) -> Iterator[Chunk]:
        """As Engine says. Raises UpstreamError on the way where the server fails."""
        if ask.when_full not in POLICIES:
            raise SettingsError(f"when_full is '{ask.when_full}': it must be one of {', '.join(POLICIES)}.")
        prompt = self._words.decode(ask.prompt)
        if not prompt:
            raise ContextError("The prompt is empty. Say something.")
        body = body_of(ask, prompt, self._server)
        self._reply = UpstreamReply(self._words, ask.stops)
        return self._chunks(
            self._reply, EventStream(self._connection, path_of(prompt), body), ask, cancel, on_prefill, pauses
        )

    def _chunks(
        self, reply: UpstreamReply, stream: EventStream, ask: Ask, cancel: Callable[[], bool],
        on_prefill: Callable[[int, int], None], pauses: bool,
    ) -> Iterator[Chunk]:  # fmt: skip
        came = self._read(stream)
        try:
            while not reply.is_over:
                event = waited_for(came, GLANCE if pauses else LOOK)
                if cancel():
                    reply.finish_reason = "cancelled"
                    break
                if event is NOTHING:
                    if pauses:
                        yield Chunk("")
                    continue
                if event is None:
                    break
                if isinstance(event, ContextError) and (shorter := shortened(ask)) and not reply.has_begun:
                    reply.notice = DROPPED
                    ask = shorter
                    stream, came = self._again(stream, ask)
                    continue
                if isinstance(event, BaseException):
                    raise event
                yield from self._taken(reply, event, on_prefill)
        finally:
            self._streams.discard(stream)
            stream.stop()
        if reply.finish_reason is None:
            raise self._connection.broken()
        self._look_at_metrics()
        yield reply.end()

    def _again(self, stream: EventStream, ask: Ask) -> tuple[EventStream, SimpleQueue[Came]]:
        """Another attempt, with less."""
        self._streams.discard(stream)
        prompt = self._words.decode(ask.prompt)
        again = EventStream(self._connection, path_of(prompt), body_of(ask, prompt, self._server))
        return again, self._read(again)

    def _read(self, stream: EventStream) -> SimpleQueue[Came]:
        """The events as they come, read on a thread of its own, as a reply may wait for long."""
        came = SimpleQueue[Came]()
        self._streams.add(stream)

        def work() -> None:
            try:
                for event in stream.events():
                    came.put(event)
                came.put(None)
            except BaseException as error:
                came.put(error)

        threading.Thread(target=work, daemon=True, name="upstream").start()
        return came

    def _taken(
        self, reply: UpstreamReply, event: dict[str, Any], on_prefill: Callable[[int, int], None]
    ) -> Iterator[Chunk]:
        """What an event brings; the prompt has been read when the first text comes."""
        if progress := reply.progress(event):
            done, total = progress
            on_prefill(max(0, min(done, total - 2)), total - 1)
        for chunk in reply.take(event):
            if len(reply.passes) == 1:
                on_prefill(*([progress[1] - 1] * 2 if progress else (0, 0)))
            yield chunk

    def _look_at_metrics(self) -> None:
        """What the server tells of drafts, where it does."""
        if self._server.has_metrics:
            self._drafted = read_metrics(self._connection)

    def passes(self, first: int = 0) -> tuple[Pass, ...]:
        """The pieces of the last reply, as nothing is known of passes."""
        return tuple(self._reply.passes[first:])

    def explain(self) -> Explanation:
        """That nothing is decided here, and what the server tells."""
        told = f"; {self._drafted}" if self._drafted else ""
        why = f"{where(self._server, self._connection)} has the model and decides about drafts itself{told}"
        return Explanation((), (), 0.0, 0.0, 0.0, None, (), None, 0.0, 0.0, 0.0, why)

    def embed(self, tokens: Sequence[int]) -> list[float]:
        """Raises SettingsError."""
        raise SettingsError(f"Embeddings are made by {where(self._server, self._connection)}: ask it there for them.")

    def share(self, n_waiting: int) -> None:
        """The server shares its time itself."""

    def tend(self) -> None:
        """There is nothing to look after."""

    def close(self) -> None:
        """Ends the replies that are being made."""
        for stream in tuple(self._streams):
            stream.stop()

    @property
    def turn_seconds(self) -> float:
        """Whoever's text has come is told it."""
        return 0.0

    @property
    def n_held(self) -> int:
        """Conversations that the server holds are its own."""
        return 0

    @property
    def memory_level(self) -> str:
        """Nothing is held here."""
        return "OK"

    @property
    def given_up(self) -> str:
        """Nothing."""
        return ""


NOTHING: Came = {}


def waited_for(came: SimpleQueue[Came], seconds: float) -> Came:
    """What comes within that time, or NOTHING."""
    try:
        return came.get(timeout=seconds)
    except Empty:
        return NOTHING


def shortened(ask: Ask) -> Ask | None:
    """The same without its oldest turn, where one may be left out."""
    talk = talk_of(ask.prompt) if ask.when_full == "drop-oldest" else None
    if talk is None:
        return None
    kept = without_oldest(talk.messages)
    return replace(ask, prompt=replace(talk, messages=tuple(kept))) if len(kept) < len(talk.messages) else None


def where(server: Server, connection: Connection) -> str:
    """The program and its address."""
    return f"{PROGRAMS.get(server.program, 'the server')} at {connection.base}"


def facts_of(server: Server, connection: Connection, options: Options) -> EngineFacts:
    """What is known of a model elsewhere, and what is not."""
    place = where(server, connection)
    ignored = [name for name, is_asked in (
        ("drafters", options.drafters is not None), ("exact kernels", options.exact), ("threads", options.threads),
        ("a context", options.n_ctx),
    ) if is_asked]  # fmt: skip
    left_out = f"{server.model} is run by {place}: drafts, and whether a text comes again, are its to decide"
    if ignored:
        left_out += f"; what was asked for is without effect: {', '.join(ignored)}"
    unsaid = "" if server.n_ctx else "; it does not say how much context there is"
    plainly = "; the key goes there unencrypted" if connection.has_key and connection.base.startswith("http:") else ""
    return EngineFacts(
        n_ctx=server.n_ctx or UNKNOWN,
        n_ctx_train=server.n_ctx or UNKNOWN,
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
    )
