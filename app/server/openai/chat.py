"""Chat completions as OpenAI's clients ask for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from app.reasoning import BEGIN, END
from app.server.endpoint import generation_endpoint
from app.server.errors import ApiError
from app.server.generation import PromptIds
from app.server.openai.chat_response import ChatCompletion, ChatFormatter
from app.server.openai.common import OpenAIRequest
from app.server.openai.conversation import ConversationRequest
from app.server.openai.reply_reader import ReplyReader
from app.server.openai.tool_call_parser import ToolCallParser
from app.server.progress import Progress
from app.server.reasoning import ReasoningReader
from app.server.task import CompletionTask
from runtime.engine import Engine, Ids, Prompt, ThoughtBudget

MAX_LOGPROBS = 20  # as with OpenAI


class ChatRequest(ConversationRequest, OpenAIRequest):
    """The body of a request to /v1/chat/completions."""

    max_completion_tokens: Annotated[int, Field(ge=-1)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_LOGPROBS)] | None = None
    return_progress: bool | None = None
    timings_per_token: bool | None = None

    @property
    def token_limit(self) -> int | None:
        """The most tokens to generate, by the newest of its names."""
        if self.max_completion_tokens is None:
            return super().token_limit
        return None if self.max_completion_tokens == -1 else self.max_completion_tokens

    def task(self, engine: Engine) -> CompletionTask:
        """Raises SettingsError and ApiError."""
        tools, grammar = self.tool_set(), self.format_grammar()
        if self.top_logprobs is not None and not self.logprobs:
            raise ApiError(400, "top_logprobs needs logprobs. Set logprobs to true as well.", "top_logprobs")
        return CompletionTask(
            prompt=self._prompt,
            sampling=self.sampling(engine),
            max_tokens=self.token_limit,
            stops=tuple(self.stop or ()),
            grammar=tools.grammar(grammar) if tools else grammar,
            thoughts=self._thoughts,
            n_logprobs=(self.top_logprobs or 0) if self.logprobs else None,
            after_sampling=bool(self.post_sampling_probs),
            prediction=self.predicted_text,
            prompt_field="messages",
            fitted=lambda engine: self.written(engine).changes,
        )

    def _prompt(self, engine: Engine) -> Prompt:
        return Ids(tuple(engine.tokenize(self.written(engine).text, bos=True)))

    def _thoughts(self, engine: Engine) -> ThoughtBudget | None:
        """How long the model may reason, where that is limited. Raises ApiError, TemplateError."""
        most = self.reasoning_budget
        if most is None or most < 0 or not self._has_room_for_reasoning(engine):
            return None
        prompt = self.written(engine)
        return None if prompt.is_answering else ThoughtBudget(most, BEGIN, END, prompt.is_thinking)

    def formatter(self, engine: Engine, prompts: Sequence[PromptIds]) -> ChatFormatter:
        """How the replies are written."""
        first, *more = [self.reply_reader(engine) for _ in prompts]
        return ChatFormatter(engine, bool(self.logprobs), self.include_usage, first, more, self._progress)

    def _progress(self) -> Progress:
        return Progress(bool(self.return_progress), bool(self.timings_per_token))

    def reply_reader(self, engine: Engine) -> ReplyReader:
        """How the reply is read."""
        return ReplyReader(ToolCallParser() if self.tool_set() else None, self._reasoning_reader(engine))

    def _reasoning_reader(self, engine: Engine) -> ReasoningReader | None:
        """For a model that reasons."""
        if not self._has_room_for_reasoning(engine):
            return None
        prompt = self.written(engine)
        return None if prompt.is_answering else ReasoningReader(prompt.is_thinking)

    def _has_room_for_reasoning(self, engine: Engine) -> bool:
        """Does the model reason, and does no grammar demand the answer at once?"""
        tools = self.tool_set()
        return BEGIN in engine.facts.template and not self.format_grammar() and not (tools and tools.required)


ENDPOINT = generation_endpoint("/chat/completions", ChatRequest, ChatCompletion)
