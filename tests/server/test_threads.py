"""Threads of the server: requests that begin, however many and however slow, take none that running replies need."""

from __future__ import annotations

import threading
from typing import Any

import httpx2
import pytest

from runtime.engine import Chunk
from runtime.engine.engine import Ask
from runtime.engine.output import Sink
from runtime.engine.stats import Stats
from runtime.sampling.logits import TokenLogprobs
from tests.support.serving import Running
from tests.support.waiting import PATIENCE, wait_for

N_THREADS, MANY = 40, 50  # AnyIO's; prompts
ASKED: dict[str, Any] = {
    "messages": [{"role": "user", "content": "What is a list?"}], "stream": True, "logprobs": True, "top_logprobs": 2,
}  # fmt: skip


TOKEN = TokenLogprobs(5, -0.5, ((5, -0.5), (6, -1.0)))
REPLY = Chunk("x", (5,), (False,), ("x",), (TOKEN,)), Chunk("", finish_reason="stop", stats=Stats())


def test_log_probabilities_come_while_many_prompts_are_read(here: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, go_on, n_begun, sinks = here.server.served.engine, threading.Event(), list[int](), list[Sink]()
    encode, texts = engine.encode, list[str]()

    def add(ask: Ask, sink: Sink) -> int:
        sinks.append(sink)
        return 0

    def slowly(prompt: Any) -> list[int]:
        n_begun.append(1)
        assert go_on.wait(PATIENCE)
        return encode(prompt)

    def ask(path: str, body: dict[str, Any]) -> None:
        with httpx2.Client(base_url=here.url, timeout=PATIENCE) as client:
            texts.append(client.post(path, json=body).text)

    monkeypatch.setattr(engine, "add", add)
    first = threading.Thread(target=ask, args=("/v1/chat/completions", ASKED))
    first.start()
    wait_for(lambda: sinks)
    monkeypatch.undo()
    monkeypatch.setattr(engine, "encode", slowly)
    others = [
        threading.Thread(target=ask, args=("/v1/completions", {"prompt": "long", "max_tokens": 1})) for _ in range(MANY)
    ]
    for thread in others:
        thread.start()
    wait_for(lambda: len(n_begun) == N_THREADS)
    for chunk in REPLY:
        sinks[0](chunk)
    first.join(PATIENCE)
    assert [text.endswith("data: [DONE]\n\n") and '"logprob":-0.5' in text for text in texts] == [True]
    go_on.set()
    for thread in others:
        thread.join()
