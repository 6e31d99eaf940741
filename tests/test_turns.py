"""Replies of one engine in turns: each says what it says alone, and changing conversations reads nothing twice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from runtime.engine import Chunk, Grammar, Ids, Message, Options, Sampling
from runtime.engine.loaded import LoadedEngine
from runtime.models.registry import load_registry

QUESTIONS = ("What does os.path.join do?", "How do I read a file line by line?", "What is a list comprehension?")
ALL_DRAFTERS = ("grammar", "prediction", "ngram", "suffix", "model")
GREEDY, SEEDED = Sampling(temperature=0.0), Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, seed=5)


@pytest.fixture(scope="module")
def engine() -> Iterator[LoadedEngine]:
    opened = LoadedEngine(load_registry()["demo"], Options(threads=1, drafters=ALL_DRAFTERS, fixed_k=3, slots=3))
    yield opened
    opened.close()


def ask(engine: LoadedEngine, question: str, sampling: Sampling, **more: Any) -> Iterator[Chunk]:
    return engine.reply([Message("user", question)], sampling, 60, pauses=True, **more)


def said(chunks: Iterator[Chunk]) -> list[int]:
    return [token for chunk in chunks for token in chunk.tokens]


@pytest.mark.parametrize("sampling", [GREEDY, SEEDED])
def test_replies_in_turns_say_what_each_says_alone(engine: LoadedEngine, sampling: Sampling) -> None:
    more: list[dict[str, Any]] = [
        {"prediction": "os.path.join joins one or more"},
        {},
        {"grammar": Grammar("json_object")},
    ]
    alone = [said(ask(engine, question, sampling, **each)) for question, each in zip(QUESTIONS, more, strict=True)]
    replies = [ask(engine, question, sampling, **each) for question, each in zip(QUESTIONS, more, strict=True)]
    together: list[list[int]] = [[], [], []]
    for turn in range(400):
        if (chunk := next(replies[turn % 3], None)) is not None:
            together[turn % 3] += chunk.tokens
    assert together == alone
    assert min(map(len, alone)) > 1


def test_a_prompt_of_one_token_is_a_conversation_too(engine: LoadedEngine) -> None:
    first, other = engine.reply(Ids((5,)), GREEDY, 4, pauses=True), ask(engine, QUESTIONS[0], GREEDY)
    alone = said(engine.reply(Ids((5,)), GREEDY, 4))
    together = []
    for _ in range(8):
        together += next(first, Chunk("")).tokens
        next(other, None)
    assert together == alone


def test_changing_conversations_costs_no_reading(engine: LoadedEngine) -> None:
    replies = [ask(engine, 5 * question, GREEDY) for question in QUESTIONS]
    for reply in replies:
        while not next(reply).tokens:
            pass
    backend = engine._loaded.backend
    before = backend.n_decoded
    chunks = [chunk for _ in range(4) for reply in replies if (chunk := next(reply, None))]
    assert len(chunks) > 6
    n_rows = sum(len(chunk.tokens) for chunk in chunks)
    # The last token and a draft of three for each, and nothing of what was said before
    assert backend.n_decoded - before <= 12 * 4 + n_rows
