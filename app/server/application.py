"""Which path leads where. Knows HTTP's verbs and our endpoints; what they say is in the modules beside."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from app.server.chat import ChatRequest
from app.server.completions import CompletionRequest
from app.server.errors import JSON, ApiError, as_api_error, client_gone, error_response
from app.server.fields import read
from app.server.guard import LOCAL_ORIGIN, Guard
from app.server.job import Job
from app.server.llamacpp import InfillRequest, RootRequest
from app.server.metrics import Metrics
from app.server.reply import Reply, now
from app.server.vocabulary import DetokenizeRequest, TemplateRequest, TokenizeRequest, models, props
from app.server.worker import Worker
from runtime.errors import SlipstreamError

Endpoint = Callable[[Request], Awaitable[Response]]
AnyQuestion = TypeVar("AnyQuestion", TokenizeRequest, DetokenizeRequest, TemplateRequest)
AnyReplyRequest = TypeVar("AnyReplyRequest", ChatRequest, CompletionRequest, RootRequest, InfillRequest)


def application(worker: Worker, api_key: str) -> Starlette:
    """All endpoints, behind the guard."""
    everywhere = ".*" if api_key else LOCAL_ORIGIN
    middleware = [
        Middleware(CORSMiddleware, allow_origin_regex=everywhere, allow_methods=["*"], allow_headers=["*"]),
        Middleware(Guard, api_key=api_key),
    ]
    handlers = {ApiError: on_error, SlipstreamError: on_error, HTTPException: on_http_error, ClientDisconnect: on_disconnect, Exception: on_error}
    return Starlette(routes=routes(worker), middleware=middleware, exception_handlers=handlers)


def routes(worker: Worker) -> list[Route]:
    """Paths to endpoints; OpenAI's also without `/v1`, as some clients leave it out."""
    started, metrics = now(), Metrics(worker)
    gets: dict[str, Callable[[], Response]] = {
        "/health": lambda: JSON({"status": "ok", "model": worker.engine.pair.name}),
        "/models": lambda: JSON(models(worker.engine, started)),
        "/props": lambda: JSON(props(worker.engine)),
        "/metrics": lambda: Response(metrics.text(), media_type=CONTENT_TYPE_LATEST),
    }
    posts = {
        "/chat/completions": replying(worker, ChatRequest), "/completions": replying(worker, CompletionRequest),
        "/completion": replying(worker, RootRequest), "/infill": replying(worker, InfillRequest),
        "/tokenize": answering(worker, TokenizeRequest), "/detokenize": answering(worker, DetokenizeRequest),
        "/apply-template": answering(worker, TemplateRequest),
    }  # fmt: skip
    found = [Route(prefix + path, getting(say), methods=["GET"]) for path, say in gets.items() for prefix in ("", "/v1")]
    return found + [Route(prefix + path, endpoint, methods=["POST"]) for path, endpoint in posts.items() for prefix in ("", "/v1")]


def getting(say: Callable[[], Response]) -> Endpoint:
    """An endpoint that needs nothing of the request."""

    async def endpoint(request: Request) -> Response:
        return say()

    return endpoint


def answering(worker: Worker, kind: type[AnyQuestion]) -> Endpoint:
    """An endpoint that asks the model's vocabulary; a long text must not hold up others."""

    async def endpoint(request: Request) -> Response:
        engine, question = worker.engine, await read(request, kind)
        return JSON(await run_in_threadpool(question.answer, engine))

    return endpoint


def replying(worker: Worker, kind: type[AnyReplyRequest]) -> Callable[[Request], Awaitable[Reply]]:
    """An endpoint that lets the model speak."""

    async def endpoint(request: Request) -> Reply:
        engine, wanted = worker.engine, await read(request, kind)
        if wanted.model and wanted.model != engine.pair.name:
            served = f"There is no model of that name here. Served: {engine.pair.name}."
            raise ApiError(404, served, "model", "model_not_found")
        job, form = Job(wanted.ask(engine)), wanted.form(engine)
        worker.submit(job)
        return Reply(job, form, bool(wanted.stream))

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
    known = {404: "There is no such endpoint. See docs/editors.md for those that exist.", 405: "This endpoint takes another method."}
    return error_response(ApiError(error.status_code, known.get(error.status_code, error.detail)))
