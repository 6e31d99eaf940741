"""Rare samplers in the server's interfaces: their fields, what is echoed, what is refused, what another server gets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import httpx2
import ollama
import pytest

from app.server.openai.chat import ChatRequest
from runtime.core.errors import SettingsError
from runtime.core.rare_sampling import RARE_NAMES
from runtime.core.sampler_order import ORDER
from runtime.engine import Engine, Message, Sampling, sampling_of
from runtime.upstream.request import sampling_fields
from runtime.upstream.server import LLAMA_CPP, OURS, VLLM, Server
from tests.support.serving import Running, open_plain
from tests.support.waiting import PATIENCE

QUESTION = "What does os.path.join do?"
FREE = {"temperature": 2.0, "top_p": 1.0, "min_p": 0.0, "seed": 5}
RARE: dict[str, Any] = {
    "dry_multiplier": 0.9, "dry_base": 2.0, "dry_allowed_length": 1, "dry_penalty_last_n": -1,
    "dry_sequence_breakers": ["\n"], "xtc_probability": 0.9, "xtc_threshold": 0.001, "top_n_sigma": 3.0,
    "typical_p": 0.95, "dynatemp_range": 0.5, "dynatemp_exponent": 1.5, "min_tokens": 8,
    "samplers": ["penalties", "dry", "top_k", "xtc", "temperature"],
}  # fmt: skip
MIROSTAT = {"mirostat": 2, "mirostat_tau": 3.0, "mirostat_eta": 0.2}


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with closing(open_plain(None)) as found:
        yield found


def said(engine: Engine, values: dict[str, Any]) -> str:
    reply = engine.reply([Message("user", QUESTION)], sampling_of(FREE | values), 16)
    return "".join(chunk.text for chunk in reply)


@pytest.mark.parametrize("values", [RARE, MIROSTAT], ids=["most", "mirostat"])
def test_each_interface_samples_with_them(
    client: httpx2.Client, here: Running, engine: Engine, values: dict[str, Any]
) -> None:
    asked = [{"role": "user", "content": QUESTION}]
    expected = said(engine, values)
    assert expected != said(engine, {})
    body = {"messages": asked, "max_tokens": 16} | FREE | values
    chat = client.post("/v1/chat/completions", json=body).json()
    assert chat["choices"][0]["message"]["content"] == expected
    blocks = client.post("/v1/messages", json=body).json()["content"]
    assert "".join(block["text"] for block in blocks) == expected
    responses = client.post("/v1/responses", json={"input": QUESTION, "max_output_tokens": 16} | FREE | values).json()
    assert responses["output"][0]["content"][0]["text"] == expected
    prompt = f"<|im_start|>user\n{QUESTION}<|im_end|>\n<|im_start|>assistant\n"
    native = client.post("/completion", json={"prompt": prompt, "n_predict": 16} | FREE | values).json()
    assert native["content"] == expected
    other = ollama.Client(here.url, timeout=PATIENCE)
    assert other.chat("demo", asked, options=FREE | values | {"num_predict": 16}).message.content == expected


def test_what_was_asked_for_is_echoed(client: httpx2.Client) -> None:
    asked = {"prompt": "import", "n_predict": 1} | FREE
    settings = client.post("/completion", json=asked | RARE | {"repeat_last_n": 7}).json()["generation_settings"]
    assert settings.items() >= (RARE | {"repeat_last_n": 7}).items()
    settings = client.post("/completion", json=asked | {"xtc_probability": 0.5}).json()["generation_settings"]
    assert settings["samplers"] == [*ORDER]
    again = client.post("/completion", json=asked | settings | {"mirostat": 2})
    assert again.json()["generation_settings"]["mirostat"] == 2
    assert client.post("/completion", json=asked | again.json()["generation_settings"]).status_code == 200


@pytest.mark.parametrize("n", [0, -1, 2])
def test_penalties_look_as_far_back_as_the_client_says(client: httpx2.Client, engine: Engine, n: int) -> None:
    asked = {"prompt": "a b c d e f", "n_predict": 12, "temperature": 0}
    found = client.post("/completion", json=asked | {"repeat_penalty": 1.9, "repeat_last_n": n}).json()["content"]
    sampling = Sampling(temperature=0, repetition_penalty=1.9, penalty_last_n=n)
    assert found == "".join(chunk.text for chunk in engine.reply("a b c d e f", sampling, 12))
    assert (found == client.post("/completion", json=asked).json()["content"]) == (n == 0)


@pytest.mark.parametrize(
    ("field", "value", "remedy"),
    [("mirostat", 1, "Use 2, or 0"), ("xtc_probability", 2, "from 0 (off) to 1"), ("typical_p", 0, "above 0"),
     ("samplers", ["top_q"], "Did you mean 'top_p'?"), ("samplers", "kq", "Known: penalties"),
     ("repeat_last_n", -2, "-1 (the whole context)"), ("min_tokens", -1, "0 (off) or more")],
)  # fmt: skip
def test_a_value_out_of_range_is_refused_with_its_remedy(
    client: httpx2.Client, field: str, value: object, remedy: str
) -> None:
    reply = client.post("/completion", json={"prompt": "a", "n_predict": 1, field: value})
    error = reply.json()["error"]
    assert reply.status_code == 400
    assert remedy in error["message"]
    assert field.replace("repeat", "penalty") in error["message"]


def test_all_interfaces_have_fields_for_all_of_them() -> None:
    assert set(RARE_NAMES) <= ChatRequest.model_fields.keys()
    assert set(RARE_NAMES) == RARE.keys() | MIROSTAT.keys()


def test_another_server_gets_those_that_it_has() -> None:
    def asked(program: str, **values: Any) -> dict[str, Any]:
        return sampling_fields(sampling_of(values), Server(program, "m", 0, has_metrics=False))

    changed = {name: value for name, value in RARE.items() if name not in ("samplers", "dry_sequence_breakers")}
    assert asked(OURS, **changed).items() >= changed.items()
    assert asked(LLAMA_CPP, xtc_probability=0.5)["xtc_probability"] == 0.5
    assert asked(VLLM, min_tokens=5)["min_tokens"] == 5
    assert not asked(LLAMA_CPP).keys() & set(RARE_NAMES)
    assert asked(LLAMA_CPP, repetition_penalty=1.2, penalty_last_n=9)["repeat_last_n"] == 9
    for program, name in ((VLLM, "xtc_probability"), ("", "dry_multiplier"), (LLAMA_CPP, "min_tokens")):
        with pytest.raises(SettingsError, match=f"{name} is not available .* Leave it out"):
            asked(program, **{name: 1})
