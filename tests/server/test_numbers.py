"""Numbers as clients of other languages write them, and what bounds a reply."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from tests.support.serving import READ_FILE, Running, open_plain, running

CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "What does os.path.join do?"}], "temperature": 0}
TEXT: dict[str, Any] = {"prompt": "import os", "temperature": 0}
OTHER = {**READ_FILE, "function": READ_FILE["function"] | {"name": "write_file"}}
CASES = [
    ("/v1/chat/completions", CHAT, "max_completion_tokens"),
    ("/v1/chat/completions", CHAT, "max_tokens"),
    ("/v1/completions", TEXT, "max_tokens"),
    ("/completion", TEXT, "n_predict"),
    ("/v1/messages", CHAT | {"max_tokens": 3}, "max_tokens"),
    ("/v1/responses", {"input": "What is a deque?"}, "max_output_tokens"),
]
IN_ALL = ["top_k", "seed"]


@pytest.fixture(scope="module")
def here() -> Iterator[Running]:
    with running(open_plain, max_tokens=6) as found:
        yield found


@pytest.fixture(scope="module")
def client(here: Running) -> httpx2.Client:
    return here.client()


@pytest.mark.parametrize(
    ("path", "body", "field"), [*CASES, *((path, body, each) for path, body, _ in CASES for each in IN_ALL)]
)
def test_a_whole_number_may_have_a_point_and_no_fraction(
    client: httpx2.Client, path: str, body: dict[str, Any], field: str
) -> None:
    limit = dict.fromkeys(("max_tokens", "n_predict", "max_output_tokens"), 4)
    given = client.post(path, json=limit | body | {field: 4.0})
    assert given.status_code == 200, given.text
    refused = client.post(path, json=limit | body | {field: 4.5})
    error = refused.json()["error"]
    assert refused.status_code == 400
    assert error["message"].startswith(f"{field} must be a valid integer")


@pytest.mark.parametrize(("path", "body", "limit"), CASES)
def test_a_top_k_of_minus_one_is_off(client: httpx2.Client, path: str, body: dict[str, Any], limit: str) -> None:
    sampled = body | {limit: 5, "temperature": 0.8, "seed": 5, "top_p": 1.0, "min_p": 0.0}
    texts = [client.post(path, json=sampled | {"top_k": k}) for k in (-1, 0)]
    assert [each.status_code for each in texts] == [200, 200]
    keys = ("choices", "content", "output")
    one, other = ({key: each.json().get(key) for key in keys} for each in texts)
    assert str(one)[-40:] == str(other)[-40:]


@pytest.mark.parametrize("body", [CHAT, CHAT | {"max_tokens": 500}, CHAT | {"temperature": 9}])
def test_a_reply_is_bounded_by_the_server(client: httpx2.Client, body: dict[str, Any]) -> None:
    reply = client.post("/v1/chat/completions", json=body).json()
    assert reply["usage"]["completion_tokens"] <= 6
    assert client.post("/v1/chat/completions", json=body | {"max_tokens": 2}).json()["usage"]["completion_tokens"] == 2


def some(mode: str, *names: str) -> dict[str, Any]:
    tools = [{"type": "function", "function": {"name": name}} for name in names]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}


@pytest.mark.parametrize("name", ["read_file", "write_file"])
def test_some_of_the_tools_may_be_allowed(name: str) -> None:
    with running(open_plain) as here:
        client = here.client()
        chosen = client.post(
            "/v1/chat/completions", json=CHAT | {"tools": [READ_FILE, OTHER], "tool_choice": some("required", name)}
        ).json()
        assert {call["function"]["name"] for call in chosen["choices"][0]["message"]["tool_calls"]} == {name}
        choice = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": name}]}
        flat = [{"type": "function"} | each["function"] for each in (READ_FILE, OTHER)]
        reply = client.post("/v1/responses", json={"input": "Hello", "tools": flat, "tool_choice": choice}).json()
        assert {each["name"] for each in reply["output"]} == {name}
        assert reply["tool_choice"] == choice


@pytest.mark.parametrize(
    "choice", [some("auto", "nobody"), some("auto", "read_file", "nobody"), {"type": "allowed_tools"}]
)
def test_only_tools_that_are_offered_can_be_allowed(client: httpx2.Client, choice: dict[str, Any]) -> None:
    refused = client.post("/v1/chat/completions", json=CHAT | {"tools": [READ_FILE], "tool_choice": choice})
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "tool_choice"


def test_the_old_field_for_tools_is_refused_with_the_new_ones_name(client: httpx2.Client) -> None:
    refused = client.post("/v1/chat/completions", json=CHAT | {"functions": [READ_FILE["function"]]})
    message = refused.json()["error"]["message"]
    assert (refused.status_code, message) == (400, "functions must be sent as tools, and function_call as tool_choice.")
    assert (
        client.post("/v1/chat/completions", json=CHAT | {"functions": [], "function_call": "auto"}).status_code == 200
    )
