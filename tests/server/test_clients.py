"""Requests in the shapes that editors send, replayed: what each of them reads must be in the answer."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from runtime.engine import Infill, Message, Options, Sampling
from runtime.engine.loaded import LoadedEngine
from runtime.engine.process.client import EngineProcess
from runtime.models.registry import find_pair
from tests.conftest import OpenEngine
from tests.support.coder import write_coder
from tests.support.serving import (
    READ_FILE,
    events,
    open_usual,
    running,
)

QUESTION = "What does os.path.join do?"
GREEDY = Sampling(temperature=0.0)
LLAMA_VIM: dict[str, Any] = {
    "id_slot": 0,
    "input_prefix": "def join(a, b):\n",
    "input_suffix": "\n\nprint(join(1, 2))\n",
    "input_extra": [{"text": "import os", "time": [7, 350], "filename": "a.py"}],
    "prompt": "    return ",
    "n_predict": 8,
    "stop": [],
    "n_indent": 4,
    "top_k": 40,
    "top_p": 0.90,
    "temperature": 0.0,
    "stream": False,
    "samplers": ["top_k", "top_p", "infill"],
    "cache_prompt": True,
    "t_max_prompt_ms": 500,
    "t_max_predict_ms": 60_000,
    "response_fields": [
        "content",
        "timings/prompt_n",
        "timings/predicted_ms",
        "timings/predicted_per_second",
        "truncated",
        "tokens_cached",
        "nothing",
    ],
}


@pytest.fixture(scope="module")
def coder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_coder(tmp_path_factory.mktemp("models") / "coder.gguf")


@pytest.fixture(scope="module")
def demo() -> Iterator[httpx2.Client]:
    with running(open_usual) as here:
        yield here.client()


@pytest.fixture(scope="module")
def engine(open_demo: OpenEngine) -> LoadedEngine:
    return open_demo(threads=1)


def test_llama_vim_gets_what_it_reads(coder: Path) -> None:
    with running(lambda on_progress: EngineProcess(find_pair(str(coder), {}), Options(threads=1), on_progress)) as here:
        client = here.client()
        warm = client.post(
            "/infill",
            json=LLAMA_VIM
            | {"n_predict": 0, "prompt": "", "samplers": [], "t_max_predict_ms": 1, "response_fields": [""]},
        )
        assert (warm.status_code, warm.json()) == (200, {})
        body = client.post("/infill", json=LLAMA_VIM).text
        assert re.match(r"^\s*{", body)
        assert '"content":"' in body
        reply = json.loads(body)
        assert set(reply) == set(LLAMA_VIM["response_fields"]) - {"nothing"}
        assert reply["timings/prompt_n"] > 0
        suffix = client.post(
            "/v1/completions", json={"prompt": "def f():", "suffix": "\n", "max_tokens": 4, "temperature": 0}
        ).json()
    engine = LoadedEngine(find_pair(str(coder), {}), Options(threads=1))
    place = Infill("def join(a, b):\n    return ", "\n\nprint(join(1, 2))\n", (("a.py", "import os"),))
    assert reply["content"] == "".join(chunk.text for chunk in engine.reply(place, GREEDY, 8))
    assert suffix["choices"][0]["text"] == "".join(
        chunk.text for chunk in engine.reply(Infill("def f():", "\n"), GREEDY, 4)
    )
    engine.close()


def test_llama_vims_instructions_are_read_in_advance(demo: httpx2.Client) -> None:
    turns = [{"role": "system", "content": "--- PREFIX\nimport os\n--- SELECTION\nx"}, {"role": "user", "content": ""}]
    warm_up = {
        "id_slot": 1,
        "samplers": [],
        "n_predict": 0,
        "stream": False,
        "cache_prompt": True,
        "response_fields": [""],
    }
    warm = demo.post("/v1/chat/completions", json={"messages": turns} | warm_up).json()
    assert (warm["usage"]["completion_tokens"], warm["choices"][0]["message"]["content"]) == (0, "")
    turns[1]["content"] = "INSTRUCTION: mend it"
    asked = {
        "id_slot": 1,
        "messages": turns,
        "min_p": 0.1,
        "temperature": 0.1,
        "samplers": ["min_p", "temperature"],
        "stream": True,
        "cache_prompt": True,
    }
    found = events(demo.post("/v1/chat/completions", json=asked))
    assert all("delta" in event["choices"][0] for event in found)
    assert found[-1]["timings"]["cache_n"] > 10


def test_without_tokens_for_it_filling_in_is_refused(demo: httpx2.Client) -> None:
    reply = demo.post("/infill", json=LLAMA_VIM)
    assert reply.status_code == 400
    assert "cannot fill in the middle" in reply.json()["error"]["message"]


def test_continue_streams_chat_with_a_final_usage(demo: httpx2.Client, engine: LoadedEngine) -> None:
    body = {
        "messages": [{"role": "user", "content": [{"type": "text", "text": QUESTION}]}],
        "model": "demo", "max_tokens": 12, "temperature": 0, "stream": True, "stream_options": {"include_usage": True},
        "prediction": {"type": "content", "content": "Join two or more"}, "stop": None, "presence_penalty": None,
        "unknown": {"x": 1},
    }  # fmt: skip
    found = events(demo.post("/v1/chat/completions", json=body))
    text = "".join(choice["delta"].get("content") or "" for event in found for choice in event["choices"])
    assert text == "".join(chunk.text for chunk in engine.reply([Message("user", QUESTION)], GREEDY, 12))
    assert found[-1]["choices"] == []
    assert found[-1]["usage"]["completion_tokens"] == 12
    assert {
        "prompt_n",
        "draft_n",
        "draft_ms",
        "verify_ms",
        "tokens_per_target_pass",
        "drafter",
        "fallback_reason",
    } <= found[-1]["timings"].keys()


def test_continue_completes_with_marks_in_the_prompt(demo: httpx2.Client) -> None:
    body = {
        "model": "demo",
        "prompt": f"<|im_start|>user\n{QUESTION}<|im_end|>\n<|im_start|>assistant\n",
        "max_tokens": 5,
        "temperature": 0,
        "stream": True,
    }
    plain = events(demo.post("/completions", json=body))
    chat = demo.post(
        "/v1/chat/completions",
        json={"messages": [{"role": "user", "content": QUESTION}], "max_tokens": 5, "temperature": 0},
    ).json()
    assert "".join(event["choices"][0]["text"] for event in plain) == chat["choices"][0]["message"]["content"]


def test_continues_llama_cpp_provider_streams_content(demo: httpx2.Client, engine: LoadedEngine) -> None:
    body = {
        "prompt": "import os",
        "n_predict": 6,
        "stream": True,
        "temperature": 0,
        "mirostat": 0,
        "cache_prompt": True,
        "seed": -1,
        "n_probs": 1,
    }
    found = events(demo.post("/completion", json=body))
    assert "".join(event["content"] for event in found) == "".join(
        chunk.text for chunk in engine.reply("import os", GREEDY, 6)
    )
    assert [event["stop"] for event in found] == [False] * (len(found) - 1) + [True]
    assert found[-1]["stop_type"] == "limit"
    assert found[-1]["tokens_predicted"] == 6
    assert found[-1]["timings"]["predicted_n"] == 6
    assert sum(len(event.get("completion_probabilities", ())) for event in found) == 6


def test_zed_finds_the_model_and_talks_to_it(demo: httpx2.Client, engine: LoadedEngine) -> None:
    (model,) = demo.get("/v1/models").json()["data"]
    assert (model["meta"]["n_ctx"], model["status"]["value"]) == (engine.facts.n_ctx, "loaded")
    props = demo.get("/props").json()
    assert props["default_generation_settings"]["n_ctx"] == engine.facts.n_ctx
    assert props["chat_template_caps"]["supports_tools"] is True
    assert props["memory"]["level"] in ("OK", "TIGHT", "CRITICAL")
    assert "MiB of memory, where" in props["memory"]["fit"]
    assert "given_up" in props["memory"]
    body = {
        "model": "demo", "messages": [{"role": "system", "content": "Be brief."}, {"role": "user",
        "content": [{"type": "text", "text": QUESTION}]}],
        "stream": True, "stream_options": {"include_usage": True}, "max_completion_tokens": 8, "stop": [],
        "temperature": 1.0, "seed": 3,
        "tool_choice": "auto", "parallel_tool_calls": False, "tools": [READ_FILE], "prompt_cache_key": "k",
        "reasoning_effort": None,
    }  # fmt: skip
    found = events(demo.post("/v1/chat/completions", json=body))
    assert found[0]["choices"][0]["delta"]["role"] == "assistant"
    assert [choice["finish_reason"] for event in found for choice in event["choices"]][-1] in (
        "length",
        "stop",
        "tool_calls",
    )


def test_roo_and_cline_may_send_what_we_do_not_know(demo: httpx2.Client) -> None:
    body = {
        "model": "demo", "temperature": 0, "messages": [{"role": "system", "content": "You are Roo."}, {"role": "user",
        "content": QUESTION}],
        "stream": True, "stream_options": {"include_usage": True}, "draft_model": "some/draft", "num_draft_tokens": 4,
        "max_tokens": 6,
        "tools": [READ_FILE], "tool_choice": "auto", "parallel_tool_calls": True,
    }  # fmt: skip
    found = events(demo.post("/v1/chat/completions", json=body))
    assert found[-1]["usage"]["completion_tokens"] <= 6
    assert demo.get("/models").json() == demo.get("/v1/models").json()


def test_llama_cpps_other_list_has_the_same_models(demo: httpx2.Client) -> None:
    found = demo.get("/models").json()
    (card,), (brief,) = found["data"], found["models"]
    assert (brief["name"], brief["type"], brief["size"]) == (card["id"], "model", card["meta"]["size"])
    assert brief["capabilities"] == card["capabilities"] == ["completion"]
    assert brief["details"]["format"] == "gguf"
