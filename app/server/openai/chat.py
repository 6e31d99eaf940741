"""Chat completions as OpenAI's clients ask for them and read them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Literal

from pydantic import Field

from app.server.ask import Ask
from app.server.errors import ApiError
from app.server.fields import Content, Fields, OpenAIFields, join
from app.server.openai.calls import Calls, merged
from app.server.openai.logprobs import for_chat
from app.server.openai.thinking import BEGIN, Thoughts, opens
from app.server.openai.tools import CallFields, Choice, ToolFields, Tools, chosen, described, knows_tools
from app.server.reply import Event, new_id, now, timings, usage
from runtime.engine import Chunk, Engine, Ids, Message, Prompt
from runtime.engine.stats import Stats

ROLES = {"developer": "system", "function": "tool"}  # older and newer names


class ChatMessage(Fields):
    """One turn."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: Content | None = None
    name: str | None = None
    tool_calls: list[CallFields] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None

    def message(self, knows_tools: bool) -> Message:
        """As the engine wants it; what a template without tools cannot say becomes text."""
        text = join(self.content)
        if knows_tools:
            more = {
                "name": self.name,
                "tool_call_id": self.tool_call_id,
                "tool_calls": [call.value() for call in self.tool_calls or ()],
            }
            more["reasoning_content"] = self.reasoning_content
            return Message(ROLES.get(self.role, self.role), text, {key: value for key, value in more.items() if value})
        if self.role in ("tool", "function"):
            return Message("user", f"<tool_response>\n{text}\n</tool_response>")
        return Message(
            ROLES.get(self.role, self.role),
            "\n".join([text] * bool(text) + [call.text() for call in self.tool_calls or ()]),
        )


class ChatRequest(OpenAIFields):
    """The body of /v1/chat/completions."""

    messages: Annotated[list[ChatMessage], Field(min_length=1)]
    max_completion_tokens: Annotated[int, Field(ge=0)] | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    tools: list[ToolFields] | None = None
    tool_choice: Choice | None = None
    parallel_tool_calls: bool | None = None

    def ask(self, engine: Engine) -> Ask:
        """Raises SettingsError and ApiError."""
        tools, grammar = self._tools(), self.response_format.grammar() if self.response_format else None
        if tools and grammar:
            raise ApiError(
                400,
                "response_format and tools exclude each other. Leave one of them out, or set tool_choice to none.",
                "response_format",
            )
        if self.top_logprobs is not None and not self.logprobs:
            raise ApiError(400, "top_logprobs needs logprobs. Set logprobs to true as well.", "top_logprobs")
        return Ask(
            prompt=self._prompt,
            sampling=self.sampling(engine.pair),
            max_tokens=self.limit if self.max_completion_tokens is None else self.max_completion_tokens,
            stops=tuple(self.stop or ()),
            grammar=tools.grammar() if tools else grammar,
            n_logprobs=(self.top_logprobs or 0) if self.logprobs else None,
            prediction=join(self.prediction.content) if self.prediction else "",
            text_field="messages",
        )

    def _tools(self) -> Tools | None:
        return chosen(self.tools or (), self.tool_choice, self.parallel_tool_calls is not False)

    def _prompt(self, engine: Engine) -> Prompt:
        """The messages, and the tools where the model finds them."""
        tools, knows = self._tools(), knows_tools(engine.template)
        messages = [message.message(knows) for message in self.messages]
        if tools and knows:
            return Ids(tuple(engine.tokenize(engine.render(messages, tools.as_given()), bos=True)))
        return described(messages, tools) if tools else messages

    def form(self, engine: Engine) -> ChatForm:
        """How the reply is worded."""
        include_usage = bool(self.stream_options and self.stream_options.include_usage)
        return ChatForm(
            engine, bool(self.logprobs), include_usage, Calls() if self._tools() else None, self.thinking(engine)
        )

    def thinking(self, engine: Engine) -> Thoughts | None:
        """For models that think. What a grammar wants has no room for it."""
        tools = self._tools()
        if (
            BEGIN not in engine.template
            or (self.response_format and self.response_format.grammar())
            or (tools and tools.required)
        ):
            return None
        messages = [message.message(knows_tools(engine.template)) for message in self.messages]
        prompt = engine.render(messages, tools.as_given() if tools and knows_tools(engine.template) else ())
        return Thoughts(opens(prompt))


class ChatForm:
    """The bodies of chat completions. Implements Form."""

    last_line = b"data: [DONE]\n\n"

    def __init__(
        self,
        engine: Engine,
        logprobs: bool,
        include_usage: bool,
        calls: Calls | None = None,
        thinking: Thoughts | None = None,
    ) -> None:
        self.engine, self.logprobs, self.include_usage, self.calls, self.thinking = (
            engine,
            logprobs,
            include_usage,
            calls,
            thinking,
        )
        self.head: Event = {"id": new_id("chatcmpl"), "created": now(), "model": engine.pair.name}

    def begin(self) -> Iterable[Event]:
        """Who speaks."""
        yield self._event({"role": "assistant", "content": ""})

    def piece(self, chunk: Chunk) -> Iterator[Event]:
        """Text, calls, and the log probabilities of the tokens."""
        deltas = list(self._deltas(chunk))
        if self.logprobs and chunk.logprobs:
            deltas = deltas or [{"content": ""}]
        for i, delta in enumerate(deltas):
            yield self._event(delta, () if i else [chunk])

    def _deltas(self, chunk: Chunk) -> Iterator[Event]:
        """What the chunk's text says, in pieces of thought, of text and of calls."""
        for delta in self._told(chunk):
            if self.calls and "content" in delta:
                yield from self.calls.feed(str(delta["content"]))
            else:
                yield delta
        if self.calls and chunk.finish_reason:
            yield from self.calls.finish()

    def _told(self, chunk: Chunk) -> Iterator[Event]:
        """The text, told apart from what was only thought."""
        if self.thinking:
            yield from self.thinking.read(chunk)
        elif chunk.text:
            yield {"content": chunk.text}

    def _finish_reason(self, last: Chunk) -> str | None:
        return "tool_calls" if self.calls and self.calls.n and last.finish_reason == "stop" else last.finish_reason

    def end(self, last: Chunk) -> Iterator[Event]:
        """Why it ended, and the numbers with the last event."""
        stats = last.stats
        numbers: Event = {"timings": timings(stats)} if stats else {}
        finish = self._event({}, finish_reason=self._finish_reason(last))
        if self.include_usage and stats:
            yield finish
            yield self.head | {"object": "chat.completion.chunk", "choices": [], "usage": self._usage(stats)} | numbers
        else:
            yield finish | numbers

    def _event(self, delta: Event, chunks: Sequence[Chunk] = (), finish_reason: str | None = None) -> Event:
        choice: Event = {"index": 0, "delta": delta, "finish_reason": finish_reason, "logprobs": self._logprobs(chunks)}
        event = self.head | {"object": "chat.completion.chunk", "choices": [choice]}
        return event | {"usage": None} if self.include_usage else event

    def _usage(self, stats: Stats) -> Event:
        return usage(stats, self.thinking.n_tokens if self.thinking else 0)

    def _logprobs(self, chunks: Sequence[Chunk]) -> Event | None:
        return for_chat(self.engine, chunks) if self.logprobs and chunks else None

    def whole(self, chunks: Sequence[Chunk]) -> Event:
        """The reply in one body."""
        last, deltas = chunks[-1], [delta for chunk in chunks for delta in self._deltas(chunk)]
        text, calls = "".join(str(delta.get("content", "")) for delta in deltas), merged(deltas)
        message: Event = {"role": "assistant", "content": text} | (
            {"content": text or None, "tool_calls": calls} if calls else {}
        )
        if thought := "".join(str(delta.get("reasoning_content", "")) for delta in deltas):
            message["reasoning_content"] = thought
        choice = {
            "index": 0,
            "message": message,
            "finish_reason": self._finish_reason(last),
            "logprobs": self._logprobs(chunks),
        }
        numbers: Event = {"usage": self._usage(last.stats), "timings": timings(last.stats)} if last.stats else {}
        return self.head | {"object": "chat.completion", "choices": [choice]} | numbers
