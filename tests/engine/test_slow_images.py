"""An image that takes long to encode, as on a slow processor, holds up no other reply and ends no process."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bench.instruments.concurrent_replies import Collected, Concurrent
from runtime.core import spawning
from runtime.engine import Options, Prompt
from runtime.engine.engine import Ask
from runtime.engine.process import client
from runtime.engine.process.client import EngineProcess
from tests.engine.test_images import N_CTX, OTHER, PHOTO, SEEDED, pair_in, question
from tests.support.eyes import needs_mtmd
from tests.support.mishaps import IMAGE, SLOW_EYES

pytestmark = needs_mtmd


@pytest.fixture
def slow(tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[EngineProcess]:
    """An engine that takes IMAGE seconds for an image, and gives up what takes half as long to begin."""
    monkeypatch.setattr(spawning, "HOST", "tests.support.mishaps")
    pair = replace(pair_in(tmp_path), name=SLOW_EYES)
    found = EngineProcess(pair, Options(N_CTX, (), threads=1, slots=2), say=said.append)
    list(found.reply("Hello", SEEDED, 2))  # a new process prepares its first request slowly
    monkeypatch.setattr(client, "BEGIN", IMAGE / 2)
    yield found
    found.close()


def ask(engine: EngineProcess, prompt: Prompt) -> tuple[Collected, int]:
    """Begin a reply. Return the object that collects it, and its number."""
    told = Collected()
    return told, engine.add(Ask(prompt, SEEDED, 8), told.take)


def test_text_is_answered_while_images_are_encoded(slow: EngineProcess, said: list[str]) -> None:
    waiting = Concurrent(slow)
    images = [
        ask(slow, question(data, text=text))[0] for data in (PHOTO, OTHER) for text in ("What?", "Where?", "Who?")
    ]
    waiting.until(lambda: images[0].n_pieces)  # its client knows how much there is to read
    text, _ = ask(slow, "Hello")
    waiting.until(lambda: text.is_over)
    assert (text.error, [each.is_over for each in images]) == (None, [False] * 6)
    waiting.until(lambda: all(each.is_over for each in images))
    assert ([each.error for each in images], said) == ([None] * 6, [])
    assert all(each.tokens for each in images)


def test_who_cancels_does_not_wait_for_the_image(slow: EngineProcess, said: list[str]) -> None:
    waiting = Concurrent(slow)
    image, number = ask(slow, question(PHOTO))
    waiting.until(lambda: image.n_pieces)
    began = time.monotonic()
    slow.cancel(number)
    waiting.until(lambda: image.is_over)
    assert image.last
    assert (image.last.finish_reason, time.monotonic() - began < IMAGE / 2, said) == ("cancelled", True, [])
    assert list(slow.reply(question(PHOTO), SEEDED, 4))


def test_embeddings_of_images_hold_up_no_reply(slow: EngineProcess) -> None:
    waiting, tokens = Concurrent(slow), slow.encode(question(PHOTO))
    assert not slow.is_ready(tokens)
    text, _ = ask(slow, "Hello")
    waiting.until(lambda: text.is_over)
    assert not slow.is_ready(tokens)
    waiting.until(lambda: slow.is_ready(tokens))
    assert slow.embed([tokens]).shape == (1, slow.facts.n_embd)
    assert slow.is_ready(slow.encode("text"))
