"""`context` of Ollama's /api/generate: the conversation as token ids, which the next question continues."""

from __future__ import annotations

from typing import Any

import httpx2
import ollama
import pytest

from tests.support.serving import Running
from tests.support.waiting import PATIENCE

FIRST, SECOND = "What does os.path.join do?", "And os.path.split?"
GREEDY: dict[str, Any] = {"temperature": 0, "num_predict": 12}


@pytest.fixture(scope="module")
def client(here: Running) -> ollama.Client:
    return ollama.Client(here.url, timeout=PATIENCE)


@pytest.fixture(scope="module")
def raw(here: Running) -> httpx2.Client:
    return here.client()


def ids_of(raw: httpx2.Client, *turns: tuple[str, str]) -> list[int]:
    messages = [{"role": role, "content": text} for role, text in turns]
    prompt = raw.post("/apply-template", json={"messages": messages}).json()["prompt"]
    ids: list[int] = raw.post("/tokenize", json={"content": prompt, "add_special": True}).json()["tokens"]
    return ids


def test_a_conversation_goes_on_as_a_chat_would(client: ollama.Client, raw: httpx2.Client) -> None:
    first = client.generate("demo", FIRST, options=GREEDY)
    prompt = ids_of(raw, ("user", FIRST))
    assert first.context is not None
    assert list(first.context[: len(prompt)]) == prompt
    assert len(first.context) == len(prompt) + 12
    second = client.generate("demo", SECOND, context=first.context, options=GREEDY)
    turns: Any = [("user", FIRST), ("assistant", first.response), ("user", SECOND)]
    assert second.context is not None
    assert list(second.context[:-12]) == ids_of(raw, *turns)
    messages = [{"role": role, "content": text} for role, text in turns]
    assert client.chat("demo", messages, options=GREEDY).message.content == second.response


def test_a_turn_that_ended_is_ended_once(client: ollama.Client, raw: httpx2.Client) -> None:
    first = client.generate("demo", FIRST, options={"temperature": 0})
    assert first.done_reason == "stop"
    second = client.generate("demo", SECOND, context=first.context, options=GREEDY)
    turns = [("user", FIRST), ("assistant", first.response), ("user", SECOND)]
    assert list(second.context or ())[:-12] == ids_of(raw, *turns)


def test_a_stream_has_it_in_its_last_line_and_a_stop_string_is_not_in_it(client: ollama.Client) -> None:
    whole = client.generate("demo", FIRST, options=GREEDY)
    *parts, last = client.generate("demo", FIRST, options=GREEDY, stream=True)
    assert last.context == whole.context
    assert all(each.context is None for each in parts)
    word = whole.response.split()[1]
    stopped = client.generate("demo", FIRST, options=GREEDY | {"stop": [word]})
    assert word not in stopped.response
    said = client.generate("demo", f"{stopped.context}", raw=True, options=GREEDY)
    assert said.context is None
    assert len(stopped.context or ()) < len(whole.context or ())


def test_a_system_prompt_that_is_there_is_not_repeated(client: ollama.Client) -> None:
    rule = "Answer in one word."
    first = client.generate("demo", FIRST, system=rule, options=GREEDY)
    again = client.generate("demo", SECOND, system=rule, context=first.context, options=GREEDY)
    silent = client.generate("demo", SECOND, context=first.context, options=GREEDY)
    other = client.generate("demo", SECOND, system="Be kind.", context=first.context, options=GREEDY)
    assert again.context == silent.context
    assert len(other.context or ()) > len(silent.context or ())


@pytest.mark.parametrize(
    "more",
    [
        {"context": [1, 2], "raw": True},
        {"context": [1, 2], "suffix": "x"},
        {"context": [10**6]},
        {"context": [-1]},
        {"context": ["x"]},
        {"context": [5] * 5000},
    ],
)
def test_a_context_that_cannot_be_is_refused(raw: httpx2.Client, more: dict[str, Any]) -> None:
    reply = raw.post("/api/generate", json={"model": "demo", "prompt": "Hi", "stream": False, **more})
    assert reply.status_code == 400, reply.text
    assert "context" in reply.json()["error"]
