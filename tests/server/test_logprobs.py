"""Log probabilities through the real client: the engine's own, with the text that they belong to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
import pytest

from runtime.engine import Message, Sampling
from runtime.engine.loaded import LoadedEngine
from tests.conftest import OpenEngine
from tests.support.serving import Running
from tests.support.waiting import PATIENCE

QUESTION, GREEDY = "What does os.path.join do?", Sampling(temperature=0.0)
MESSAGES: Any = [{"role": "user", "content": QUESTION}]


@pytest.fixture(scope="module")
def engine(open_demo: OpenEngine) -> LoadedEngine:
    return open_demo(threads=1)


@pytest.fixture(scope="module")
def client(here: Running) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{here.url}/v1", api_key="none", max_retries=0, timeout=PATIENCE) as found:
        yield found


def test_log_probabilities_are_the_engines(client: openai.OpenAI, engine: LoadedEngine) -> None:
    reply = client.chat.completions.create(model="demo", messages=MESSAGES, max_tokens=5, logprobs=True, top_logprobs=2)
    assert reply.choices[0].logprobs is not None
    content = reply.choices[0].logprobs.content or []
    expected = [
        entry
        for chunk in engine.reply([Message("user", QUESTION)], GREEDY, 5, n_logprobs=2)
        for entry in chunk.logprobs
    ]
    assert [entry.logprob for entry in content] == pytest.approx([entry.logprob for entry in expected], abs=1e-5)
    assert "".join(entry.token for entry in content) == reply.choices[0].message.content
    assert [len(entry.top_logprobs) for entry in content] == [2] * 5


def test_log_probabilities_stream_with_their_text(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(model="demo", messages=MESSAGES, max_tokens=8, logprobs=True, stream=True)
    choices = [chunk.choices[0] for chunk in stream]
    tokens = [entry.token for choice in choices if choice.logprobs for entry in choice.logprobs.content or []]
    assert "".join(tokens) == "".join(choice.delta.content or "" for choice in choices)


@pytest.mark.parametrize("stream", [False, True])
def test_tokens_within_a_character_are_named_by_their_bytes(client: openai.OpenAI, stream: bool) -> None:
    reply: Any = client.completions.create(
        model="demo", prompt="x", max_tokens=20, logprobs=3, stream=stream, extra_body={"grammar": 'root ::= "😀ok"'}
    )
    choices = [each.choices[0] for each in (reply if stream else [reply])]
    found = [each.logprobs for each in choices if each.logprobs]
    tokens, offsets, top = (
        [value for each in found for value in getattr(each, name)] for name in ("tokens", "text_offset", "top_logprobs")
    )
    parts = [token.removeprefix("bytes:") for token in tokens if token.startswith("bytes:")]
    assert "".join(parts).replace("\\x", "") == "😀".encode().hex()
    assert "".join(tokens[len(parts) :]) == "ok"
    assert offsets == [0] * len(parts) + [1 + i for i in range(len(tokens) - len(parts))]
    assert {len(each) for each in top} == {3}
