"""Completions whole: several prompts and replies, what the body says of them, probabilities, biases, progress."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import httpx2
import openai
import pytest

from app.server.usage import Tally
from runtime.engine import Chunk
from runtime.engine.loaded import LoadedEngine
from runtime.engine.stats import Stats
from tests.conftest import OpenEngine
from tests.support.serving import Running, endless_request, events, open_usual, running
from tests.support.waiting import PATIENCE

SHARED = "Paths are joined with os.path.join, as the manual of the library says. "


@pytest.fixture(scope="module")
def here() -> Iterator[Running]:
    with running(open_usual) as found:
        yield found


@pytest.fixture(scope="module")
def demo(here: Running) -> httpx2.Client:
    return here.client()


@pytest.fixture(scope="module")
def client(here: Running) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{here.url}/v1", api_key="none", max_retries=0, timeout=PATIENCE) as found:
        yield found


@pytest.fixture(scope="module")
def engine(open_demo: OpenEngine) -> LoadedEngine:
    return open_demo(threads=1)


@pytest.fixture(scope="module")
def unending(engine: LoadedEngine) -> dict[str, Any]:
    return endless_request(engine) | {"n_predict": 6}


def completed(demo: httpx2.Client, body: dict[str, Any]) -> Any:
    reply = demo.post("/completion", json=body)
    assert reply.status_code == 200, reply.text
    return reply.json()


def test_several_prompts_are_answered_each(demo: httpx2.Client, engine: LoadedEngine, unending: dict[str, Any]) -> None:
    prompts = ["import os", engine.tokenize("import re", bos=True), {"prompt_string": "import os"}]
    found = completed(demo, unending | {"prompt": prompts})
    assert [body["index"] for body in found] == [0, 1, 2]
    assert [body["content"] for body in found] == [
        completed(demo, unending | {"prompt": prompt})["content"] for prompt in prompts
    ]
    streamed = events(demo.post("/completion", json=unending | {"prompt": prompts, "stream": True}))
    for i, body in enumerate(found):
        of_it = [event for event in streamed if event["index"] == i]
        assert "".join(event["content"] for event in of_it) == body["content"]
        assert [event["stop"] for event in of_it] == [False] * (len(of_it) - 1) + [True]


def test_ids_and_texts_may_be_one_prompt(demo: httpx2.Client, engine: LoadedEngine, unending: dict[str, Any]) -> None:
    mixed = ["import", *engine.tokenize(" os"), "\nimport re"]
    body = completed(demo, unending | {"prompt": mixed})
    assert body["prompt"] == "import os\nimport re"
    assert body["tokens_evaluated"] == len(engine.tokenize("import")) + len(mixed) - 2 + len(
        engine.tokenize("\nimport re")
    )


def test_several_replies_to_one_prompt_differ_by_their_seeds(demo: httpx2.Client, unending: dict[str, Any]) -> None:
    several = unending | {"temperature": 1.5, "seed": 7, "n_cmpl": 2}
    first, second = completed(demo, several)
    assert first["content"] == completed(demo, several | {"n_cmpl": 1})["content"]
    assert second["content"] == completed(demo, several | {"n_cmpl": 1, "seed": 8})["content"]
    assert first["content"] != second["content"]


def test_the_body_says_what_it_was_made_of(demo: httpx2.Client, engine: LoadedEngine, unending: dict[str, Any]) -> None:
    body = completed(demo, unending | {"seed": 5, "top_k": 7, "return_tokens": True})
    settings = body["generation_settings"]
    assert (settings["seed"], settings["top_k"], settings["n_predict"], settings["mirostat"]) == (5, 7, 6, 0)
    assert body["prompt"] == unending["prompt"]
    assert len(body["tokens"]) == 6
    assert b"".join(map(engine.token_bytes, body["tokens"])).decode("utf8", "replace").startswith(body["content"])
    assert body["has_new_line"] == ("\n" in body["content"])
    assert not body["truncated"]
    assert completed(demo, unending)["tokens"] == []
    params = demo.get("/props").json()["default_generation_settings"]["params"]
    assert params.keys() <= settings.keys()
    assert (params["seed"], params["temperature"]) == (-1, 0)


def test_the_word_that_ended_a_reply_is_named(demo: httpx2.Client, unending: dict[str, Any]) -> None:
    word = completed(demo, unending)["content"][3:6]
    body = completed(demo, unending | {"stop": ["never said", word]})
    assert (body["stop_type"], body["stopping_word"]) == ("word", word)
    assert body["generation_settings"]["stop"] == ["never said", word]


def test_fields_are_picked_by_their_paths(demo: httpx2.Client, unending: dict[str, Any]) -> None:
    fields = ["content", "generation_settings/n_predict", "timings/prompt_n", "no/such"]
    assert list(completed(demo, unending | {"response_fields": fields})) == fields[:3]
    assert "model" in completed(demo, unending | {"response_fields": []})


def test_what_the_cache_held_was_not_read(demo: httpx2.Client, unending: dict[str, Any]) -> None:
    prompt = SHARED * 3
    completed(demo, unending | {"prompt": prompt})
    body = completed(demo, unending | {"prompt": prompt + "And"})
    timings = body["timings"]
    assert timings["cache_n"] > timings["prompt_n"] > 0
    assert timings["prompt_n"] + timings["cache_n"] == body["tokens_evaluated"]


@pytest.mark.parametrize("path", ["/completion", "/v1/chat/completions"])
def test_progress_is_told_while_the_prompt_is_read(demo: httpx2.Client, path: str) -> None:
    text = f"{path} " + SHARED * 40
    body = {"prompt": text, "messages": [{"role": "user", "content": text}], "max_tokens": 3, "stream": True}
    asked = events(demo.post(path, json=body | {"return_progress": True, "timings_per_token": True}))
    told = [event for event in asked if "prompt_progress" in event]
    done = [event["prompt_progress"]["processed"] for event in told]
    total = told[0]["prompt_progress"]["total"]
    assert done[0] == told[0]["prompt_progress"]["cache"] < done[1] < done[2] <= done[-1] == total
    assert told[0]["timings"]["prompt_n"] == told[0]["timings"]["predicted_n"] == 0
    predicted = [event["timings"]["predicted_n"] for event in asked if "timings" in event]
    assert predicted[-1] == max(predicted) > 0
    assert not any("prompt_progress" in event for event in events(demo.post(path, json=body)))


def test_a_reply_goes_on_where_it_would_end(demo: httpx2.Client, engine: LoadedEngine) -> None:
    prompt = "import os"
    body = completed(demo, {"prompt": prompt, "ignore_eos": True, "n_predict": 200, "temperature": 0})
    assert body["tokens_predicted"] == 200
    banned = body["generation_settings"]["logit_bias"]
    assert banned == [{"token": token, "bias": None} for token in engine.end_tokens]
    assert completed(demo, {"prompt": prompt, "n_predict": 1})["generation_settings"]["logit_bias"] == []


@pytest.mark.parametrize("as_list", [False, True])
def test_a_bias_may_name_words(
    demo: httpx2.Client, engine: LoadedEngine, unending: dict[str, Any], as_list: bool
) -> None:
    likeliest = completed(demo, unending | {"n_predict": 1, "return_tokens": True})["tokens"][0]
    word = engine.token_text(likeliest)
    pairs: list[Any] = [[word, False], *unending["logit_bias"]]
    biases = pairs if as_list else {str(token): bias for token, bias in pairs}
    body = completed(demo, unending | {"logit_bias": biases, "return_tokens": True})
    assert not set(engine.tokenize(word)) & set(body["tokens"])


def test_more_than_twenty_probabilities_are_given(demo: httpx2.Client, unending: dict[str, Any]) -> None:
    (entry, *_) = completed(demo, unending | {"n_probs": 50})["completion_probabilities"]
    assert len(entry["top_logprobs"]) == 50
    assert demo.post("/completion", json=unending | {"n_probs": -1}).json()["error"]["param"] == "n_probs"


def test_probabilities_after_sampling_are_those_of_what_is_left(demo: httpx2.Client, unending: dict[str, Any]) -> None:
    asked = unending | {"n_probs": 9, "post_sampling_probs": True, "temperature": 1.3, "seed": 3, "min_p": 0}
    for entry in completed(demo, asked | {"top_k": 4, "top_p": 1.0})["completion_probabilities"]:
        assert len(entry["top_probs"]) <= 4
        assert math.isclose(sum(other["prob"] for other in entry["top_probs"]), 1, abs_tol=1e-6)
        assert {other["id"]: other["prob"] for other in entry["top_probs"]}[entry["id"]] == entry["prob"]
    for entry in completed(demo, asked | {"temperature": 0})["completion_probabilities"]:
        assert entry["prob"] == 1


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_log_probabilities_after_sampling_are_zero_where_nothing_else_was_left(demo: httpx2.Client, path: str) -> None:
    asked = {"prompt": "import", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3, "top_k": 1}
    asked |= {"temperature": 1.0, "logprobs": "chat" in path or 1}

    def found(after: bool) -> list[float]:
        (choice,) = demo.post(path, json=asked | {"post_sampling_probs": after}).json()["choices"]
        told = choice["logprobs"]
        return told.get("token_logprobs") or [entry["logprob"] for entry in told["content"]]

    assert found(True) == [0.0] * 3
    assert all(each < 0 for each in found(False))


def test_choices_of_a_text_completion(client: openai.OpenAI) -> None:
    prompts = ["import os", "import re"]
    reply = client.completions.create(model="demo", prompt=prompts, n=2, max_tokens=4, seed=1, temperature=1)
    assert [choice.index for choice in reply.choices] == [0, 1, 2, 3]
    assert reply.system_fingerprint
    assert reply.usage
    alone = [client.completions.create(model="demo", prompt=prompt, max_tokens=4, seed=1, temperature=1)
             for prompt in prompts]  # fmt: skip
    assert [choice.text for choice in reply.choices[::2]] == [each.choices[0].text for each in alone]
    assert reply.usage.prompt_tokens == sum(each.usage.prompt_tokens for each in alone if each.usage)


def test_streamed_choices_are_those_of_the_body(client: openai.OpenAI) -> None:
    asked: dict[str, Any] = {"model": "demo", "prompt": ["a", "b"], "n": 2, "max_tokens": 4, "seed": 1, "echo": True}
    whole = client.completions.create(**asked)
    texts, usage = [""] * 4, None
    for event in client.completions.create(**asked, stream=True, stream_options={"include_usage": True}):
        for choice in event.choices:
            texts[choice.index] += choice.text
        usage = event.usage
    assert texts == [choice.text for choice in whole.choices]
    assert texts[0].startswith("a")
    assert texts[3].startswith("b")
    assert usage == whole.usage


def test_without_v1_text_is_found_where_llamacpps_clients_look(demo: httpx2.Client) -> None:
    asked = {"prompt": "import", "max_tokens": 4, "temperature": 0}
    body = demo.post("/completions", json=asked).json()
    assert body["content"] == body["choices"][0]["text"]
    streamed = events(demo.post("/completions", json=asked | {"stream": True}))
    assert "".join(event["content"] for event in streamed) == body["content"]
    assert [event["stop"] for event in streamed] == [False] * (len(streamed) - 1) + [True]


def test_the_best_of_several_is_the_likeliest(client: openai.OpenAI) -> None:
    asked: dict[str, Any] = {"model": "demo", "prompt": "import", "max_tokens": 4, "temperature": 1.5, "logprobs": 0}
    made = client.completions.create(**asked, n=4, seed=1).choices
    (best,) = client.completions.create(**asked, n=1, best_of=4, seed=1).choices
    means = {
        choice.text: sum(filter(None, choice.logprobs.token_logprobs or ())) / len(choice.logprobs.tokens or "x")
        for choice in made
        if choice.logprobs
    }
    assert means[best.text] == max(means.values())


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"best_of": 2, "stream": True}, "best_of"),
        ({"best_of": 1, "n": 2}, "best_of"),
        ({"prompt": ["x"] * 2000, "n": 2}, "prompt"),
        ({"echo": True, "logprobs": 1}, "echo"),
        ({"logprobs": 21}, "logprobs"),
        ({"prompt": {"prompt_string": "x", "multimodal_data": ["aaaa"]}}, "prompt"),
        ({"logit_bias": 5}, "logit_bias"),
        ({"logit_bias": [[1, 2, 3]]}, "logit_bias"),
    ],
)
def test_what_does_not_go_together_is_refused(demo: httpx2.Client, change: dict[str, Any], param: str) -> None:
    reply = demo.post("/v1/completions", json={"prompt": "x", "max_tokens": 1} | change)
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == param


def test_choices_of_a_chat(client: openai.OpenAI) -> None:
    asked: dict[str, Any] = {"model": "demo", "max_tokens": 5, "seed": 1, "temperature": 1, "n": 3}
    asked["messages"] = [{"role": "user", "content": "What is a deque?"}]
    whole = client.chat.completions.create(**asked)
    assert [choice.index for choice in whole.choices] == [0, 1, 2]
    assert whole.usage
    assert whole.usage.completion_tokens > 5
    texts, roles = [""] * 3, list[int]()
    for event in client.chat.completions.create(**asked, stream=True):
        assert event.system_fingerprint == whole.system_fingerprint
        for choice in event.choices:
            texts[choice.index] += choice.delta.content or ""
            roles += [choice.index] * bool(choice.delta.role)
    assert texts == [choice.message.content for choice in whole.choices]
    assert roles == [0, 1, 2]


def test_a_prompt_counts_once_however_many_replies_it_has() -> None:
    tally = Tally(n_prompts=2, n_choices=3)
    for n in (5, 5, 5, 7, 7, 7):
        tally.add(Chunk("", finish_reason="stop", stats=Stats(prompt_n=n)))
    usage: Any = tally.usage()["usage"]
    assert tally.is_complete
    assert usage["prompt_tokens"] == usage["total_tokens"] == 5 + 7
