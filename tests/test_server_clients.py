"""Requests in the shapes that editors send, replayed: what each of them reads must be in the answer."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest

from app.server.llamacpp.completion import RawCompletionRequest
from app.server.openai.tool_call_parser import ToolCallParser, merge_tool_calls
from app.server.openai.tools import BEGIN, END
from runtime.engine import Engine, Infill, Message, Options, Sampling
from runtime.engine.prompt import infill_ids
from runtime.models.registry import find_pair, load_registry
from tests.conftest import OpenEngine
from tests.support.serving import running
from tests.support.shapes import N_BASE, TINY, add_layers, add_matrix, add_vocabulary, begin, finish

QUESTION = "What does os.path.join do?"
GREEDY = Sampling(temperature=0.0)
FIM = {"pre": "<|fim_prefix|>", "suf": "<|fim_suffix|>", "mid": "<|fim_middle|>", "sep": "<|file_sep|>"}
TEMPLATE = (
    "{% if tools %}{{ tools | tojson }}<tool_call>{% endif %}{% for m in messages %}[{{ m.role }}]{{ m.content }}"
    "{% if m.tool_calls %}{{ m.tool_calls[0].function.arguments.city }}{% endif %}{% endfor %}"
)
READ_FILE: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "read_file",
        "description": "Read a file",
        "parameters": {
            "type": "object",
            "properties": {"path": {"type": "string"}},
            "required": ["path"],
            "additionalProperties": False,
        },
        "strict": True,
    },
}
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


class Letters:
    """A tokenizer with a token per character."""

    def encode(self, text: str, *, special: bool) -> list[int]:
        return [ord(letter) for letter in text]

    def piece(self, token: int) -> bytes:
        return chr(token).encode()

    def is_end(self, token: int) -> bool:
        return False


@pytest.fixture(scope="module")
def coder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model whose vocabulary can fill in the middle and whose template knows tools."""
    path = tmp_path_factory.mktemp("models") / "coder.gguf"
    rng, words = np.random.default_rng(3), [*FIM.values(), *(f"w{i}" for i in range(TINY.vocab - N_BASE - len(FIM)))]
    writer = begin(path, TINY)
    add_vocabulary(writer, words, ["w 0"])
    for i, name in enumerate(FIM):
        writer.add_uint32(f"tokenizer.ggml.fim_{name}_token_id", N_BASE + i)
    writer.add_chat_template(TEMPLATE)
    add_matrix(writer, "token_embd.weight", TINY.vocab, TINY.width, rng)
    writer.add_tensor("output_norm.weight", np.ones(TINY.width, dtype=np.float32))
    add_layers(writer, TINY, rng)
    return finish(writer, path)


@pytest.fixture(scope="module")
def demo() -> Iterator[httpx2.Client]:
    with running(lambda on_progress: Engine(load_registry()["demo"], Options(threads=1), on_progress)) as here:
        yield here.client()


@pytest.fixture(scope="module")
def engine(open_demo: OpenEngine) -> Engine:
    return open_demo(threads=1)


@pytest.fixture(scope="module")
def unending(engine: Engine) -> dict[str, Any]:
    """A request whose reply does not end by itself, with the bias in llama.cpp's form."""
    ends = [[token, False] for token in range(engine.vocab.n_vocab) if engine.is_end(token)]
    return {"prompt": "import os", "temperature": 0, "logit_bias": ends}


def events(reply: httpx2.Response) -> list[Any]:
    assert reply.status_code == 200, reply.text
    assert reply.headers["content-type"].startswith("text/event-stream")
    return [
        json.loads(line.removeprefix("data: ")) for line in reply.text.split("\n\n") if line and line != "data: [DONE]"
    ]


def test_llama_vim_gets_what_it_reads(coder: Path) -> None:
    with running(lambda on_progress: Engine(find_pair(str(coder), {}), Options(threads=1), on_progress)) as here:
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
    engine = Engine(find_pair(str(coder), {}), Options(threads=1))
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


def test_tools_reach_a_template_that_knows_them(coder: Path) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "read_file", "arguments": '{"city": "Rome"}'}}
    engine = Engine(find_pair(str(coder), {}), Options(threads=1))
    assert '"read_file"' in engine.render([Message("user", "hi")], [READ_FILE])
    with running(lambda on_progress: engine) as here:
        client = here.client()
        turns = [
            {"role": "user", "content": "<hi>"},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "content": "Sun"},
        ]
        assert (
            client.post("/apply-template", json={"messages": turns}).json()["prompt"]
            == "[user]<hi>[assistant]Rome[tool]Sun"
        )
        asked = {"messages": turns, "tools": [READ_FILE], "max_tokens": 1, "temperature": 0}
        n_tokens = client.post("/v1/chat/completions", json=asked).json()["usage"]["prompt_tokens"]
        told = READ_FILE | {"function": {key: value for key, value in READ_FILE["function"].items() if key != "strict"}}
        assert n_tokens == len(engine.tokenize(f"{json.dumps([told])}<tool_call>[user]<hi>[assistant]Rome[tool]Sun"))


def test_without_tokens_for_it_filling_in_is_refused(demo: httpx2.Client) -> None:
    reply = demo.post("/infill", json=LLAMA_VIM)
    assert reply.status_code == 400
    assert "cannot fill in the middle" in reply.json()["error"]["message"]


def test_a_place_keeps_what_is_nearest_to_it() -> None:
    fim = {"prefix": 1, "suffix": 2, "middle": 3, "file": 4}
    ids = infill_ids(Infill("ab", "cd", (("f", "xyz"),)), Letters(), fim, 64)
    assert ids == [4, *b"f\nxyz", 1, *b"ab", 2, *b"cd", 3]
    long = infill_ids(Infill("a" * 99 + "b", "c" + "d" * 99, (("f", "x" * 99),)), Letters(), fim, 64)
    assert len(long) < 64
    assert long[0] == 1
    assert chr(long[long.index(2) - 1]) == "b"
    assert chr(long[long.index(2) + 1]) == "c"


def test_continue_streams_chat_with_a_final_usage(demo: httpx2.Client, engine: Engine) -> None:
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


def test_continues_llama_cpp_provider_streams_content(demo: httpx2.Client, engine: Engine) -> None:
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


def test_a_stop_string_is_told_from_the_models_own_end(demo: httpx2.Client, engine: Engine) -> None:
    prompt = demo.post("/apply-template", json={"messages": [{"role": "user", "content": QUESTION}]}).json()["prompt"]
    whole = demo.post("/completion", json={"prompt": prompt, "temperature": 0}).json()
    assert whole["stop_type"] == "eos"
    cut = demo.post("/completion", json={"prompt": prompt, "temperature": 0, "stop": [whole["content"][5:9]]}).json()
    assert cut["stop_type"] == "word"
    assert cut["content"] == whole["content"][: whole["content"].index(whole["content"][5:9])]


def test_time_that_is_over_ends_a_completion(demo: httpx2.Client, unending: dict[str, Any]) -> None:
    endless = demo.post("/completion", json=unending | {"n_predict": 500, "t_max_predict_ms": 1}).json()
    assert endless["stop_type"] == "limit"
    assert endless["tokens_predicted"] < 500


@pytest.mark.parametrize(
    ("more", "is_short"),
    [({}, False), ({"n_predict": 16}, True), ({"t_max_predict_ms": 200}, True), ({"n_predict": 999}, False)],
)
def test_what_somebody_waits_for_while_typing_goes_before_chats(
    engine: Engine, more: dict[str, Any], is_short: bool
) -> None:
    assert RawCompletionRequest.model_validate({"prompt": "x", **more}).task(engine).is_short == is_short


def test_zed_finds_the_model_and_talks_to_it(demo: httpx2.Client, engine: Engine) -> None:
    (model,) = demo.get("/v1/models").json()["data"]
    assert (model["meta"]["n_ctx"], model["status"]["value"]) == (engine.n_ctx, "loaded")
    props = demo.get("/props").json()
    assert props["default_generation_settings"]["n_ctx"] == engine.n_ctx
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


@pytest.mark.parametrize("result", ["import os", [{"type": "text", "text": "import os"}]])
@pytest.mark.parametrize("said", [None, "", [{"type": "text", "text": "I look."}]])
def test_the_turn_after_a_call_is_as_agents_send_it(demo: httpx2.Client, said: Any, result: Any) -> None:
    call = {
        "id": "call_1",
        "type": "function",
        "index": 0,
        "function": {"name": "read_file", "arguments": '{"path": "a.py"}'},
    }
    turns = [
        {"role": "user", "content": [{"type": "text", "text": "Read a.py", "cache_control": {"type": "ephemeral"}}]},
        {"role": "assistant", "content": said, "tool_calls": [call], "reasoning_content": "A file."},
        {"role": "tool", "tool_call_id": "call_1", "content": result},
    ]
    found = events(
        demo.post(
            "/v1/chat/completions", json={"messages": turns, "tools": [READ_FILE], "stream": True, "max_tokens": 2}
        )
    )
    assert found[-1]["choices"][0]["finish_reason"] in ("length", "stop")
    assert found[-1]["timings"]["prompt_n"] > found[-1]["timings"]["predicted_n"]


def test_text_becomes_tokens_and_text_again(demo: httpx2.Client, engine: Engine) -> None:
    text = "naïve <|im_end|> 😀"
    tokens = demo.post("/tokenize", json={"content": text, "parse_special": False}).json()["tokens"]
    assert tokens == engine.tokenize(text, special=False)
    assert demo.post("/detokenize", json={"tokens": tokens}).json() == {"content": text}
    pieces = demo.post("/tokenize", json={"content": "<|im_end|>", "with_pieces": True}).json()["tokens"]
    assert [piece["piece"] for piece in pieces] == ["<|im_end|>"]
    assert demo.post("/detokenize", json={"tokens": [10**6]}).status_code == 400


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_calls_are_found_however_the_text_is_cut(size: int) -> None:
    text = 'So:\n<tool_call>\n{"name": "f", "arguments": {"a": {"b": "} <tool"}}}\n</tool_call>\n'
    text += '<tool_call>\n{"name": "g", "arguments": {}}\n</tool_call>'
    calls, deltas = ToolCallParser(), []
    for at in range(0, len(text), size):
        deltas += list(calls.feed(text[at : at + size]))
    deltas += list(calls.finish())
    assert "".join(delta.get("content", "") for delta in deltas) == "So:\n"
    found = [call["function"] for call in merge_tool_calls(deltas)]
    assert [(call["name"], json.loads(call["arguments"])) for call in found] == [
        ("f", {"a": {"b": "} <tool"}}),
        ("g", {}),
    ]


def test_metrics_count_what_was_said(demo: httpx2.Client, unending: dict[str, Any]) -> None:
    def counts() -> dict[str, float]:
        lines = [line.rsplit(" ", 1) for line in demo.get("/metrics").text.splitlines() if not line.startswith("#")]
        return {name: float(value) for name, value in lines}

    before = counts()
    demo.post("/completion", json=unending | {"n_predict": 5})
    after = counts()
    for name in (
        "slipstream_predicted_tokens_total",
        "llamacpp:tokens_predicted_total",
        "vllm:generation_tokens_total",
    ):
        assert after[name] - before.get(name, 0) == 5


def test_a_tool_call_is_the_same_however_its_text_is_cut() -> None:
    text = BEGIN + '\n{"name": "f", "arguments": {"a": 1}}\n' + END

    def read(*pieces: str) -> list[object]:
        calls = ToolCallParser()
        deltas = [delta for piece in pieces for delta in calls.feed(piece)]
        return [call["function"] for call in merge_tool_calls([*deltas, *calls.finish()])]

    assert all(
        read(text[:i], text[i:]) == read(text) == [{"name": "f", "arguments": '{"a": 1}'}] for i in range(len(text))
    )
