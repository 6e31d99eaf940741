"""/v1/chat/completions: requests, and the task and reader for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from app.reply_text import BEGIN, END
from app.server.endpoint import generation_endpoint
from app.server.errors import ApiError
from app.server.fields import Whole
from app.server.openai.chat_response import ChatCompletion, ChatFormatter
from app.server.openai.common import OpenAIRequest
from app.server.openai.conversation import ConversationRequest, WrittenPrompt
from app.server.openai.reply_reader import Delta, ReasoningReader, ReplyReader, ToolCallParser
from app.server.openai.tools import form_for
from app.server.task import CompletionTask, PromptIds, encoded
from runtime.conversation.calls import (
    DESCRIBED,
    MAY_THINK,
    NO_THOUGHT,
    OPEN_THOUGHT,
    BareCalls,
    CallParser,
    HarmonyParser,
    harmony_grammar,
    is_harmony,
)
from runtime.engine import Beginning, Chunk, Engine, Grammar, Ids, Pictured, ThoughtBudget, with_images
from runtime.engine.engine import Ask

MAX_LOGPROBS = 20  # as with OpenAI


def refuse_functions(value: object) -> object:
    """Raises PydanticCustomError for functions in OpenAI's old field, whose calls have another response format."""
    if value:
        raise PydanticCustomError("unsupported", "Input should be sent as tools, and function_call as tool_choice")
    return value


class ChatRequest(ConversationRequest, OpenAIRequest):
    """The body of a request to /v1/chat/completions."""

    prompt_field = "messages"
    max_completion_tokens: Annotated[Whole, Field(ge=-1)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[Whole, Field(ge=0, le=MAX_LOGPROBS)] | None = None
    functions: Annotated[list[Any], Field(max_length=0), BeforeValidator(refuse_functions)] | None = None
    return_progress: bool | None = None
    timings_per_token: bool | None = None

    @property
    def token_limit(self) -> int | None:
        """The most tokens to generate, by the newest of the field's names."""
        if self.max_completion_tokens is None:
            return super().token_limit
        return None if self.max_completion_tokens == -1 else self.max_completion_tokens

    def task(self, engine: Engine, i: int = 0) -> CompletionTask:
        """Return the task for the engine; see GenerationRequest."""
        if self.top_logprobs is not None and not self.logprobs:
            raise ApiError(400, "top_logprobs needs logprobs. Set logprobs to true as well.", "top_logprobs")
        sampling, prompt, thoughts = self.sampling(engine), self._prompt(engine), self._thoughts(engine)
        ask = Ask(
            prompt,
            sampling,
            self.token_limit,
            tuple(self.stop or ()),
            self._grammar(engine),
            thoughts,
            n_logprobs=(self.top_logprobs or 0) if self.logprobs else None,
            after_sampling=bool(self.post_sampling_probs),
            prediction=self.predicted_text,
        )
        return CompletionTask(ask, self.prompt_field, changes=self.written(engine).rendered.changes)

    def following(self, engine: Engine, reply: str) -> Ask | None:
        """See GenerationRequest; nothing follows an empty reply, or one that continues a message. Clients send content
        and calls back, most of them without reasoning.
        """
        if self.messages[-1].role == "assistant":  # the reply continues that message
            return None
        content, _, calls = self.reply_reader(engine).whole([Chunk(reply, finish_reason="stop")])
        if not (content or calls):
            return None
        answered = {"role": "assistant", "content": content or None, "tool_calls": calls or None}
        first, second = (self.followed_by(engine, [answered, *answers(calls, text)]) for text in ("a", "1"))
        return Ask(with_images(Beginning(first, second), self.images), self.sampling(engine), 0, is_ahead=True)

    def _grammar(self, engine: Engine) -> Grammar | None:
        """Return the grammar that the reply must follow. Raises ApiError, SettingsError and TemplateError."""
        tools, answer = self.tool_set(), self.format_grammar()
        if self._has_channels(engine):
            functions = tools.called() if tools else []
            is_thinking, required = self.written(engine).is_thinking, bool(tools and tools.required)
            return harmony_grammar(functions, required=required, answer=answer, is_thinking=is_thinking)
        return tools.grammar(answer, form_for(engine, True) or DESCRIBED, self._thought(engine)) if tools else answer

    def _has_channels(self, engine: Engine) -> bool:
        """Return whether the reply begins with a channel (Harmony). A grammar of the client's own excludes channels."""
        is_own = self.grammar or self.json_schema is not None
        return is_harmony(self.template(engine)) and not is_own and not self.written(engine).is_answering

    def _thought(self, engine: Engine) -> str:
        """Return which reasoning may come before text that may end in calls."""
        prompt = self._reasoned_from(engine)
        return NO_THOUGHT if prompt is None else OPEN_THOUGHT if prompt.is_thinking else MAY_THINK

    def _prompt(self, engine: Engine) -> Ids | Pictured:
        return encoded(with_images(self.written(engine).rendered, self.images), engine)

    def _thoughts(self, engine: Engine) -> ThoughtBudget | None:
        """Return the limit on reasoning, if there is one. Raises ApiError and TemplateError."""
        most = self.reasoning_budget
        if most is None or most < 0 or (prompt := self._reasoned_from(engine)) is None:
            return None
        return ThoughtBudget(most, BEGIN, END, prompt.is_thinking)

    def formatter(self, engine: Engine, prompts: Sequence[PromptIds]) -> ChatFormatter:
        """Return the formatter for the replies."""
        return ChatFormatter(engine, self, [self.reply_reader(engine) for _ in prompts])

    def reply_reader(self, engine: Engine) -> ReplyReader:
        """Return the reader that separates reasoning, content and calls."""
        prompt = self._reasoned_from(engine)
        return ReplyReader(self._tool_calls(engine), ReasoningReader(prompt.is_thinking) if prompt else None)

    def _tool_calls(self, engine: Engine) -> ToolCallParser | None:
        """Return the parser for tool calls, or None if the reply cannot have any."""
        tools = self.tool_set()
        if self._has_channels(engine):
            return ToolCallParser(HarmonyParser(self.written(engine).is_thinking))
        if tools is None:
            return None
        form, is_free = form_for(engine, True) or DESCRIBED, not tools.required and self.format_grammar() is None
        bare = BareCalls(tools.called(), tools.parallel, form.trigger) if is_free else None
        return ToolCallParser(CallParser(form, tools.called()), bare)

    def _reasoned_from(self, engine: Engine) -> WrittenPrompt | None:
        """Return the prompt if a reply to it may have reasoning: the model reasons, and neither a grammar forces an
        immediate answer nor has that begun.
        """
        if BEGIN not in self.template(engine) or self.answers_at_once:
            return None
        prompt = self.written(engine)
        return None if prompt.is_answering else prompt

    @property
    def answers_at_once(self) -> bool:
        """Whether the reply must begin with the requested form, without reasoning."""
        return super().answers_at_once or self.format_grammar() is not None


def answers(calls: Sequence[Delta], text: str) -> list[dict[str, Any]]:
    """Return the messages after a reply, which begin with a text: results of its calls, or a question."""
    if not calls:
        return [{"role": "user", "content": text}]
    return [{"role": "tool", "content": text, "tool_call_id": call["id"]} for call in calls]


ENDPOINT = generation_endpoint("/chat/completions", ChatRequest, ChatCompletion)
