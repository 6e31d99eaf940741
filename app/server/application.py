"""All endpoints as one ASGI application behind the guard, with its error handlers.

Must not know an endpoint's content: an endpoint is defined in its own module and takes one line here.
"""

from __future__ import annotations

from collections.abc import Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from app.server.anthropic import messages
from app.server.endpoint import description
from app.server.errors import PAGE, ApiError, as_api_error, client_gone, error_response
from app.server.llamacpp import completion, lora_adapters, props, rerank, slots, tokens
from app.server.middleware import Guard, Spellings
from app.server.ollama import chat as ollama_chat
from app.server.ollama import embed as ollama_embed
from app.server.ollama import generate as ollama_generate
from app.server.ollama import models as ollama_models
from app.server.openai import chat, completions, embeddings, responses
from app.server.openai import models as openai_models
from app.server.page import page
from app.server.request_body import Room
from app.server.served_models import ServedModels
from app.server.wire import JSONBody
from app.settings import pattern
from runtime.core.errors import SlipstreamError

ENDPOINTS = (
    props.HEALTH,
    props.METRICS,
    openai_models.ENDPOINT,
    chat.ENDPOINT,
    completions.ENDPOINT,
    responses.CREATE,
    responses.COUNT,
    responses.RETRIEVE,
    embeddings.ENDPOINT,
    embeddings.NESTED,
    messages.ENDPOINT,
    messages.COUNT,
    completion.ENDPOINT,
    completion.INFILL,
    tokens.TOKENIZE,
    tokens.DETOKENIZE,
    tokens.TEMPLATE,
    props.ENDPOINT,
    slots.ENDPOINT,
    slots.FILES,
    *lora_adapters.ENDPOINTS,
    *rerank.ENDPOINTS,
    props.STATUS,
    ollama_chat.ENDPOINT,
    ollama_generate.ENDPOINT,
    *ollama_embed.ENDPOINTS,
    *ollama_models.ENDPOINTS,
    openai_models.LOAD,
    openai_models.UNLOAD,
    openai_models.ONE,  # any path below /models that no other endpoint has
)
# Where llama.cpp's router and Ollama fetch and remove models for their clients
FILES = "/models", "/api/pull", "/api/delete", "/api/create", "/api/copy", "/api/push"
OWNERS = "Models come and go by hand here: `slipstream models pull NAME` and `slipstream models rm NAME`."
PREFIXES = ("", "/v1")  # OpenAI's paths also without the prefix, which some clients leave out


def application(models: ServedModels, api_key: str, allow_origins: Sequence[str] = ()) -> Starlette:
    """Return all endpoints as an application, answered by these models."""
    handlers = {
        ApiError: on_error,
        SlipstreamError: on_error,
        HTTPException: on_http_error,
        ClientDisconnect: on_error,
        Exception: on_error,
    }
    guards = guarded(api_key, pattern(allow_origins))
    app = Starlette(routes=routes(models), middleware=guards, exception_handlers=handlers)
    app.state.has_key, app.state.places = bool(api_key), []
    app.state.room, app.state.kept_responses = Room(), responses.KeptResponses()
    return app


def guarded(api_key: str, allowed: str) -> list[Middleware]:
    """Return the middleware that admits requests: with a key, those that send it, else those whose origin matches
    `allowed`.

    The key is checked after CORS, because a preflight has no key and a page can read a refusal only with CORS headers.
    """
    cors = Middleware(
        CORSMiddleware,
        allow_origin_regex=".*" if api_key else allowed,
        allow_methods=["*"],
        allow_headers=["*"],
        allow_credentials=True,
        expose_headers=["x-request-id", "retry-after"],
        allow_private_network=True,
    )
    guard = Middleware(Guard, api_key=api_key, allowed=allowed)
    return [Middleware(Spellings), *((cors, guard) if api_key else (guard, cors))]


def routes(models: ServedModels) -> list[Route]:
    """Return every endpoint under every prefix, the OpenAPI document, and the page for people."""
    document = JSONBody(description(ENDPOINTS))

    async def describe(request: Request) -> Response:
        return document

    async def show(request: Request) -> Response:
        return page(models, request)

    return [Route(PAGE, show)] + [route for prefix in PREFIXES for route in (
        *(endpoint.route(models, prefix) for endpoint in ENDPOINTS), Route(prefix + "/openapi.json", describe)
    )]  # fmt: skip


async def on_error(request: Request, error: Exception) -> Response:
    """Answer a refused request or an unexpected error. No error of the server is that a client left before its request
    was complete.
    """
    refusal = client_gone() if isinstance(error, ClientDisconnect) else as_api_error(error)
    return error_response(refusal, request.url.path)


async def on_http_error(request: Request, error: Exception) -> Response:
    """Answer for a path or a method that does not exist."""
    assert isinstance(error, HTTPException)
    known = {
        404: "There is no such endpoint. See docs/editors.md for those that exist.",
        405: "This endpoint takes another method.",
    }
    changes_files = request.method != "GET" and request.url.path.removeprefix("/v1") in FILES
    refusal = ApiError(error.status_code, OWNERS if changes_files else known.get(error.status_code, error.detail))
    response = error_response(refusal, request.url.path)
    response.headers.update(error.headers or {})  # such as Allow, which lists the methods
    return response
