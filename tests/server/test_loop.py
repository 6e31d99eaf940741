"""Nothing holds up the server's loop: the engine is asked on threads, and bodies are checked on one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from app.server import fields
from app.server.anthropic.messages import MessagesRequest
from app.server.endpoint import prepared
from app.server.generation import GenerationRequest
from app.server.openai.chat import ChatRequest
from app.server.openai.responses import ResponsesRequest
from bench.instruments.toy import facts
from runtime.engine import Options, Rendered
from runtime.engine.process.client import EngineProcess
from runtime.models.registry import load_registry
from tests.support.serving import READ_FILE, Running, running
from tests.support.waiting import PATIENCE

ASKS = ("encode", "render", "tokenize", "token_bytes", "token_text", "is_end", "end_tokens", "embed")
MESSAGES = [{"role": "user", "content": "What is a deque?"}]
CHAT: dict[str, Any] = {"messages": MESSAGES, "max_tokens": 4}
PROBED = {"logprobs": True, "top_logprobs": 3, "logit_bias": {" list": 1}, "ignore_eos": True}
REQUESTS: list[tuple[str, dict[str, Any]]] = [
    ("/v1/chat/completions", CHAT | PROBED | {"n": 2, "tools": [READ_FILE]}),
    ("/v1/completions", {"prompt": ["def f", [1, 2]], "max_tokens": 3, "logprobs": 3}),
    ("/v1/completions", {"prompt": [[1, 2]], "max_tokens": 3, "echo": True}),
    ("/completion", {"prompt": "def f", "n_predict": 3, "n_probs": 3}),
    ("/v1/messages", CHAT),
    ("/v1/responses", {"input": MESSAGES, "max_output_tokens": 4}),
]
QUERIES: list[tuple[str, dict[str, Any]]] = [
    ("/v1/messages/count_tokens", {"messages": MESSAGES}),
    ("/v1/responses/input_tokens", {"input": MESSAGES}),
    ("/v1/embeddings", {"input": "What is a deque?"}),
    ("/apply-template", {"messages": MESSAGES}),
    ("/tokenize", {"content": "def f", "with_pieces": True}),
    ("/detokenize", {"tokens": [1, 2]}),
]


class WatchedEngine(EngineProcess):
    """Keeps what it was asked on an event loop."""

    def __init__(self, on_progress: Any) -> None:
        self.on_loop: list[str] = []
        super().__init__(load_registry()["demo"], Options(threads=1, drafters=()), on_progress)

    def __getattribute__(self, name: str) -> Any:
        if name in ASKS and asyncio._get_running_loop():
            self.on_loop.append(name)
        return super().__getattribute__(name)


@pytest.fixture(scope="module")
def here() -> Iterator[Running]:
    with running(WatchedEngine) as found:
        yield found


@pytest.mark.parametrize(
    ("path", "body"), [*REQUESTS, *((path, body | {"stream": True}) for path, body in REQUESTS), *QUERIES]
)
def test_the_engine_is_never_asked_on_the_loop(here: Running, path: str, body: dict[str, Any]) -> None:
    engine = here.server.served.engine
    assert isinstance(engine, WatchedEngine)
    engine.on_loop.clear()
    answer = here.client().post(path, json=body)
    assert answer.status_code == 200, answer.text
    assert ("data: " in answer.text) == ("stream" in body)
    assert engine.on_loop == []


def test_others_are_answered_while_a_body_is_checked(here: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    checked, has_begun, may_end = fields.checked, threading.Event(), threading.Event()
    statuses: list[int] = []
    long = CHAT | {"messages": [{"role": "user", "content": "What is a deque? " * 200}]}  # short ones are not handed on

    def slowly(*arguments: Any) -> Any:
        has_begun.set()
        assert may_end.wait(PATIENCE)
        return checked(*arguments)

    monkeypatch.setattr(fields, "checked", slowly)
    asking = threading.Thread(
        target=lambda: statuses.append(here.client().post("/v1/chat/completions", json=long).status_code)
    )
    asking.start()
    assert has_begun.wait(PATIENCE)
    assert here.client().get("/health").status_code == 200
    may_end.set()
    asking.join()
    assert statuses == [200]


class Rendering(SimpleNamespace):
    """An engine of a model that reasons; it counts how often its template was asked."""

    def render(self, *arguments: object) -> Rendered:
        self.n_rendered += 1
        return Rendered("What is a deque?<think>")

    def encode(self, prompt: Any) -> list[int]:
        return [1, 2] if isinstance(prompt, Rendered) else list(prompt.tokens)


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (ChatRequest, CHAT | {"n": 3, "reasoning_budget": 5}),
        (MessagesRequest, CHAT | {"thinking": {"type": "enabled", "budget_tokens": 5}}),
        (ResponsesRequest, {"input": MESSAGES}),
    ],
)
def test_a_conversation_is_rendered_once(kind: type[GenerationRequest], body: dict[str, Any]) -> None:
    engine = Rendering(n_rendered=0, facts=facts(template="<think>"))
    engine.pair = SimpleNamespace(
        name="m", target=SimpleNamespace(name="m"), sampling_defaults={}, thinking=True, upstream="", lora=()
    )
    request = kind.model_validate(body)
    prepared(request, engine, request.formatter)  # type: ignore[arg-type]
    assert engine.n_rendered == 1
