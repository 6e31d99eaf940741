"""Endpoints: a path, request and response types, and a handler, with constructors for the usual kinds, and their
description as an OpenAPI document.

Knows HTTP and the served engine; must not know an interface.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import TypeVar

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.routing import Route
from starlette.types import ASGIApp

from app.server.choosing import Answer, Farewell, chosen
from app.server.described import Need
from app.server.errors import ApiError, as_api_error, error_model, overflow
from app.server.fields import RequestModel, read_body
from app.server.generation import GenerationRequest
from app.server.lora import scales_of
from app.server.scheduled_task import ScheduledTask
from app.server.served import ServedEngine
from app.server.served_models import ServedModels
from app.server.task import CompletionTask, PromptIds
from app.server.task_response import Formatter, TaskResponse
from app.server.wire import SSE, Event, Framing, JSONBody
from runtime.core.errors import SlipstreamError
from runtime.engine import Engine
from runtime.engine.engine import Ask

AnyRequest = TypeVar("AnyRequest", bound=RequestModel)
MAX_REPLIES = 2048  # to one request
Handler = Callable[[ServedModels, Request], Awaitable[ASGIApp]]  # returns the response
SCHEMAS = "#/components/schemas/"
KEYS: Event = {
    "key": {"type": "http", "scheme": "bearer"},
    "x-api-key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
}
EVENT: Event = {
    "type": "object",
    "required": ["data"],
    "properties": {"data": {"type": "string", "contentMediaType": "application/json"}},
}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A path and its handler. The types describe requests and responses in the OpenAPI document."""

    path: str
    handler: Handler
    request: type[BaseModel] | None = None  # None: the method is GET
    response: type[BaseModel] | None = None  # as JSON; None: text or events only
    streams: Framing | None = None  # of its event stream, if it has one

    @property
    def refusal(self) -> type[BaseModel]:
        """The model of its errors, as JSON or as an event of a stream."""
        return error_model(self.path)

    def route(self, models: ServedModels, prefix: str = "") -> Route:
        """Return the endpoint as a Starlette route, answered by these models."""

        async def endpoint(request: Request) -> ASGIApp:
            return await self.handler(models, request)

        return Route(prefix + self.path, endpoint, methods=["POST" if self.request else "GET"])


def model_endpoint(
    path: str,
    answer: Answer,
    request: type[RequestModel] | None = None,
    response: type[BaseModel] | None = None,
    streams: Framing | None = None,
    need: Need = "completion",
    farewell: Farewell | None = None,
) -> Endpoint:
    """Return an endpoint that the model answers which a request names, else one that meets the need."""

    async def handle(models: ServedModels, asked: Request) -> ASGIApp:
        return await chosen(models, answer, streams, asked, need, farewell)

    return Endpoint(path, handle, request, response, streams)


def require_tokens(engine: Engine) -> None:
    """Raises ApiError if a remote server has the model, and so the vocabulary."""
    if place := engine.facts.upstream:
        raise ApiError(501, f"Only {place} knows the model's tokens. Send the request there.", code="upstream")


def fact_endpoint(
    path: str, response: type[BaseModel], fact: Callable[[ServedModels], Event], reads_files: bool = False
) -> Endpoint:
    """Return an endpoint about the server, whose answer does not depend on the request. It runs in a thread only if it
    reads files: /health must not wait for a thread while many prompts are prepared.
    """

    async def handle(models: ServedModels, request: Request) -> ASGIApp:
        return JSONBody(await run_in_threadpool(fact, models) if reads_files else fact(models))

    return Endpoint(path, handle, response=response)


async def read_for(engine: Engine, request: Request, kind: type[AnyRequest]) -> AnyRequest:
    """Return the body of a request to this engine. Raises as `read_body` does."""
    return await read_body(request, kind, engine.facts.n_ctx, sees_images=bool(engine.facts.vision))


def query_endpoint(
    path: str,
    kind: type[AnyRequest],
    response: type[BaseModel],
    answer: Callable[[AnyRequest, Engine], Event],
) -> Endpoint:
    """Return an endpoint that uses the model without generating. It runs in a thread, so that a long text delays
    nobody.
    """

    async def handle(served: ServedEngine, request: Request) -> ASGIApp:
        engine = served.engine
        require_tokens(engine)
        query = await read_for(engine, request, kind)
        return JSONBody(await run_in_threadpool(answer, query, engine))

    return model_endpoint(path, handle, kind, response)


def generation_endpoint(
    path: str, kind: type[GenerationRequest], response: type[BaseModel], need: Need = "completion"
) -> Endpoint:
    """Return an endpoint that generates text, whole or as a stream."""

    async def handle(served: ServedEngine, request: Request) -> ASGIApp:
        body = await read_for(served.engine, request, kind)
        return await generated(served, body, body.formatter)

    return model_endpoint(path, handle, kind, response, SSE, need)


async def generated(
    served: ServedEngine,
    body: GenerationRequest,
    make_formatter: Callable[[Engine, Sequence[PromptIds]], Formatter],
) -> TaskResponse:
    """Return the response of an engine to a request for text. Raises ApiError."""
    engine, policy = served.engine, served.policy
    scales = scales_of(body.model, body.lora, engine, policy)
    tasks, formatter = await run_in_threadpool(prepared, body, engine, make_formatter, policy.max_tokens)
    scheduled = ScheduledTask(*(replace(task, ask=replace(task.ask, lora=scales)) for task in tasks))

    def following(reply: str) -> Ask | None:
        ask = body.following(engine, reply)
        return ask and replace(ask, lora=scales)

    served.submit(scheduled, following)
    return TaskResponse(scheduled, formatter, bool(body.stream))


def prepared(
    body: GenerationRequest,
    engine: Engine,
    make_formatter: Callable[[Engine, Sequence[PromptIds]], Formatter],
    most: int | None = None,
) -> tuple[list[CompletionTask], Formatter]:
    """Return a task of at most `most` tokens for each reply, and the formatter. It queries the engine, which may be
    slow. Raises ApiError.
    """
    if body.n_prompts * body.n_choices > MAX_REPLIES:
        message = f"A request may ask for {MAX_REPLIES} replies, prompts times n. Send fewer prompts, or lower n."
        raise ApiError(400, message, body.prompt_field)
    try:
        tasks = [fitting(body.task(engine, i), engine.facts.n_ctx) for i in range(body.n_prompts)]
    except SlipstreamError as error:
        raise as_api_error(error, body.prompt_field) from error
    choices = [task.choice(i, most) for task in tasks for i in range(body.n_choices)]
    return choices, make_formatter(engine, [task.prompt_ids for task in choices])


def fitting(task: CompletionTask, n_ctx: int) -> CompletionTask:
    """Return the task. Raises ApiError if its prompt is too long, before those after it are tokenized."""
    if task.n_prompt >= n_ctx > 0:
        raise overflow(task.n_prompt, n_ctx, task.prompt_field)
    return task


def description(endpoints: Sequence[Endpoint]) -> Event:
    """Return the document. Each path is listed once, though all are also answered under /v1."""
    paths = dict[str, Event]()
    for each in endpoints:
        paths.setdefault(spelled(each.path), {})["post" if each.request else "get"] = operation(each)
    bodies = [body for each in endpoints for body in (each.request, each.response, each.refusal) if body]
    _, schemas = models_json_schema(
        [(body, "validation") for body in dict.fromkeys(bodies)], ref_template=SCHEMAS + "{model}"
    )
    return {
        "openapi": "3.2.0",
        "info": {
            "title": "Slipstream",
            "version": version("slipstream"),
            "description": "OpenAI's, Anthropic's, llama.cpp's and Ollama's interfaces to a local model.",
        },
        "paths": paths,
        "components": {"schemas": schemas["$defs"], "securitySchemes": KEYS},
        "security": [{}, *({name: []} for name in KEYS)],
    }


def spelled(path: str) -> str:
    """Return a path without the types of its parameters."""
    return re.sub(r":\w+}", "}", path)


def operation(endpoint: Endpoint) -> Event:
    """Return the description of an endpoint's request, responses and errors."""
    responses: Event = {
        "200": {"description": "The response.", "content": content(endpoint)},
        "default": {"description": "An error.", "content": as_json(endpoint.refusal)},
    }
    found: Event = {"operationId": "_".join(re.findall(r"\w+", spelled(endpoint.path))), "responses": responses}
    if names := re.findall(r"{(\w+)}", spelled(endpoint.path)):
        found["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names
        ]
    if endpoint.request:
        found["requestBody"] = {"required": True, "content": as_json(endpoint.request)}
    return found


def content(endpoint: Endpoint) -> Event:
    """Return the answer's media types: JSON, events, or text."""
    found = as_json(endpoint.response) if endpoint.response else {}
    if endpoint.streams:
        found[endpoint.streams.media_type] = {"itemSchema": EVENT if endpoint.streams is SSE else {"type": "object"}}
    return found or {"text/plain": {"schema": {"type": "string"}}}


def as_json(body: type[BaseModel]) -> Event:
    """Return the media type of a JSON body with that model."""
    return {"application/json": {"schema": {"$ref": SCHEMAS + body.__name__}}}
