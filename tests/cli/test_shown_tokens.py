"""Log probabilities with stop strings: no token and no offset lies behind the text, whole or streamed, everywhere."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.cli.oneshot import show_json
from app.reply_text import ShownTokens
from runtime.engine import Chunk, Message, Sampling, TokenLogprobs
from runtime.engine.loaded import LoadedEngine
from runtime.engine.text import TextStream
from tests.conftest import OpenEngine
from tests.support.serving import events, open_plain, running

QUESTION = "What does os.path.join do?"
MESSAGES = [{"role": "user", "content": QUESTION}]


class Pieces:
    """An engine whose tokens are these bytes."""

    def __init__(self, pieces: list[bytes], upstream: str = "") -> None:
        self._pieces, self.facts = pieces, SimpleNamespace(upstream=upstream)

    def token_bytes(self, token: int) -> bytes:
        return self._pieces[token]

    def is_end(self, token: int) -> bool:
        return False


def chunks(pieces: list[bytes], stops: list[str], sizes: list[int]) -> list[Chunk]:
    """A reply of these tokens in passes of some sizes, ended by a stop string or with the last token."""
    text, found, left = TextStream(stops), list[Chunk](), list(range(len(pieces)))
    while left and not text.stopped:
        size = sizes[len(found) % len(sizes)]
        taken, left, shown = left[:size], left[size:], ""
        for n, token in enumerate(taken):
            shown += text.feed(pieces[token])
            if text.stopped:
                taken = taken[: n + 1]
                break
        entries = tuple(TokenLogprobs(token, -1.0, ()) for token in taken)
        found.append(Chunk(shown, tuple(taken), logprobs=entries))
    return [*found, Chunk(text.finish(), finish_reason="stop", stop=text.stop)]


PIECE = st.sampled_from([b"th", b"e", b" t", b"e t", b"", b"\n", *("😀".encode()[i : i + 1] for i in range(4))])


@given(
    st.lists(PIECE, max_size=12),
    st.lists(st.sampled_from(["e t", "the", "t", "\n", "😀"])),
    st.lists(st.integers(1, 3), min_size=1),
)
def test_tokens_are_those_that_begin_within_the_text(pieces: list[bytes], stops: list[str], sizes: list[int]) -> None:
    reply, engine = chunks(pieces, stops, sizes), Pieces(pieces)
    reader: Any = ShownTokens(engine)  # type: ignore[arg-type]
    n_said, found = 0, []
    for chunk in reply:
        n_said += len(chunk.text)
        some = reader.read(chunk)
        assert all(offset < n_said or not pieces[entry.token] for offset, entry in some)
        found += some
    text = "".join(chunk.text for chunk in reply)
    whole = b"".join(pieces[entry.token] for _, entry in found).decode("utf8", "replace")
    assert whole.startswith(text)
    assert [entry.token for _, entry in found] == list(range(len(found)))
    if not reply[-1].stop:
        assert len(found) == len(pieces)


def test_tokens_of_another_server_all_come_when_its_text_is_shorter() -> None:
    reply = chunks([b"abc", b"def", b"g"], [], [1])
    shorter: Any = ShownTokens(Pieces([b"abc", b"def", b"g"], "elsewhere"))  # type: ignore[arg-type]
    cut = [
        Chunk("ab", logprobs=reply[0].logprobs + reply[1].logprobs + reply[2].logprobs),
        Chunk("", finish_reason="stop"),
    ]
    assert [len(shorter.read(chunk)) for chunk in cut] == [1, 2]


@pytest.fixture(scope="module")
def engine(open_demo: OpenEngine) -> LoadedEngine:
    return open_demo(threads=1)


@pytest.fixture(scope="module")
def client() -> Iterator[httpx2.Client]:
    with running(open_plain) as here:
        yield here.client()


@pytest.fixture(scope="module")
def stop(engine: LoadedEngine) -> str:
    """A stop string of the end of one token and the beginning of another, such as "e t"."""
    shown = list(engine.reply([Message("user", QUESTION)], Sampling(temperature=0), 24))
    pieces = [engine.token_bytes(token).decode() for chunk in shown for token in chunk.tokens]
    at = next(i for i in range(6, len(pieces) - 1) if len(pieces[i]) > 1 and pieces[i + 1].startswith(" "))
    return pieces[at][-1] + pieces[at + 1][:2]


def ends_within(tokens: list[str], text: str) -> None:
    """Every token begins within the text, and together they cover it."""
    assert tokens
    assert len("".join(tokens[:-1])) < len(text)
    assert "".join(tokens).startswith(text)


@pytest.mark.parametrize("stream", [False, True])
def test_a_chat(client: httpx2.Client, stop: str, stream: bool) -> None:
    body = {"messages": MESSAGES, "temperature": 0, "stop": [stop], "logprobs": True, "stream": stream}
    reply = client.post("/v1/chat/completions", json=body)
    found = [event["choices"][0] for event in (events(reply) if stream else [reply.json()])]
    assert found[-1]["finish_reason"] == "stop"
    tokens, text = list[str](), ""
    for choice in found:
        text += (
            choice.get("delta", choice.get("message"))["content"]
            if (choice.get("delta", choice.get("message")) or {}).get("content")
            else ""
        )
        new = [entry["token"] for entry in (choice["logprobs"] or {"content": []})["content"]]
        assert not new or len("".join(tokens + new[:-1])) < len(text)
        tokens += new
    assert stop not in text
    ends_within(tokens, text)


@pytest.mark.parametrize("stream", [False, True])
def test_a_text(client: httpx2.Client, stop: str, stream: bool) -> None:
    prompt = client.post("/apply-template", json={"messages": MESSAGES}).json()["prompt"]
    body = {
        "prompt": [prompt, prompt],
        "temperature": 0,
        "stop": stop,
        "logprobs": 2,
        "stream": stream,
        "max_tokens": 30,
    }
    reply = client.post("/v1/completions", json=body)
    choices = [choice for event in (events(reply) if stream else [reply.json()]) for choice in event["choices"]]
    for index in (0, 1):
        own = [choice for choice in choices if choice["index"] == index]
        text = "".join(choice["text"] for choice in own)
        columns = [choice["logprobs"] for choice in own if choice["logprobs"]]
        tokens, offsets = ([value for each in columns for value in each[name]] for name in ("tokens", "text_offset"))
        ends_within(tokens, text)
        assert offsets == [len("".join(tokens[:i])) for i in range(len(tokens))]
        assert offsets[-1] < len(text)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("after", [False, True])
def test_llama_cpps_completion(client: httpx2.Client, stop: str, stream: bool, after: bool) -> None:
    prompt = client.post("/apply-template", json={"messages": MESSAGES}).json()["prompt"]
    body = {"prompt": prompt, "temperature": 0, "stop": [stop], "n_probs": 1, "stream": stream, "n_predict": 30}
    reply = client.post("/completion", json=body | {"post_sampling_probs": after})
    found = events(reply) if stream else [reply.json()]
    tokens = [entry["token"] for each in found for entry in each.get("completion_probabilities", ())]
    ends_within(tokens, "".join(each["content"] for each in found))


def test_the_command(engine: LoadedEngine, stop: str, capsys: pytest.CaptureFixture[str]) -> None:
    reply = engine.reply([Message("user", QUESTION)], Sampling(temperature=0), 30, stops=[stop], n_logprobs=0)
    show_json(engine, reply)
    found = json.loads(capsys.readouterr().out)
    ends_within([entry["token"] for entry in found["logprobs"]], found["text"])
