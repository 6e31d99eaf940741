"""Chat completions as OpenAI's clients ask for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from app.reasoning import BEGIN, opens_reasoning
from app.server.endpoint import generation_endpoint
from app.server.errors import ApiError
from app.server.fields import Content, RequestModel, text_of
from app.server.generation import PromptIds
from app.server.openai.chat_response import ChatCompletion, ChatFormatter
from app.server.openai.common import OpenAIRequest
from app.server.openai.reply_reader import ReplyReader
from app.server.openai.tool_call_parser import ToolCallParser
from app.server.openai.tools import (
    PastToolCall,
    ToolChoiceInput,
    ToolDefinition,
    ToolSet,
    allowed_tools,
    supports_tools,
    with_tools_described,
)
from app.server.progress import Progress
from app.server.reasoning import ReasoningReader
from app.server.task import CompletionTask
from runtime.engine import Engine, Ids, Message, Prompt

MAX_LOGPROBS = 20  # as with OpenAI
ROLES = {"developer": "system", "function": "tool"}  # newer and older names


class ChatMessage(RequestModel):
    """A message of the conversation so far."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: Content | None = None
    name: str | None = None
    tool_calls: list[PastToolCall] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None

    def message(self, with_tools: bool) -> Message:
        """As the engine takes it; without `with_tools`, what the chat template does not support becomes text."""
        role, text, calls = ROLES.get(self.role, self.role), text_of(self.content), self.tool_calls or ()
        if with_tools:
            more = {
                "name": self.name,
                "tool_call_id": self.tool_call_id,
                "tool_calls": [call.for_template() for call in calls],
                "reasoning_content": self.reasoning_content,
            }
            return Message(role, text, {key: value for key, value in more.items() if value})
        if role == "tool":
            return Message("user", f"<tool_response>\n{text}\n</tool_response>")
        return Message(role, "\n".join([text] * bool(text) + [call.text() for call in calls]))


Messages = Annotated[list[ChatMessage], Field(min_length=1)]


class ChatRequest(OpenAIRequest):
    """The body of a request to /v1/chat/completions."""

    messages: Messages
    max_completion_tokens: Annotated[int, Field(ge=-1)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_LOGPROBS)] | None = None
    return_progress: bool | None = None
    timings_per_token: bool | None = None
    tools: list[ToolDefinition] | None = None
    tool_choice: ToolChoiceInput | None = None
    parallel_tool_calls: bool | None = None

    @property
    def token_limit(self) -> int | None:
        """The most tokens to generate, by the newest of its names."""
        if self.max_completion_tokens is None:
            return super().token_limit
        return None if self.max_completion_tokens == -1 else self.max_completion_tokens

    def task(self, engine: Engine) -> CompletionTask:
        """Raises SettingsError and ApiError."""
        tools, grammar = self._tools(), self.format_grammar()
        if self.top_logprobs is not None and not self.logprobs:
            raise ApiError(400, "top_logprobs needs logprobs. Set logprobs to true as well.", "top_logprobs")
        return CompletionTask(
            prompt=self._prompt,
            sampling=self.sampling(engine),
            max_tokens=self.token_limit,
            stops=tuple(self.stop or ()),
            grammar=tools.grammar(grammar) if tools else grammar,
            n_logprobs=(self.top_logprobs or 0) if self.logprobs else None,
            after_sampling=bool(self.post_sampling_probs),
            prediction=self.predicted_text,
            prompt_field="messages",
        )

    def _tools(self) -> ToolSet | None:
        return allowed_tools(self.tools or (), self.tool_choice, self.parallel_tool_calls is not False)

    def _prompt(self, engine: Engine) -> Prompt:
        """The messages, and the tools where the model finds them."""
        tools, with_tools = self._tools(), supports_tools(engine.template)
        messages = [message.message(with_tools) for message in self.messages]
        if tools and with_tools:
            return Ids(tuple(engine.tokenize(engine.render(messages, tools.for_template()), bos=True)))
        return with_tools_described(messages, tools) if tools else messages

    def formatter(self, engine: Engine, prompts: Sequence[PromptIds]) -> ChatFormatter:
        """How the replies are written."""
        first, *more = [self.reply_reader(engine) for _ in prompts]
        return ChatFormatter(engine, bool(self.logprobs), self.include_usage, first, more, self._progress)

    def _progress(self) -> Progress:
        return Progress(bool(self.return_progress), bool(self.timings_per_token))

    def reply_reader(self, engine: Engine) -> ReplyReader:
        """How the reply is read."""
        return ReplyReader(ToolCallParser() if self._tools() else None, self._reasoning_reader(engine))

    def _reasoning_reader(self, engine: Engine) -> ReasoningReader | None:
        """For a model that reasons, unless a grammar leaves no room for it."""
        tools, with_tools = self._tools(), supports_tools(engine.template)
        if BEGIN not in engine.template or self.format_grammar() or (tools and tools.required):
            return None
        messages = [message.message(with_tools) for message in self.messages]
        prompt = engine.render(messages, tools.for_template() if tools and with_tools else ())
        return ReasoningReader(opens_reasoning(prompt))


ENDPOINT = generation_endpoint("/chat/completions", ChatRequest, ChatCompletion)
