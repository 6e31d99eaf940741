"""Made-up and mutated input from outside is read or refused in a sentence; `python -m bench.fuzz` tries a million."""

from __future__ import annotations

import logging
import threading
import warnings
from collections.abc import Iterator

import pytest

from bench.instruments.fuzz import fuzz
from bench.instruments.fuzzed import READERS
from bench.instruments.servers import never_wait
from runtime.conversation import chat_template
from runtime.models.hub import asking, fetch


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing waits."""
    monkeypatch.setattr(chat_template, "SECONDS", 0.5)
    monkeypatch.setattr(fetch, "PAUSE", 0.0)
    never_wait(monkeypatch)
    logging.disable()
    with warnings.catch_warnings(action="ignore"):  # Python's, of templates that make no sense
        yield
    logging.disable(logging.NOTSET)
    for thread in threading.enumerate():
        if thread.name == asking.NAME:
            thread.join(20)


@pytest.mark.parametrize(("name", "n"), [("template", 100), ("request", 1000), ("measurements", 300), ("hub", 60)])
def test_it_is_read_or_refused_in_a_sentence(name: str, n: int) -> None:
    outcomes, _ = fuzz(READERS[name], n)
    assert set(outcomes) == {"read", "refused"}
    assert min(outcomes.values()) > n / 20
