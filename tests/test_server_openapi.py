"""The description holds: whatever fits it, or nearly fits it, is answered, and no request is an error of the server's.

Schemathesis would ask the same; these strategies are our own, so that nothing more needs to be installed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.server.application import application
from runtime.engine import Engine, Options
from runtime.registry import load_registry
from tests.schemas import of_schema
from tests.serving import running

POSTS = (
    "/chat/completions", "/completions", "/completion", "/infill", "/embeddings", "/responses", "/tokenize", "/detokenize", "/apply-template",
)  # fmt: skip
LIMITS = {"max_tokens": 2, "max_completion_tokens": 2, "n_predict": 2, "max_output_tokens": 2}  # so that replies end
REPLYING = {"/chat/completions", "/completions", "/completion", "/infill", "/responses"}


@pytest.fixture(scope="module")
def client() -> Iterator[httpx2.Client]:
    with running(lambda on_progress: Engine(load_registry()["demo"], Options(threads=1, drafters=()), on_progress)) as here:
        yield here.client()


@pytest.fixture(scope="module")
def told(client: httpx2.Client) -> dict[str, Any]:
    return client.get("/openapi.json").json()  # type: ignore[no-any-return]


def test_every_endpoint_is_described(told: dict[str, Any]) -> None:
    class Nobody:
        totals = None

    routes = {route.path.removeprefix("/v1") for route in application(Nobody(), "").routes}  # type: ignore[arg-type, attr-defined]
    assert set(told["paths"]) == routes - {"/openapi.json"}
    assert {path for path, item in told["paths"].items() if "post" in item} == set(POSTS)


def test_every_reference_leads_somewhere(told: dict[str, Any]) -> None:
    wanted = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(told)))
    assert {"ChatRequest", "Error"} <= wanted <= told["components"]["schemas"].keys()


@pytest.mark.parametrize("path", POSTS)
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_no_request_is_the_servers_error(client: httpx2.Client, told: dict[str, Any], path: str, data: st.DataObject) -> None:
    schemas = told["components"]["schemas"]
    schema = told["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
    body = data.draw(of_schema(schema, schemas))
    if path in REPLYING and isinstance(body, dict):
        body |= LIMITS
        body.pop("model", None)
    reply = client.post(data.draw(st.sampled_from(["", "/v1"])) + path, content=json.dumps(body).encode("utf8", "surrogatepass"))
    assert reply.status_code in (200, 400, 404), reply.text
    if reply.status_code != 200:
        assert set(reply.json()["error"]) == {"message", "type", "param", "code"}
    elif reply.headers["content-type"].startswith("text/event-stream"):
        check_events(reply.text)


def check_events(text: str) -> None:
    """An error on the way is the request's, in the right shape."""
    for line in text.split("\n"):
        if line.startswith("data: {") and "error" in (event := json.loads(line.removeprefix("data: "))) and event["error"]:
            assert event["error"]["type"] == "invalid_request_error", event
