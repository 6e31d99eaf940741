"""Prompts that are expected are read ahead of their requests: what comes then has them in the cache, and says the same
text.
"""

from __future__ import annotations

from collections.abc import Iterator
from queue import SimpleQueue

import pytest

from runtime.conversation.prompt import Prompt
from runtime.core.errors import BusyError, SettingsError
from runtime.engine import Beginning, Chunk, Message, Options, Sampling, ahead
from runtime.engine.engine import Ask, Engine
from runtime.engine.loaded import LoadedEngine
from runtime.loading import neighbours
from runtime.models.registry import load_registry
from tests.support.waiting import PATIENCE

DEMO = load_registry()["demo"]
FILE = "Explain this:\n" + "def f(x): return x + 1\n" * 25
SEEDED = Sampling(temperature=0.9, seed=7)
Came = SimpleQueue[Chunk | Exception]


def asked(text: str) -> list[Message]:
    """The question."""
    return [Message("user", text)]


def expected(text: str) -> Beginning:
    """The prompt of a question that begins so."""
    return Beginning(asked(text + " a"), asked(text + "\n1"))


def begun(engine: Engine, prompt: Prompt) -> Came:
    """Let the engine read a prompt ahead; return what comes."""
    came: Came = SimpleQueue()
    engine.add(Ask(prompt, SEEDED, 0, is_ahead=True), came.put)
    return came


def read(engine: Engine, prompt: Prompt) -> Chunk:
    """Let the engine read a prompt ahead, and return the last chunk."""
    came = begun(engine, prompt)
    while True:
        if isinstance(engine, LoadedEngine):
            engine.step()
        if isinstance(engine, LoadedEngine) and came.empty():
            continue
        chunk = came.get(timeout=PATIENCE)
        if isinstance(chunk, Exception):
            raise chunk
        if chunk.finish_reason:
            return chunk


def said(engine: Engine, text: str) -> tuple[str, int]:
    """The text of a reply, and how much of its prompt was cached."""
    chunks = [*engine.reply(asked(text), SEEDED, 24)]
    stats = chunks[-1].stats
    assert stats is not None
    return "".join(chunk.text for chunk in chunks), stats.cached_n


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests that run meanwhile keep the cores busy."""
    monkeypatch.setattr(neighbours.Neighbours, "wait", lambda self: 0.0)
    monkeypatch.setattr(ahead, "is_on_battery", lambda: False)


@pytest.fixture
def engine() -> Iterator[LoadedEngine]:
    found = LoadedEngine(DEMO, Options(threads=1))
    yield found
    found.close()


def test_the_beginning_of_two_prompts_is_what_no_further_word_changes(engine: LoadedEngine) -> None:
    ids = engine.encode(expected("What does os.path"))
    for end in (" a", "\n1", " do?", ".join do?"):
        whole = engine.encode(asked("What does os.path" + end))
        assert whole[: len(ids) - 1] == ids[:-1]
    assert len(ids) > len(engine.encode(expected("")))


def test_what_was_read_ahead_is_cached_and_the_text_is_the_same(engine: LoadedEngine) -> None:
    fresh, n_before = said(engine, FILE + "Why?")
    other = LoadedEngine(DEMO, Options(threads=1))
    try:
        n_read = read(other, expected(FILE)).stats
        assert n_read is not None
        text, n_cached = said(other, FILE + "Why?")
        assert text == fresh
        assert n_cached >= n_read.prompt_n - 1 > n_before + 100
        assert other.status.ahead == (n_read.prompt_n - 1, n_read.prompt_n - 1)
    finally:
        other.close()


def test_an_edit_in_the_middle_keeps_what_is_before_it(engine: LoadedEngine) -> None:
    read(engine, expected(FILE + "Why is it so?"))
    n_read, _ = engine.status.ahead
    read(engine, expected(FILE + "What is it for?"))
    assert 0 < engine.status.ahead[0] - n_read < 20
    _, n_cached = said(engine, "Something else")
    assert n_cached < 60
    assert engine.status.ahead[1] < n_read  # hardly anything of it was used


def test_explanations_are_of_the_last_reply_not_of_what_was_read_ahead(engine: LoadedEngine) -> None:
    said(engine, "What does os.path.join do?")
    passes = engine.passes()
    read(engine, expected(FILE))
    assert engine.passes() == passes


def test_it_ends_when_a_request_comes_and_does_not_begin_beside_one(engine: LoadedEngine) -> None:
    came = begun(engine, expected(FILE))
    engine.step()
    assert said(engine, "What does os.path.join do?")[0]
    assert last_of(came).finish_reason == "cancelled"
    chunks = engine.reply(asked("Count to ten."), SEEDED, 24)
    next(chunks)
    with pytest.raises(BusyError):
        begun(engine, expected(FILE))
    assert [*chunks][-1].finish_reason


@pytest.mark.parametrize("why", ["off", "memory", "battery", "others"])
def test_nothing_is_read_ahead_where_that_would_be_in_the_way(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = LoadedEngine(DEMO, Options(threads=1, reads_ahead=why != "off"))
    if why == "memory":
        engine.core.ahead = ahead.ReadAhead(is_on=True, memory_level=lambda: "TIGHT")
    if why == "battery":
        monkeypatch.setattr(ahead, "is_on_battery", lambda: True)
    if why == "others":
        monkeypatch.setattr(neighbours.Neighbours, "wait", lambda self: 99.0)
    with pytest.raises(SettingsError, match=r"Nothing is read ahead: \w+"):
        read(engine, expected(FILE))
    engine.close()


def last_of(came: Came) -> Chunk:
    """The last chunk that came."""
    chunk = came.get(timeout=PATIENCE)
    while isinstance(chunk, Exception) or not chunk.finish_reason:
        chunk = came.get(timeout=PATIENCE)
    return chunk


def test_tokens_are_counted_once_and_what_others_did_not_use_stays(engine: LoadedEngine) -> None:
    for text in (FILE, FILE + "What is "):
        read(engine, expected(text))
    n_read, _ = engine.status.ahead
    said(engine, "What does os.path.join do?")
    assert engine.status.ahead[1] < 32  # no more than the template's beginning
    said(engine, FILE + "What is it for?")
    assert 0 < engine.status.ahead[1] <= n_read
