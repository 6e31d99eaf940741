"""OpenAI's Responses API, /v1/responses: translated to a chat, with conversations that a client can continue by id."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, Field, TypeAdapter
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.types import ASGIApp

from app.server.endpoint import Endpoint, generated, model_endpoint, read_for
from app.server.errors import ApiError
from app.server.fields import Few, Many, Names, Object, Text, Whole
from app.server.generation import GenerationRequest
from app.server.left_out import with_notes
from app.server.openai.chat import ChatRequest
from app.server.openai.responses_input import InputItem, ItemReference, chat_messages, later_tools
from app.server.openai.responses_options import (
    FunctionTool,
    ReasoningOptions,
    ResponsesToolChoice,
    TextFormat,
    TextOptions,
    ToolChoiceInput,
    ToolInput,
)
from app.server.openai.responses_output import ResponseObject, ResponsesFormatter
from app.server.openai.tools import offered
from app.server.pictures import images_of
from app.server.served import ServedEngine
from app.server.served_models import ServedModels
from app.server.task import CompletionTask, PromptIds
from app.server.wire import SSE, Event, JSONBody
from runtime.engine import Engine

MAX_NUMBER = 256
MAX_BYTES = 64 * 2**20  # of their conversations as JSON, each counted in full
MAX_AGE = 24 * 3600.0  # seconds
OUTPUT = TypeAdapter(list[InputItem])  # a response's output as the next one's input
ONE_DAY_AT_MOST = "Responses are kept for a day at most, and not with store: false. Send the whole conversation."


@dataclass(frozen=True, slots=True)
class KeptResponse:
    """A response's body and the conversation up to its end."""

    body: Event
    items: tuple[InputItem, ...]
    n_bytes: int
    kept_at: float


class KeptResponses:
    """The latest responses, limited by number, size and age."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: OrderedDict[str, KeptResponse] = OrderedDict()
        self._n_bytes, self._lock = 0, threading.RLock()  # responses end on any thread

    def keep(self, response_id: str, body: Event, items: Iterable[InputItem]) -> None:
        """Store a response, and remove the oldest ones beyond the limits."""
        conversation = tuple(items)
        parts = (getattr(item, name, None) or () for item in conversation for name in ("content", "output"))
        images = images_of(part for each in parts for part in each)
        n_bytes = sum(len(item.model_dump_json()) for item in conversation) + sum(map(len, images))
        with self._lock:
            self._kept[response_id] = KeptResponse(body, conversation, n_bytes, self._clock())
            self._n_bytes += n_bytes
            while len(self._kept) > MAX_NUMBER or self._n_bytes > MAX_BYTES:
                self._forget_oldest()

    def find(self, response_id: str) -> KeptResponse | None:
        """Return a response, or None if it was never stored or has been removed."""
        with self._lock:
            while self._kept and next(iter(self._kept.values())).kept_at < self._clock() - MAX_AGE:
                self._forget_oldest()
            return self._kept.get(response_id)

    def resolved(self, items: Sequence[InputItem]) -> list[InputItem]:
        """Return the items with those that references point to in their places. Raises ApiError."""
        if not any(isinstance(item, ItemReference) for item in items):
            return [*items]
        with self._lock:
            known = {item.id: item for kept in self._kept.values() for item in kept.items}
        if any(isinstance(item, ItemReference) and item.id not in known for item in items):
            message = "An item_reference names an item that is not kept here. Send the item itself."
            raise ApiError(404, message, "input")
        return [known[item.id] if isinstance(item, ItemReference) else item for item in items]

    def _forget_oldest(self) -> None:
        _, kept = self._kept.popitem(last=False)
        self._n_bytes -= kept.n_bytes


def as_items(value: object) -> object:
    """Return a text as a user message."""
    return [{"role": "user", "content": value}] if isinstance(value, str) else value


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
        return ChatRequest(
            messages=messages,
            max_tokens=self.max_output_tokens,
            response_format=self._text_format().response_format(),
            tools=[function.definition() for function in self._functions()],
            tool_choice=self.tool_choice.for_chat() if self.tool_choice else None,
            parallel_tool_calls=self.parallel_tool_calls,
            reasoning_effort=self.reasoning.effort if self.reasoning else None,
            chat_template_kwargs=self.chat_template_kwargs,
            **self.shared(),
        )

    def _functions(self) -> list[FunctionTool]:
        """Return the functions that are offered, each name once: later ones replace those before."""
        found = offered([*(self.tools or ()), *later_tools(self.input)], FunctionTool)
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
            "model": self.reply_name(engine), "metadata": self.metadata or {},
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


async def asked_by(request: Request, engine: Engine) -> ResponsesRequest:
    """Return what a request asks for, with the conversation that it continues. Raises ApiError."""
    body = await read_for(engine, request, ResponsesRequest)
    return await run_in_threadpool(body.with_conversation, request.app.state.kept_responses)


async def create(served: ServedEngine, request: Request) -> ASGIApp:
    """Answer with the model's response to a conversation."""
    asked, kept = await asked_by(request, served.engine), request.app.state.kept_responses

    def keep(body: Event) -> None:
        if asked.store is not False:
            kept.keep(str(body["id"]), body, [*asked.input, *OUTPUT.validate_python(body["output"])])

    return await generated(served, asked, partial(asked.formatter, keep=keep))


async def retrieve(models: ServedModels, request: Request) -> ASGIApp:
    """Answer with a stored response."""
    found = request.app.state.kept_responses.find(request.path_params["response_id"])
    if found is None:
        raise ApiError(404, f"There is no response with that id. {ONE_DAY_AT_MOST}", "response_id")
    return JSONBody(found.body)


async def count(served: ServedEngine, request: Request) -> ASGIApp:
    """Answer with the number of prompt tokens of a request."""
    asked = await asked_by(request, served.engine)
    task = await run_in_threadpool(asked.task, served.engine)
    return JSONBody({"object": "response.input_tokens", "input_tokens": task.n_prompt})


CREATE = model_endpoint("/responses", create, ResponsesRequest, ResponseObject, SSE)
COUNT = model_endpoint("/responses/input_tokens", count, ResponsesRequest, InputTokens)
RETRIEVE = Endpoint("/responses/{response_id}", retrieve, response=ResponseObject)
