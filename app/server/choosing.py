"""Chooses the model that answers a request, by the name in its body or its query, and waits until that is loaded.

Knows HTTP and the models; must not know an interface.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Annotated

from pydantic import BeforeValidator
from pydantic_core import PydanticCustomError
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.server.described import Need
from app.server.errors import ApiError, as_api_error, client_gone, error_response
from app.server.fields import RequestModel, read_body
from app.server.request_body import has_body
from app.server.served import ServedEngine
from app.server.served_model import ServedModel
from app.server.served_models import ServedModels
from app.server.task_response import disconnected
from app.server.wire import NDJSON, PING, Event, Framing, JSONBody
from runtime.core.errors import SlipstreamError

Answer = Callable[[ServedEngine, Request], Awaitable[ASGIApp]]
LARGEST_CONTEXT = 2**17  # tokens: limits the body before the model, and so its context, is known
UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
DURATION = re.compile(r"(-?)((?:\d+(?:\.\d+)?(?:ms|s|m|h))+|\d+(?:\.\d+)?)")
PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)?")
FOREVER = 1e9  # seconds; more is no date


def as_seconds(value: object) -> object:
    """Return a duration as Ollama's clients write it, a number of seconds or a text such as "1h30m", in seconds; below
    zero is for ever.
    """
    found = DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
    if found:
        seconds = sum(float(n) * UNITS[unit or "s"] for n, unit in PART.findall(found[2]))
        value = -seconds if found[1] else seconds
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise PydanticCustomError("duration", 'Input should be a duration: a number of seconds, or a text like "10m"')
    return -1.0 if value < 0 or value > FOREVER else float(value)


Farewell = Callable[[str], Event]  # the answer to a request that only lets the model of that name go


class Wanted(RequestModel):
    """The fields of a body that are about the model itself, and whether it has a text."""

    model: str | None = None
    stream: bool | None = None
    keep_alive: Annotated[float, BeforeValidator(as_seconds)] | None = None
    prompt: object = None
    suffix: object = None
    messages: object = None
    input: object = None

    @property
    def only_lets_go(self) -> bool:
        """Whether the model is to be unloaded, and nothing else."""
        return self.keep_alive == 0 and not (self.prompt or self.suffix or self.messages or self.input)


async def chosen(
    models: ServedModels,
    answer: Answer,
    framing: Framing | None,
    request: Request,
    need: Need = "completion",
    farewell: Farewell | None = None,
) -> ASGIApp:
    """Return the response of the model that a request names, else of one that meets the need. Raises ApiError."""
    if models.only is not None:
        return await answer(models.only, request)
    wanted = await wanted_by(request)
    try:
        model = await named_by(models, wanted, request, need)
        lets_go = farewell if wanted.only_lets_go else None
        if not lets_go:
            check_loaded(models, model, request.query_params.get("autoload"))
    except ApiError:
        forget_body(request)
        raise
    if lets_go:
        forget_body(request)
        models.let_go(model)
        return JSONBody(lets_go(wanted.model or model.name))
    is_stream = wanted.stream or (wanted.stream is None and framing is NDJSON)
    return ModelResponse(models, model, wanted, lambda served: answer(served, request), framing if is_stream else None)


async def named_by(models: ServedModels, wanted: Wanted, request: Request, need: Need) -> ServedModel:
    """Return the model that a request names. Raises ApiError if there is none, or none is loaded to ask about."""
    if wanted.model or request.method == "POST":
        return await models.known.find(wanted.model or "", need)
    if models.current is None:
        raise ApiError(503, "No model is loaded. Name one with `?model=NAME`.", "model", "not_loaded", retry_after=5)
    return models.current


def check_loaded(models: ServedModels, model: ServedModel, autoload: str | None) -> None:
    """Raises ApiError for a model that is not loaded, if requests load none here and this one does not say `autoload`
    in its query.
    """
    if model.served is None and not (models.policy.loads_models if autoload is None else autoload in ("1", "true")):
        message = (
            f"The model '{model.name}' is not loaded, and requests load none here. Load it with POST /models/load, or "
            "start the server without `--no-models-autoload`."
        )
        raise ApiError(400, message, "model", "model_not_loaded")


def forget_body(request: Request) -> None:
    """Free the body that was kept for the model."""
    request.app.state.room.take(request)


async def wanted_by(request: Request) -> Wanted:
    """Return the fields of a request's body or query that are about the model. Raises ApiError."""
    if request.method == "POST" and has_body(request):
        return await read_body(request, Wanted, LARGEST_CONTEXT, keeps=True)
    return Wanted(model=request.query_params.get("model"))


class ModelResponse:
    """An ASGI application that answers a request once its model is loaded. A stream has comments until then."""

    def __init__(
        self,
        models: ServedModels,
        model: ServedModel,
        wanted: Wanted,
        answer: Callable[[ServedEngine], Awaitable[ASGIApp]],
        framing: Framing | None,
    ) -> None:
        """`framing` is that of a stream, None for another answer."""
        self.models, self.model, self.wanted = models, model, wanted
        self.answer, self.framing = answer, framing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer. Raises ApiError before anything is sent."""
        out = Stream(send, self.framing)
        try:
            served = await out.alive_until_held(self.models, self.model, receive)
            try:
                self.models.stop_reading_ahead(self.model)
                await (await self.answer(served))(scope, receive, out.send)
            finally:
                self.model.release()
        except (ApiError, SlipstreamError) as error:
            if not out.has_begun:
                raise
            await error_response(as_api_error(error), scope["path"])(scope, receive, out.send)
        finally:
            forget_body(Request(scope))
            self._keep()

    def _keep(self) -> None:
        """Set how long the model stays, and let it go after that."""
        if (seconds := self.wanted.keep_alive) is not None:
            self.model.keep_alive = seconds if seconds >= 0 else None
        self.models.expire(self.model)


class Stream:
    """What is sent to a client. A stream may begin with comments before its response is known; then an error becomes
    an event.
    """

    def __init__(self, send: Send, framing: Framing | None) -> None:
        self._send, self._framing = send, framing
        self.has_begun = self._is_error = False

    async def alive_until_held(self, models: ServedModels, model: ServedModel, receive: Receive) -> ServedEngine:
        """Hold the model and return its engine, with a comment after each silence. Raises ApiError if the client
        leaves, and what `hold` raises.
        """
        task, gone = asyncio.ensure_future(models.hold(model)), asyncio.ensure_future(disconnected(receive))
        try:
            while not (await asyncio.wait({task, gone}, timeout=PING, return_when=asyncio.FIRST_COMPLETED))[0]:
                await self._comment()
        except BaseException:
            task.cancel()
            task.add_done_callback(partial(let_go, model))
            raise
        finally:
            gone.cancel()
        if task.done():
            return task.result()
        task.cancel()
        task.add_done_callback(partial(let_go, model))
        raise client_gone()

    async def _comment(self) -> None:
        if self._framing is None or not self._framing.comment:
            return
        if not self.has_begun:
            self.has_begun = True
            headers = [(b"content-type", self._framing.media_type.encode()), (b"cache-control", b"no-cache")]
            await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        await self._send({"type": "http.response.body", "body": self._framing.comment, "more_body": True})

    async def send(self, message: Message) -> None:
        """Send a part of the response."""
        if not self.has_begun:
            await self._send(message)
        elif message["type"] == "http.response.start":
            self._is_error = message["status"] >= 400
        else:
            await self._send({**message, "body": self._event(message.get("body", b""))})

    def _event(self, body: bytes) -> bytes:
        """Return the body of an error as an event, any other as it is."""
        assert self._framing is not None
        return self._framing.encode(json.loads(body)) if self._is_error and body else body


def let_go(model: ServedModel, task: asyncio.Task[ServedEngine]) -> None:
    """Release the model that nobody waits for any more."""
    if not task.cancelled() and task.exception() is None:
        model.release()
