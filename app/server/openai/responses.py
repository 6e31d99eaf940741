"""OpenAI's Responses API, /v1/responses: translated to a chat, with conversations that a client can continue by id."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, Field, TypeAdapter
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.types import ASGIApp

from app.server.bounds import Few, Many, Names, Object, Text
from app.server.endpoint import Endpoint, generated
from app.server.errors import ApiError
from app.server.fields import RequestModel, Whole, read_body
from app.server.generation import GenerationRequest
from app.server.left_out import with_notes
from app.server.openai import responses_tools
from app.server.openai.chat import ChatRequest
from app.server.openai.common import JsonSchema, ResponseFormat
from app.server.openai.kept_responses import KeptResponses
from app.server.openai.responses_input import InputItem, chat_messages, later_tools
from app.server.openai.responses_output import ResponseObject, ResponsesFormatter
from app.server.openai.responses_tools import FunctionTool, ResponsesToolChoice, ToolChoiceInput, ToolInput
from app.server.served import ServedEngine
from app.server.task import CompletionTask, PromptIds
from app.server.wire import SSE, Event, JSONBody
from runtime.engine import Engine

OUTPUT = TypeAdapter(list[InputItem])  # a response's output as the next one's input
ONE_DAY_AT_MOST = "Responses are kept for a day at most, and not with store: false. Send the whole conversation."


def as_items(value: object) -> object:
    """Return a text as a user message."""
    return [{"role": "user", "content": value}] if isinstance(value, str) else value


class TextFormat(RequestModel):
    """The required format of the text."""

    type: Literal["text", "json_object", "json_schema"] = "text"
    name: str | None = None
    description: Text | None = None
    json_schema: Object | None = Field(None, alias="schema")
    strict: bool | None = None

    def response_format(self) -> ResponseFormat:
        """Return the format in the terms of chat completions. Raises ApiError."""
        if self.type == "json_schema" and self.json_schema is None:
            raise ApiError(400, "text.format.schema is missing. Give a JSON schema.", "text.format.schema")
        schema = None if self.json_schema is None else JsonSchema(schema=self.json_schema)
        return ResponseFormat(type=self.type, json_schema=schema)


class TextOptions(RequestModel):
    """Options for the text."""

    format: TextFormat | None = None


class ReasoningOptions(RequestModel):
    """How much the model reasons, for templates that ask."""

    effort: str | None = None


class ResponsesRequest(GenerationRequest):
    """The body of a request to /v1/responses."""

    prompt_field = "input"
    input: Annotated[
        Many[InputItem],
        Field(min_length=1),
        BeforeValidator(with_notes),
        BeforeValidator(as_items, json_schema_input_type=Text | list[InputItem]),
    ]
    instructions: Text | None = None
    max_output_tokens: Annotated[Whole, Field(ge=1)] | None = None
    text: TextOptions | None = None
    tools: Few[ToolInput] | None = None
    tool_choice: ToolChoiceInput | None = None
    parallel_tool_calls: bool | None = None
    previous_response_id: str | None = None
    store: bool | None = None
    metadata: Names | None = None
    reasoning: ReasoningOptions | None = None
    chat_template_kwargs: Object | None = None

    def with_conversation(self, kept: KeptResponses) -> ResponsesRequest:
        """Return the request with the previous conversation. Raises ApiError if that is unknown."""
        items = kept.resolved(self.input)
        if self.previous_response_id:
            before = kept.find(self.previous_response_id)
            if before is None:
                message = f"There is no response with that previous_response_id. {ONE_DAY_AT_MOST}"
                raise ApiError(404, message, "previous_response_id", "previous_response_not_found")
            items = [*before.items, *items]
        return self.model_copy(update={"input": items})

    @cached_property
    def chat(self) -> ChatRequest:
        """The request as a chat request. Raises ApiError."""
        messages = chat_messages(self.instructions, self.input)
        if not messages:
            raise ApiError(400, "input has nothing that the model can read. Send a message.", "input")
        shared = {name: getattr(self, name) for name in GenerationRequest.model_fields}
        return ChatRequest(
            messages=messages,
            max_tokens=self.max_output_tokens,
            response_format=self._text_format().response_format(),
            tools=[*responses_tools.for_chat(self._functions())],
            tool_choice=self.tool_choice.for_chat() if self.tool_choice else None,
            parallel_tool_calls=self.parallel_tool_calls,
            reasoning_effort=self.reasoning.effort if self.reasoning else None,
            chat_template_kwargs=self.chat_template_kwargs,
            **shared,
        )

    def _functions(self) -> list[FunctionTool]:
        """Return the functions that are offered, each name once: later ones replace those before."""
        found = responses_tools.functions([*(self.tools or ()), *later_tools(self.input)])
        return list({function.name: function for function in found}.values())

    def _text_format(self) -> TextFormat:
        return (self.text and self.text.format) or TextFormat(schema=None)

    def task(self, engine: Engine, i: int = 0) -> CompletionTask:
        """Return the task for the engine; see GenerationRequest."""
        return replace(self.chat.task(engine), prompt_field=self.prompt_field)

    def formatter(
        self, engine: Engine, prompts: Sequence[PromptIds], keep: Callable[[Event], None] = lambda body: None
    ) -> ResponsesFormatter:
        """Return the formatter for the reply. `keep` is called with the finished response."""
        return ResponsesFormatter(self.chat.reply_reader(engine), self._head(engine), keep)

    def _head(self, engine: Engine) -> Event:
        """Return the response fields that repeat the request."""
        sampling, tools = self.sampling(engine), self._functions()
        choice = self.tool_choice or ResponsesToolChoice(type="auto")
        is_word = choice.type in ("none", "auto", "required")
        return {
            "model": engine.pair.name, "metadata": self.metadata or {},
            "instructions": self.instructions, "max_output_tokens": self.max_output_tokens,
            "previous_response_id": self.previous_response_id, "store": self.store is not False,
            "temperature": sampling.temperature, "top_p": sampling.top_p, "truncation": "disabled",
            "text": {"format": self._text_format().model_dump(by_alias=True, exclude_none=True)},
            "parallel_tool_calls": self.parallel_tool_calls is not False,
            "tool_choice": choice.type if is_word else choice.model_dump(exclude_unset=True),
            "tools": [tool.model_dump() for tool in tools],
        }  # fmt: skip


class InputTokens(BaseModel):
    """The number of tokens of a request's prompt."""

    object: Literal["response.input_tokens"]
    input_tokens: int


def kept_responses(request: Request) -> KeptResponses:
    """Return the stored responses of this server."""
    state = request.app.state
    if not hasattr(state, "kept_responses"):
        state.kept_responses = KeptResponses()
    found: KeptResponses = state.kept_responses
    return found


async def create(served: ServedEngine, request: Request) -> ASGIApp:
    """Answer with the model's response to a conversation."""
    engine, kept = served.engine, kept_responses(request)
    body = await read_body(request, ResponsesRequest, engine.facts.n_ctx)
    asked = await run_in_threadpool(body.with_conversation, kept)

    def keep(body: Event) -> None:
        if asked.store is not False:
            kept.keep(str(body["id"]), body, [*asked.input, *OUTPUT.validate_python(body["output"])])

    return await generated(served, engine, asked, partial(asked.formatter, keep=keep))


async def retrieve(served: ServedEngine, request: Request) -> ASGIApp:
    """Answer with a stored response."""
    found = kept_responses(request).find(request.path_params["response_id"])
    if found is None:
        raise ApiError(404, f"There is no response with that id. {ONE_DAY_AT_MOST}", "response_id")
    return JSONBody(found.body)


async def count(served: ServedEngine, request: Request) -> ASGIApp:
    """Answer with the number of prompt tokens of a request."""
    engine, kept = served.engine, kept_responses(request)
    body = await read_body(request, ResponsesRequest, engine.facts.n_ctx)
    asked = await run_in_threadpool(body.with_conversation, kept)

    task = await run_in_threadpool(asked.task, engine)
    return JSONBody({"object": "response.input_tokens", "input_tokens": task.n_prompt})


CREATE = Endpoint("/responses", create, ResponsesRequest, ResponseObject, streams=SSE)
COUNT = Endpoint("/responses/input_tokens", count, ResponsesRequest, InputTokens)
RETRIEVE = Endpoint("/responses/{response_id}", retrieve, response=ResponseObject)
