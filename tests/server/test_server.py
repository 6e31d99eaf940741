"""The real OpenAI client against a running server with the bundled pair behind it: the text is what the engine says by
itself.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import httpx2
import openai
import pytest

from runtime.engine import Grammar, Message, Sampling
from runtime.engine.loaded import LoadedEngine
from tests.conftest import OpenEngine
from tests.support.serving import Running, open_usual, running, shared
from tests.support.waiting import PATIENCE

QUESTION = "What does os.path.join do?"
MESSAGES: Any = [{"role": "user", "content": QUESTION}]
GREEDY = Sampling(temperature=0.0)
SCHEMA = {
    "type": "object",
    "properties": {"n": {"enum": [1, 2]}, "ok": {"type": "boolean"}},
    "required": ["n", "ok"],
    "additionalProperties": False,
}
WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"enum": ["Paris", "Rome"]}, "days": {"enum": [1, 2]}},
            "required": ["city", "days"],
            "additionalProperties": False,
        },
    },
}


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(open_usual, tmp_path_factory.mktemp("s") / "socket") as found:
        yield found


@pytest.fixture(scope="module")
def engine(open_demo: OpenEngine) -> LoadedEngine:
    return open_demo(threads=1)


@pytest.fixture(scope="module")
def client(here: Running) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{here.url}/v1", api_key="none", max_retries=0, timeout=PATIENCE) as found:
        yield found


def said(engine: LoadedEngine, max_tokens: int | None = None, sampling: Sampling = GREEDY, **more: Any) -> str:
    return "".join(chunk.text for chunk in engine.reply([Message("user", QUESTION)], sampling, max_tokens, **more))


def text_of(stream: Any) -> str:
    return "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)


def test_a_reply_is_the_engines_own(client: openai.OpenAI, engine: LoadedEngine) -> None:
    reply = client.chat.completions.create(model="demo", messages=MESSAGES, max_tokens=30)
    assert reply.choices[0].message.content == said(engine, 30)
    assert reply.choices[0].finish_reason == "length"
    assert reply.usage is not None
    assert reply.usage.completion_tokens == 30
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + 30


def test_a_stream_says_the_same_and_ends_with_usage(client: openai.OpenAI, engine: LoadedEngine) -> None:
    stream = client.chat.completions.create(
        model="demo", messages=MESSAGES, max_tokens=30, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    assert text_of(chunks) == said(engine, 30)
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 30
    assert [choice.finish_reason for chunk in chunks for choice in chunk.choices if choice.finish_reason] == ["length"]


def test_a_stream_is_read_to_its_end_mark(here: Running) -> None:
    body = here.client().post("/v1/chat/completions", json={"messages": MESSAGES, "max_tokens": 3, "stream": True}).text
    events = body.split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    assert "usage" not in json.loads(events[0].removeprefix("data: "))
    assert all(event.startswith("data: ") for event in events[:-1])


def test_the_asynchronous_client_streams_over_the_unix_socket(here: Running, engine: LoadedEngine) -> None:
    async def ask() -> str:
        http = httpx2.AsyncClient(transport=httpx2.AsyncHTTPTransport(uds=str(here.path)))
        async with openai.AsyncOpenAI(
            base_url="http://slipstream/v1", api_key="none", http_client=http, timeout=PATIENCE
        ) as client:
            stream = await client.chat.completions.create(
                model="demo", messages=MESSAGES, max_completion_tokens=12, stream=True
            )
            return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    assert asyncio.run(ask()) == said(engine, 12)


def test_a_seed_gives_the_engines_text_for_that_seed(client: openai.OpenAI, engine: LoadedEngine) -> None:
    def text(seed: int) -> str | None:
        reply = client.chat.completions.create(
            model="demo",
            messages=MESSAGES,
            max_tokens=20,
            seed=seed,
            temperature=2,
            top_p=1,
            extra_body={"min_p": 0, "top_k": 0},
        )
        return reply.choices[0].message.content

    assert text(1) == said(engine, 20, Sampling(temperature=2, top_k=0, top_p=1, min_p=0, seed=1)) != text(2)


def test_a_reply_stops_before_the_stop_string(client: openai.OpenAI, engine: LoadedEngine) -> None:
    whole = said(engine, 30)
    stop = whole[20:24]
    reply = client.chat.completions.create(model="demo", messages=MESSAGES, max_tokens=30, stop=stop)
    assert reply.choices[0].message.content == whole[: whole.index(stop)]
    assert reply.choices[0].finish_reason == "stop"


def test_a_bias_forbids_tokens(client: openai.OpenAI, engine: LoadedEngine) -> None:
    first = next(engine.reply([Message("user", QUESTION)], GREEDY, 1)).tokens[0]
    reply = client.chat.completions.create(model="demo", messages=MESSAGES, max_tokens=5, logit_bias={str(first): -100})
    assert reply.choices[0].message.content == said(engine, 5, Sampling(temperature=0.0, logit_bias=((first, -100.0),)))


def test_a_schema_holds(client: openai.OpenAI, engine: LoadedEngine) -> None:
    wanted: Any = {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA, "strict": True}}
    reply = client.chat.completions.create(model="demo", messages=MESSAGES, response_format=wanted)
    assert reply.choices[0].message.content == said(engine, grammar=Grammar("json_schema", json.dumps(SCHEMA)))
    assert json.loads(reply.choices[0].message.content or "")["n"] in (1, 2)


def test_plain_text_can_be_asked_for_as_a_format(client: openai.OpenAI, engine: LoadedEngine) -> None:
    reply = client.chat.completions.create(
        model="demo", messages=MESSAGES, max_tokens=4, response_format={"type": "text"}
    )
    assert reply.choices[0].message.content == said(engine, 4)


def test_a_prediction_changes_the_counts_and_not_the_text(engine: LoadedEngine) -> None:
    whole = said(engine, 40)
    with running(shared(drafters=("prediction",), fixed_k=4)) as server:
        body = {"messages": MESSAGES, "max_tokens": 40, "prediction": {"type": "content", "content": whole}}
        reply = server.client().post("/v1/chat/completions", json=body).json()
    assert reply["choices"][0]["message"]["content"] == whole
    details = reply["usage"]["completion_tokens_details"]
    assert details["accepted_prediction_tokens"] == reply["timings"]["draft_n_accepted"] > 0
    assert details["rejected_prediction_tokens"] == reply["timings"]["draft_n"] - reply["timings"]["draft_n_accepted"]


def test_a_prompt_asked_twice_is_cached(client: openai.OpenAI) -> None:
    replies = [client.chat.completions.create(model="demo", messages=MESSAGES, max_tokens=1) for _ in range(2)]
    assert replies[1].usage is not None
    assert replies[1].usage.prompt_tokens_details is not None
    assert replies[1].usage.prompt_tokens_details.cached_tokens == replies[1].usage.prompt_tokens - 1


def test_a_text_completion_continues_the_prompt(client: openai.OpenAI, engine: LoadedEngine) -> None:
    expected = "".join(chunk.text for chunk in engine.reply("import os", GREEDY, 8))
    assert client.completions.create(model="demo", prompt="import os", max_tokens=8).choices[0].text == expected
    stream = client.completions.create(
        model="demo", prompt=engine.encode("import os"), max_tokens=8, stream=True, logprobs=1
    )
    choices = [chunk.choices[0] for chunk in stream]
    assert "".join(choice.text for choice in choices) == expected
    assert "".join(token for choice in choices if choice.logprobs for token in choice.logprobs.tokens or ()) == expected


def test_a_required_tool_is_called_with_arguments_of_its_schema(client: openai.OpenAI) -> None:
    reply = client.chat.completions.create(
        model="demo", messages=MESSAGES, tools=[WEATHER], tool_choice="required", parallel_tool_calls=False
    )
    (call,) = reply.choices[0].message.tool_calls or ()
    assert reply.choices[0].finish_reason == "tool_calls"
    assert call.type == "function"
    assert call.function.name == "get_weather"
    arguments = json.loads(call.function.arguments)
    assert arguments["city"] in ("Paris", "Rome")
    assert arguments["days"] in (1, 2)


def test_a_tool_call_streams_as_it_is_told_whole(client: openai.OpenAI) -> None:
    chosen: Any = {"type": "function", "function": {"name": "get_weather"}}
    whole = client.chat.completions.create(model="demo", messages=MESSAGES, tools=[WEATHER], tool_choice=chosen)
    deltas = [
        call
        for chunk in client.chat.completions.create(
            model="demo", messages=MESSAGES, tools=[WEATHER], tool_choice=chosen, stream=True
        )
        for call in chunk.choices[0].delta.tool_calls or ()
    ]
    assert {call.index for call in deltas} == {0}
    assert [call.id is not None for call in deltas] == [True] + [False] * (len(deltas) - 1)
    arguments = "".join(call.function.arguments or "" for call in deltas if call.function)
    (call,) = whole.choices[0].message.tool_calls or ()
    assert call.type == "function"
    assert arguments == call.function.arguments


def test_a_conversation_with_calls_and_results_goes_on(client: openai.OpenAI) -> None:
    call = {
        "id": "call_1",
        "type": "function",
        "function": {"name": "get_weather", "arguments": '{"city": "Rome", "days": 1}'},
    }
    turns: Any = [
        *MESSAGES,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "Sun"},
    ]
    reply = client.chat.completions.create(
        model="demo", messages=turns, tools=[WEATHER], tool_choice="none", max_tokens=3
    )
    assert reply.choices[0].message.content
    assert reply.choices[0].message.tool_calls is None


def test_the_model_is_listed(client: openai.OpenAI) -> None:
    (model,) = client.models.list().data
    assert model.id == "demo"
    assert client.models.retrieve("demo") == model


def test_the_only_model_answers_to_any_name_and_says_its_own(client: openai.OpenAI) -> None:
    reply = client.chat.completions.create(model="gpt-4o", messages=MESSAGES, max_tokens=2)
    assert reply.model == "demo"


def test_a_limit_of_minus_one_is_none_and_a_top_p_of_zero_leaves_the_likeliest_token(client: openai.OpenAI) -> None:
    settings: Any = {"model": "demo", "messages": MESSAGES, "temperature": 1.5}
    sure = [client.chat.completions.create(**settings, max_tokens=12, top_p=0, seed=seed) for seed in (1, 2)]
    greedy = client.chat.completions.create(**settings | {"temperature": 0}, max_tokens=-1)
    assert sure[0].choices[0].message.content == sure[1].choices[0].message.content
    assert (greedy.choices[0].message.content or "").startswith(sure[0].choices[0].message.content or "?")
    assert greedy.choices[0].finish_reason == "stop"


@pytest.mark.parametrize(
    "constraint",
    [
        {"grammar": 'root ::= "yes" | "no"'},
        {"json_schema": {"enum": ["yes", "no"]}},
        {"response_format": {"type": "json_object", "schema": {"enum": ["yes", "no"]}}},
    ],
)
def test_constraints_as_llama_cpps_clients_send_them_hold(client: openai.OpenAI, constraint: dict[str, Any]) -> None:
    for ask in (
        lambda: client.chat.completions.create(model="demo", messages=MESSAGES, extra_body=constraint),
        lambda: client.completions.create(model="demo", prompt="Is it?", extra_body=constraint),
    ):
        choice: Any = ask().choices[0]
        said = choice.message.content if hasattr(choice, "message") else choice.text
        assert said.strip('"') in {"yes", "no"}


@pytest.mark.parametrize(
    ("constraint", "param"),
    [
        ({"grammar": 'root ::= "yes'}, "grammar"),
        ({"grammar": "root ::= missing"}, "grammar"),
        ({"grammar": 'root ::= "a"', "json_schema": {}}, "grammar"),
        ({"grammar": 'root ::= "a"', "response_format": {"type": "json_object"}}, "response_format"),
    ],
)
def test_a_constraint_that_cannot_be_used_is_refused(
    client: openai.OpenAI, constraint: dict[str, Any], param: str
) -> None:
    with pytest.raises(openai.BadRequestError) as wrong:
        client.chat.completions.create(model="demo", messages=MESSAGES, extra_body=constraint)
    assert wrong.value.param == param


def test_refusals_reach_the_client_as_its_own_errors(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="Served: demo") as caught:
        client.models.retrieve("gpt-4o")
    assert caught.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as wrong:
        client.chat.completions.create(model="demo", messages=MESSAGES, temperature=-1)
    assert wrong.value.param == "temperature"
    with pytest.raises(openai.BadRequestError) as long:
        client.chat.completions.create(model="demo", messages=[{"role": "user", "content": "word " * 3000}])
    assert long.value.code == "context_length_exceeded"
