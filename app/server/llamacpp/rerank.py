"""/rerank: ranking of texts by a query. Refused, because it requires a kind of model that does not run here."""

from __future__ import annotations

from starlette.requests import Request
from starlette.types import ASGIApp

from app.server.endpoint import Endpoint
from app.server.errors import ApiError
from app.server.fields import RequestModel
from app.server.served import ServedEngine

PATHS = ("/rerank", "/reranking")


class RerankRequest(RequestModel):
    """The body of a request to /rerank, which is ignored."""


async def refuse(served: ServedEngine, request: Request) -> ASGIApp:
    """Raises ApiError."""
    raise ApiError(
        501,
        "Reranking is not supported. Compare their vectors from /v1/embeddings with the query's, or "
        "ask a server that runs reranking models.",
    )


ENDPOINTS = tuple(Endpoint(path, refuse, RerankRequest) for path in PATHS)
