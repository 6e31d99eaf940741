"""What a server tells of itself: counts by llama.cpp's names, slots for who may see them, what it cannot do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from runtime.engine import Engine
from tests.conftest import OpenEngine
from tests.support.serving import Running, endless_request, open_plain, running
from tests.support.waiting import wait_for

NAMES = {
    "prompt_tokens_total": "counter",
    "prompt_tokens_cached_total": "counter",
    "prompt_seconds_total": "counter",
    "tokens_predicted_total": "counter",
    "tokens_predicted_seconds_total": "counter",
    "n_decode_total": "counter",
    "n_tokens_max": "counter",
    "spec_decode_num_drafts_total": "counter",
    "prompt_tokens_seconds": "gauge",
    "predicted_tokens_seconds": "gauge",
    "requests_processing": "gauge",
    "requests_deferred": "gauge",
    "n_busy_slots_per_decode": "gauge",
}


@pytest.fixture(scope="module")
def here() -> Iterator[Running]:
    with running(open_plain, shows_slots=True) as found:
        yield found


@pytest.fixture(scope="module")
def demo(here: Running) -> httpx2.Client:
    return here.client()


@pytest.fixture(scope="module")
def engine(open_demo: OpenEngine) -> Engine:
    return open_demo(threads=1)


def counts(demo: httpx2.Client) -> dict[str, float]:
    lines = [line.rsplit(" ", 1) for line in demo.get("/metrics").text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in lines}


def test_llamacpps_names_have_its_kinds_and_help(demo: httpx2.Client) -> None:
    reply = demo.get("/metrics")
    for name, kind in NAMES.items():
        assert f"# TYPE llamacpp:{name} {kind}\n" in reply.text
        assert f"# HELP llamacpp:{name} " in reply.text
        assert f"\nllamacpp:{name} " in reply.text
    assert int(reply.headers["process-start-time-unix"]) > 0


def test_what_was_read_and_what_the_cache_held_are_told_apart(demo: httpx2.Client) -> None:
    before, prompt = counts(demo), "The quick brown fox jumps over the lazy dog."
    timings = [demo.post("/completion", json={"prompt": prompt, "n_predict": 2}).json()["timings"] for _ in range(2)]
    after = counts(demo)
    for name, key in (("prompt_tokens_total", "prompt_n"), ("prompt_tokens_cached_total", "cache_n")):
        assert after[f"llamacpp:{name}"] - before[f"llamacpp:{name}"] == sum(each[key] for each in timings) > 0
    assert after["llamacpp:n_tokens_max"] >= timings[1]["prompt_n"] + timings[1]["cache_n"] + 1


def test_texts_that_become_vectors_are_counted(demo: httpx2.Client) -> None:
    before = counts(demo)
    n = demo.post("/v1/embeddings", json={"input": ["a cat", "a dog"]}).json()["usage"]["prompt_tokens"]
    after = counts(demo)
    assert after["llamacpp:prompt_tokens_total"] - before["llamacpp:prompt_tokens_total"] == n
    assert after["llamacpp:n_decode_total"] - before["llamacpp:n_decode_total"] == 2
    assert after["llamacpp:tokens_predicted_total"] == before["llamacpp:tokens_predicted_total"]


def test_slots_tell_what_is_done_and_not_what_is_said(here: Running, engine: Engine) -> None:
    asked: dict[str, Any] = endless_request(engine) | {"prompt": "secret", "stream": True, "top_k": 7}
    with here.client().stream("POST", "/completion", json=asked | {"n_predict": 2000}) as stream:
        lines = stream.iter_lines()  # dropped, it would close the stream
        next(lines)
        reply = here.client().get("/slots")
        busy, *idle = reply.json()
        assert busy["is_processing"]
        assert busy["params"]["top_k"] == 7
        assert busy["next_token"][0]["n_decoded"] + busy["next_token"][0]["n_remain"] == 2000
        assert "secret" not in reply.text
        assert len(idle) == 2
        assert not any(slot["is_processing"] for slot in idle)
    wait_for(lambda: not any(slot["is_processing"] for slot in here.client().get("/slots").json()))


def test_slots_are_off_unless_asked_for() -> None:
    with running(open_plain) as closed:
        reply = closed.client().get("/slots")
    assert reply.status_code == 501
    assert "--slots" in reply.json()["error"]["message"]


@pytest.mark.parametrize("path", ["/rerank", "/v1/rerank", "/reranking"])
def test_ranking_is_refused_in_a_sentence(demo: httpx2.Client, path: str) -> None:
    reply = demo.post(path, json={"query": "x", "documents": ["y"]})
    assert reply.status_code == 501
    assert "not supported" in reply.json()["error"]["message"]
