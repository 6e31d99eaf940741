"""The description holds: whatever fits it, or nearly fits it, is answered as it says, and no request is an error of the
server's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.config import GenerationConfig, ProjectConfig, ProjectsConfig, SchemathesisConfig
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    unsupported_method,
)

from app.server.application import ENDPOINTS, application
from app.server.endpoint import spelled
from app.server.fields import MAX_NAME
from tests.support.serving import Running, open_plain, running
from tests.support.waiting import PATIENCE

POSTS = {
    "/chat/completions", "/completions", "/completion", "/infill", "/embeddings", "/embedding", "/responses",
    "/tokenize", "/detokenize", "/apply-template", "/messages", "/messages/count_tokens", "/responses/input_tokens",
    "/rerank", "/reranking", "/slots/{id}", "/api/chat", "/api/generate", "/api/embed", "/api/embeddings", "/api/show",
    "/models/load", "/models/unload", "/lora-adapters",
}  # fmt: skip
LIMITS = {
    "/chat/completions": "max_completion_tokens", "/completions": "max_tokens", "/responses": "max_output_tokens",
    "/completion": "n_predict", "/infill": "n_predict", "/messages": "max_tokens", "/api/chat": "options.num_predict",
    "/api/generate": "options.num_predict",
}  # fmt: skip
CHECKS = [
    not_a_server_error,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
    unsupported_method,
]


@pytest.fixture(scope="module")
def here() -> Iterator[Running]:
    with running(
        open_plain,
        shows_slots=True,
    ) as found:
        yield found


@pytest.fixture(scope="module")
def client(here: Running) -> httpx2.Client:
    return here.client()


@pytest.fixture(scope="module")
def told(client: httpx2.Client) -> dict[str, Any]:
    return client.get("/openapi.json").json()  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def described(here: Running) -> Any:
    generation = GenerationConfig(deterministic=True, max_examples=12, with_security_parameters=False)
    project = ProjectConfig(generation=generation, request_timeout=PATIENCE)
    config = SchemathesisConfig(projects=ProjectsConfig(default=project))
    return schemathesis.openapi.from_url(f"{here.url}/openapi.json", config=config)


UNENDING, UNABLE = "/models/sse", ["/rerank", "/reranking", "/slots/{id}"]
described_api = schemathesis.pytest.from_fixture("described").exclude(path=[UNENDING, *UNABLE])


def test_every_endpoint_is_described(told: dict[str, Any]) -> None:
    class Nobody:
        totals = None

    routes = {spelled(route.path.removeprefix("/v1")) for route in application(Nobody(), "").routes}  # type: ignore[arg-type, attr-defined]
    assert set(told["paths"]) == routes - {"/openapi.json", "/"}
    assert {path for path, item in told["paths"].items() if "post" in item} == POSTS
    assert LIMITS.keys() == {endpoint.path for endpoint in ENDPOINTS if endpoint.request and endpoint.streams}


def test_every_reference_leads_somewhere(told: dict[str, Any]) -> None:
    wanted = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(told)))
    assert {"ChatRequest", "ChatCompletion", "ErrorBody"} <= wanted <= told["components"]["schemas"].keys()


@pytest.mark.slow
@described_api.parametrize()
@settings(deadline=None, suppress_health_check=list(HealthCheck))
def test_what_is_answered_is_as_described(case: schemathesis.Case) -> None:
    shorten(case)
    reply = case.call()
    case.validate_response(reply, checks=CHECKS)
    if reply.headers["content-type"][0].startswith("text/event-stream"):
        check_events(reply.text)


def shorten(case: schemathesis.Case) -> None:
    """Replies end soon; a model's name that does not exist would hide the rest."""
    limit, body = LIMITS.get(case.path), case.body
    if limit is None or not isinstance(body, dict):
        return
    outer, _, limit = limit.rpartition(".")
    holder = body
    if outer:
        if body.get(outer) is None:
            body[outer] = {}
        holder = body[outer]
        if not isinstance(holder, dict):
            return
    given = holder.get(limit)
    is_missing = given is None and case.path != "/messages"  # where that is refused
    is_endless = isinstance(given, int) and (given == -1 if limit == "n_predict" else given < 0 and bool(outer))
    if is_missing or is_endless or (isinstance(given, int) and given > 2):
        holder[limit] = 2
    if isinstance(body.get("model"), str) and len(body["model"]) <= MAX_NAME:
        del body["model"]


def check_events(text: str) -> None:
    """An error on the way is the request's, in the right shape."""
    for line in text.split("\n"):
        if (
            line.startswith("data: {")
            and "error" in (event := json.loads(line.removeprefix("data: ")))
            and event["error"]
        ):
            assert event["error"]["type"] == "invalid_request_error", event
