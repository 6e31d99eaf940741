"""A short request and a long prompt, with public weights in a process of their own: the short one waits for a piece,
and for one at each of its tokens.
"""

from __future__ import annotations

import threading
from contextlib import closing

import pytest

from bench.instruments.weights import MODELS
from runtime.engine import Chunk, Options, Sampling
from runtime.engine.engine import Ask
from runtime.engine.process.client import EngineProcess
from tests.real.asking import LIBRARY, QUESTION, TIDES
from tests.real.conftest import FindPair
from tests.support.waiting import PATIENCE

N_TOKENS, MOST_PIECES = 8, 3  # tokens of the short reply; pieces of the long prompt until its first one


class Heard:
    """The outputs of two replies in the order in which they came."""

    def __init__(self) -> None:
        self.order = list[str]()
        self.has_begun, self.has_ended = threading.Event(), threading.Event()

    def long(self, output: Chunk | Exception) -> None:
        """Of the one with the long prompt: a piece was read, or a token came."""
        assert isinstance(output, Chunk)
        self.order.append("T" if output.tokens else "p")
        if self.order.count("p") > 1:  # the first says what is cached
            self.has_begun.set()

    def short(self, output: Chunk | Exception) -> None:
        """Of the short one: its tokens."""
        assert isinstance(output, Chunk)
        self.order += ["t"] * len(output.tokens)
        if output.finish_reason:
            self.has_ended.set()


@pytest.mark.parametrize("seed", [None, 3])
@pytest.mark.parametrize("name", MODELS)
def test_a_short_request_does_not_wait_for_a_long_prompt(name: str, seed: int | None, real_pair: FindPair) -> None:
    heard, sampling = Heard(), Sampling(temperature=0.5, seed=seed)
    options = Options(n_ctx=4096, slots=4, drafters=(), prompt_bytes=0)
    with closing(EngineProcess(real_pair(name), options)) as engine:
        long = engine.add(Ask(f"{TIDES}\n{LIBRARY}\n" * 3, sampling, 2), heard.long)
        assert heard.has_begun.wait(5 * PATIENCE)
        n_before = len(heard.order)
        engine.add(Ask(QUESTION, sampling, N_TOKENS), heard.short)
        assert heard.has_ended.wait(5 * PATIENCE)
        engine.end(long)
        order = "".join(heard.order[n_before:])
    assert "T" not in order, "the prompt is too short to tell"
    before, *between, _ = order.split("t")
    assert len(before) <= MOST_PIECES, order
    assert max(map(len, between), default=0) <= 2, order  # now and then a pass only reads, to be timed
