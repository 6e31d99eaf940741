"""llama.cpp's own endpoints: where a completion stops, what goes first, the text at a cursor, tokens, counts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from app.server.llamacpp.completion import RawCompletionRequest
from app.server.policy import served_names
from runtime.conversation.infill import infill_ids
from runtime.engine import Infill
from runtime.engine.loaded import LoadedEngine
from tests.conftest import OpenEngine
from tests.support.serving import (
    endless_request,
    open_plain,
    open_usual,
    running,
)

QUESTION = "What does os.path.join do?"


class Letters:
    """A tokenizer with a token per character."""

    def encode(self, text: str, *, special: bool) -> list[int]:
        return [ord(letter) for letter in text]

    def piece(self, token: int) -> bytes:
        return chr(token).encode()

    def is_end(self, token: int) -> bool:
        return False


@pytest.fixture(scope="module")
def demo() -> Iterator[httpx2.Client]:
    with running(open_usual) as here:
        yield here.client()


@pytest.fixture(scope="module")
def engine(open_demo: OpenEngine) -> LoadedEngine:
    return open_demo(threads=1)


@pytest.fixture(scope="module")
def unending(engine: LoadedEngine) -> dict[str, Any]:
    return endless_request(engine)


def test_a_place_keeps_what_is_nearest_to_it() -> None:
    fim = {"prefix": 1, "suffix": 2, "middle": 3, "file": 4}
    ids = infill_ids(Infill("ab", "cd", (("f", "xyz"),)), Letters(), fim, 64)
    assert ids == [4, *b"f\nxyz", 4, *b"filename\n", 1, *b"ab", 2, *b"cd", 3]
    ids = infill_ids(Infill("ab", "cd", (("f", "x" * 99), ("g", "yz"))), Letters(), fim | {"repo": 5}, 80)
    assert ids == [5, *b"project\n", 4, *b"g\nyz", 4, *b"filename\n", 1, *b"ab", 2, *b"cd", 3]
    assert infill_ids(Infill("ab", "cd"), Letters(), fim | {"repo": 5}, 80) == [1, *b"ab", 2, *b"cd", 3]
    long = infill_ids(Infill("a" * 99 + "b", "c" + "d" * 99, (("f", "x" * 99),)), Letters(), fim, 64)
    assert len(long) < 64
    assert long[0] == 1
    assert chr(long[long.index(2) - 1]) == "b"
    assert chr(long[long.index(2) + 1]) == "c"


def test_a_stop_string_is_told_from_the_models_own_end(demo: httpx2.Client, engine: LoadedEngine) -> None:
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
    assert "\n" in endless["content"]  # the first line is made whole


def test_a_line_that_is_indented_less_than_the_cursor_ends_a_completion(demo: httpx2.Client) -> None:
    # A grammar, since what a model of this size says of its own accord differs by machine
    asked = {"prompt": "List:\n    a\n    b\n", "grammar": r'root ::= "    c\n    d\n  e\n"', "temperature": 0}
    free = demo.post("/completion", json=asked).json()["content"]
    bound = demo.post("/completion", json=asked | {"n_indent": 999}).json()
    assert free == "    c\n    d\n  e\n"
    assert free.startswith(bound["content"])
    assert bound["stop_type"] == "limit"
    assert bound["content"].count("\n") == 1


@pytest.mark.parametrize(
    ("more", "is_short"),
    [({}, False), ({"n_predict": 16}, True), ({"t_max_predict_ms": 200}, True), ({"n_predict": 999}, False)],
)
def test_what_somebody_waits_for_while_typing_goes_before_chats(
    engine: LoadedEngine, more: dict[str, Any], is_short: bool
) -> None:
    assert RawCompletionRequest.model_validate({"prompt": "x", **more}).task(engine).ask.is_short == is_short


def test_text_becomes_tokens_and_text_again(demo: httpx2.Client, engine: LoadedEngine) -> None:
    text = "naïve <|im_end|> 😀"
    tokens = demo.post("/tokenize", json={"content": text, "parse_special": False}).json()["tokens"]
    assert tokens == engine.tokenize(text, special=False)
    assert demo.post("/detokenize", json={"tokens": tokens}).json() == {"content": text}
    pieces = demo.post("/tokenize", json={"content": "<|im_end|>", "with_pieces": True}).json()["tokens"]
    assert [piece["piece"] for piece in pieces] == ["<|im_end|>"]
    assert demo.post("/detokenize", json={"tokens": [10**6]}).status_code == 400


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


def test_an_idle_stream_shows_that_it_lives(demo: httpx2.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.server.llamacpp.props.PING", 0.01)
    with demo.stream("GET", "/models/sse") as stream:
        lines = filter(None, stream.iter_lines())
        assert next(lines).startswith("data: ")
        assert next(lines).startswith(":")  # a comment, which clients ignore
    head = demo.head("/models/sse")  # which has no end to wait for
    assert (head.status_code, head.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("qwen2.5-coder-1.5b-instruct-q4_k_m.gguf", "qwen2.5-coder-1.5b-instruct"),
        ("Llama-3.2-3B-Instruct-UD-IQ2_XXS.gguf", "Llama-3.2-3B-Instruct"),
        ("SmolLM2-135M-Instruct.Q4_1.gguf", "SmolLM2-135M-Instruct"),
        ("big-Q8_0-00001-of-00003.gguf", "big"),
        ("gpt-oss-20b-MXFP4.gguf", "gpt-oss-20b"),
        ("Q4_K_M.gguf", "Q4_K_M"),
    ],
)
def test_a_file_is_served_under_its_models_name_and_found_by_its_own(file: str, name: str) -> None:
    whole = re.sub(r"(-00001-of-00003)?\.gguf$", "", file)
    assert served_names(file, ()) == tuple(dict.fromkeys((name, whole, file)))
    assert served_names(file, ("mine", "fim")) == ("mine", "fim")


def test_a_pair_is_served_under_its_name() -> None:
    assert served_names("demo", ()) == ("demo",)


def test_a_model_with_aliases_is_found_by_each() -> None:
    with running(open_plain, aliases=("house", "fim")) as here:
        client = here.client()
        (card,) = client.get("/v1/models").json()["data"]
        assert card["aliases"] == ["house", "fim"]
        for name in ("house", "fim", card["id"]):
            assert client.get(f"/v1/models/{name}").json()["id"] == card["id"]
        assert client.get("/v1/models/other").status_code == 404
