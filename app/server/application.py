"""Which path leads where. Knows HTTP's verbs and our endpoints; what they say is in the modules beside."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from app.server.errors import JSON, ApiError, as_api_error, client_gone, error_response
from app.server.fields import read
from app.server.guard import LOCAL_ORIGIN, Guard
from app.server.job import Job
from app.server.llamacpp import InfillRequest, RootRequest
from app.server.metrics import Metrics
from app.server.openai.chat import ChatRequest
from app.server.openai.completions import CompletionRequest
from app.server.openai.embeddings import Embedding, EmbeddingsForm, EmbeddingsRequest
from app.server.openai.responses import ResponsesRequest
from app.server.openapi import description
from app.server.reply import Reply, as_line, now
from app.server.vocabulary import DetokenizeRequest, TemplateRequest, TokenizeRequest, models, props
from app.server.worker import Worker
from runtime.core.errors import SlipstreamError
from runtime.engine import Engine

LOOK, PING = 0.2, 15.0  # seconds between two looks at the model's state, and between two signs of life
Endpoint = Callable[[Request], Awaitable[Response]]
Question = type[TokenizeRequest | DetokenizeRequest | TemplateRequest]
ReplyRequest = type[ChatRequest | CompletionRequest | ResponsesRequest | RootRequest | InfillRequest]
ANSWERS: dict[str, Question] = {
    "/tokenize": TokenizeRequest,
    "/detokenize": DetokenizeRequest,
    "/apply-template": TemplateRequest,
}
REPLIES: dict[str, ReplyRequest] = {
    "/chat/completions": ChatRequest, "/completions": CompletionRequest, "/responses": ResponsesRequest,
    "/completion": RootRequest, "/infill": InfillRequest,
}  # fmt: skip


def application(worker: Worker, api_key: str) -> Starlette:
    """All endpoints, behind the guard."""
    everywhere = ".*" if api_key else LOCAL_ORIGIN
    middleware = [
        Middleware(CORSMiddleware, allow_origin_regex=everywhere, allow_methods=["*"], allow_headers=["*"]),
        Middleware(Guard, api_key=api_key),
    ]
    handlers = {
        ApiError: on_error,
        SlipstreamError: on_error,
        HTTPException: on_http_error,
        ClientDisconnect: on_disconnect,
        Exception: on_error,
    }
    return Starlette(routes=routes(worker), middleware=middleware, exception_handlers=handlers)


def routes(worker: Worker) -> list[Route]:
    """Paths to endpoints; OpenAI's also without `/v1`, as some clients leave it out."""
    started, metrics = now(), Metrics(worker)
    gets: dict[str, Callable[[], Response]] = {
        "/health": lambda: JSON({"status": "ok", "model": worker.engine.pair.name}),
        "/models": lambda: JSON(models(worker.engine, started)),
        "/props": lambda: JSON(props(worker.engine, worker.max_active)),
        "/metrics": lambda: Response(metrics.text(), media_type=CONTENT_TYPE_LATEST),
    }
    posts: dict[str, Callable[[Request], Awaitable[Response | Reply]]] = {
        path: replying(worker, kind) for path, kind in REPLIES.items()
    }
    posts |= {path: answering(worker, kind) for path, kind in ANSWERS.items()} | {"/embeddings": embedding(worker)}
    streams = {"/models/sse": statuses(worker)}
    told = JSON(description([*gets, *streams], REPLIES | ANSWERS | {"/embeddings": EmbeddingsRequest}))
    gets["/openapi.json"] = lambda: told
    found = {path: getting(say) for path, say in gets.items()} | streams
    every = [(path, endpoint, "GET") for path, endpoint in found.items()] + [
        (path, endpoint, "POST") for path, endpoint in posts.items()
    ]
    return [
        Route(prefix + path, endpoint, methods=[method]) for path, endpoint, method in every for prefix in ("", "/v1")
    ]


def getting(say: Callable[[], Response]) -> Endpoint:
    """An endpoint that needs nothing of the request."""

    async def endpoint(request: Request) -> Response:
        return say()

    return endpoint


def answering(worker: Worker, kind: Question) -> Endpoint:
    """An endpoint that asks the model's vocabulary; a long text must not hold up others."""

    async def endpoint(request: Request) -> Response:
        engine, question = worker.engine, await read(request, kind)
        return JSON(await run_in_threadpool(question.answer, engine))

    return endpoint


def replying(worker: Worker, kind: ReplyRequest) -> Callable[[Request], Awaitable[Reply]]:
    """An endpoint that lets the model speak."""

    async def endpoint(request: Request) -> Reply:
        engine, wanted = worker.engine, await read(request, kind)
        check_model(engine, wanted.model)
        ask, form = wanted.ask(engine), wanted.form(engine)
        try:
            job = Job(await run_in_threadpool(ask.read, engine))
        except SlipstreamError as error:
            raise as_api_error(error, ask.text_field) from error
        worker.submit(job)
        return Reply(job, form, bool(wanted.stream))

    return endpoint


def embedding(worker: Worker) -> Callable[[Request], Awaitable[Reply]]:
    """An endpoint that has texts made into vectors."""

    async def endpoint(request: Request) -> Reply:
        engine, wanted = worker.engine, await read(request, EmbeddingsRequest)
        check_model(engine, wanted.model)
        work = await run_in_threadpool(Embedding, wanted, engine)
        job = Job(work)
        worker.submit(job)
        return Reply(job, EmbeddingsForm(work, engine.pair.name, wanted.encoding_format == "base64"), False)

    return endpoint


def check_model(engine: Engine, name: str | None) -> None:
    """Raises ApiError for a model that is not served."""
    if name and name != engine.pair.name:
        raise ApiError(
            404, f"There is no model of that name here. Served: {engine.pair.name}.", "model", "model_not_found"
        )


def statuses(worker: Worker) -> Endpoint:
    """The model's state as events, for as long as somebody listens (llama.cpp's /models/sse)."""

    async def events() -> AsyncIterator[bytes]:
        said, since = "", 0.0
        while not worker.is_stopping:
            if (status := "loaded" if worker.is_loaded else "loading") != said:
                said, since = status, 0.0
                yield as_line({"model": worker.model, "event": "model_status", "data": {"status": status}})
            elif since >= PING:
                since = 0.0
                yield b": still here\n\n"
            await asyncio.sleep(LOOK)
            since += LOOK

    async def endpoint(request: Request) -> Response:
        return StreamingResponse(events(), media_type="text/event-stream")

    return endpoint


async def on_error(request: Request, error: Exception) -> Response:
    """Everything that is refused."""
    return error_response(as_api_error(error))


async def on_disconnect(request: Request, error: Exception) -> Response:
    """The client left before its request was whole; that is no error of the server's."""
    return error_response(client_gone())


async def on_http_error(request: Request, error: Exception) -> Response:
    """A path or a method that does not exist."""
    assert isinstance(error, HTTPException)
    known = {
        404: "There is no such endpoint. See docs/editors.md for those that exist.",
        405: "This endpoint takes another method.",
    }
    reply = error_response(ApiError(error.status_code, known.get(error.status_code, error.detail)))
    reply.headers.update(error.headers or {})  # which methods there are
    return reply
