"""The server with public models behind it, by OpenAI's own client: chat, stream, completion, seed, schema, tools."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import openai
import pytest

from bench.instruments.texts import SCHEMA, follows_schema
from runtime.engine import Options
from runtime.engine.process.client import EngineProcess
from tests.real.asking import CASES, QUESTION
from tests.real.conftest import FindPair, SayPlainly
from tests.server.test_server import WEATHER
from tests.support.serving import running
from tests.support.waiting import PATIENCE

ASKED: Any = {"model": "smollm2", "messages": [{"role": "user", "content": QUESTION}], "max_tokens": 24}


@contextmanager
def client_of(real_pair: FindPair, name: str) -> Iterator[openai.OpenAI]:
    pair = real_pair(name)
    with (
        running(lambda on_progress: EngineProcess(pair, Options(), on_progress)) as here,
        openai.OpenAI(base_url=f"{here.url}/v1", api_key="none", max_retries=0, timeout=PATIENCE) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def smollm2(real_pair: FindPair) -> Iterator[openai.OpenAI]:
    with client_of(real_pair, "smollm2") as client:
        yield client


@pytest.fixture(scope="module")
def gemma3(real_pair: FindPair) -> Iterator[openai.OpenAI]:
    with client_of(real_pair, "gemma3") as client:
        yield client


def test_a_chats_reply_is_plain_decodes_at_once_and_streamed(smollm2: openai.OpenAI, said_plainly: SayPlainly) -> None:
    reply = smollm2.chat.completions.create(**ASKED, temperature=0)
    stream = smollm2.chat.completions.create(**ASKED, temperature=0, stream=True)
    streamed = "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)
    assert reply.choices[0].message.content == streamed == said_plainly("smollm2", False, "short, greedy").text


def test_a_completion_goes_on_as_plain_decode_does(gemma3: openai.OpenAI, said_plainly: SayPlainly) -> None:
    for prompt, case in ((QUESTION, "short, greedy"), (CASES["long, greedy"].question, "long, greedy")):
        reply = gemma3.completions.create(
            model="gemma3", prompt=prompt, max_tokens=CASES[case].max_tokens, temperature=0, seed=7
        )
        assert reply.choices[0].text == said_plainly("gemma3", False, case).text


@pytest.mark.parametrize("name", ["smollm2", "gemma3"])
def test_a_seed_gives_the_same_text_twice(request: pytest.FixtureRequest, name: str) -> None:
    client = request.getfixturevalue(name)
    asked = {"model": name, "prompt": QUESTION, "max_tokens": 24, "temperature": 1.2}
    first, again, other = (client.completions.create(**asked, seed=seed).choices[0].text for seed in (5, 5, 6))
    assert first == again != other


def test_a_model_without_a_template_refuses_to_chat(gemma3: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="has no chat template"):
        gemma3.chat.completions.create(**ASKED | {"model": "gemma3"})


def test_a_schema_holds(smollm2: openai.OpenAI) -> None:
    form: Any = {"type": "json_schema", "json_schema": {"name": "f", "schema": json.loads(SCHEMA)}}
    reply = smollm2.chat.completions.create(**ASKED | {"max_tokens": 100}, temperature=0, response_format=form)
    assert follows_schema(reply.choices[0].message.content or "")


def test_a_prediction_changes_nothing(smollm2: openai.OpenAI, said_plainly: SayPlainly) -> None:
    plain = said_plainly("smollm2", False, "short, greedy").text
    for content in (plain, plain.upper()):
        prediction: Any = {"type": "content", "content": content}
        reply = smollm2.chat.completions.create(**ASKED, temperature=0, prediction=prediction)
        assert reply.choices[0].message.content == plain


def test_tools_are_described_to_a_template_without_them_and_calls_follow_their_schema(smollm2: openai.OpenAI) -> None:
    asked = ASKED | {"max_tokens": 100, "temperature": 0}
    plain = smollm2.chat.completions.create(**asked)
    called = smollm2.chat.completions.create(**asked, tools=[WEATHER], tool_choice="required")
    assert called.usage.prompt_tokens > plain.usage.prompt_tokens + 50
    function = called.choices[0].message.tool_calls[0].function
    arguments = json.loads(function.arguments)
    assert (function.name, arguments["city"] in ("Paris", "Rome"), arguments["days"] in (1, 2)) == (
        "get_weather",
        True,
        True,
    )
