"""What editors ask of a model for code: the middle between two texts, a file with a change, a tool."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import httpx2
import openai
import pytest

from runtime.engine import Message, Options, Sampling
from runtime.engine.loaded import LoadedEngine
from runtime.models.registry import Pair
from tests.real.conftest import FindPair
from tests.real.test_serving import client_of
from tests.server.test_server import WEATHER
from tests.support.waiting import PATIENCE

FILE = """def total(prices):
    result = 0
    for price in prices:
        result = result + price
    return result


def largest(prices):
    result = None
    for price in prices:
        if result is None or price > result:
            result = price
    return result
"""
ASKED = [Message("user", f"Rename `result` to `found` in this code, and say the whole code.\n\n```python\n{FILE}```")]


@pytest.fixture(scope="module")
def pair(real_pair: FindPair) -> Pair:
    return real_pair("qwen-0.5b")


@pytest.fixture(scope="module")
def client(real_pair: FindPair) -> Iterator[openai.OpenAI]:
    with client_of(real_pair, "qwen-0.5b") as client:
        yield client


def test_the_middle_is_filled_in(client: openai.OpenAI) -> None:
    body = {"input_prefix": "def add(a, b):\n    return ", "input_suffix": "\n\nprint(add(1, 2))\n", "n_predict": 8}
    url = str(client.base_url).removesuffix("/v1/")
    reply = httpx2.post(f"{url}/infill", json=body | {"temperature": 0}, timeout=PATIENCE).json()
    assert reply["content"].split("\n")[0] == "a + b"


def test_a_tool_is_called(client: openai.OpenAI) -> None:
    asked: Any = {"model": "qwen", "messages": [{"role": "user", "content": "How is the weather in Rome tomorrow?"}]}
    reply = client.chat.completions.create(
        **asked, max_tokens=80, temperature=0, tools=[WEATHER], tool_choice="required"
    )
    function = reply.choices[0].message.tool_calls[0].function
    assert (function.name, json.loads(function.arguments)["city"]) == ("get_weather", "Rome")


@pytest.mark.parametrize("prediction", ["", FILE])
def test_a_changed_copy_is_drafted_and_with_a_seed_it_is_plain_decodes(pair: Pair, prediction: str) -> None:
    seeded, greedy = Sampling(temperature=0, seed=1), Sampling(temperature=0)
    how = Options(drafters=("ngram", "prediction"), fixed_k=8)
    with closing(LoadedEngine(pair, how)) as engine, closing(LoadedEngine(pair, Options(drafters=()))) as plain:
        expected = "".join(chunk.text for chunk in plain.reply(ASKED, seeded, 150))
        chunks = list(engine.reply(ASKED, seeded, 150, prediction=prediction))
        assert "".join(chunk.text for chunk in chunks) == expected
        assert chunks[-1].stats is not None
        assert chunks[-1].stats.n_inexact == 0
        stats = list(engine.reply(ASKED, greedy, 150, prediction=prediction))[-1].stats
        assert stats is not None
        assert stats.tokens_per_target_pass > 2
