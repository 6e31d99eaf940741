"""In company each reply is told why it, and not another one, was not drafted for."""

from __future__ import annotations

import pytest

from bench.instruments.company import Case, begun
from runtime.engine import Grammar, Sampling
from tests.conftest import OpenEngine


def test_each_reply_is_told_its_own_reason(open_demo: OpenEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where wider passes round otherwise, a greedy reply goes without drafts, and nobody else is told that."""
    engine = open_demo(slots=4)
    assert engine.loop.company is not None
    for holder in (engine.loop, engine.loop.company):
        monkeypatch.setattr(holder, "exact_rows", 1)
    monkeypatch.setattr(engine.loop, "rows_at", lambda n_context: 1)
    greedy, unseeded = Sampling(temperature=0), Sampling(temperature=1)
    cases: list[Case] = [("Q1", greedy, None), ("Q2", unseeded, None), ("Q3", unseeded, Grammar("json_object"))]
    live, told = [begun(engine, case, 12) for case in cases], dict[int, str]()
    while len(told) < len(live):
        for number, chunks in enumerate(live):
            chunk = next(chunks, None)
            if chunk is not None and chunk.finish_reason:
                assert chunk.stats is not None
                told[number] = chunk.stats.reason.code if chunk.stats.reason else ""
    assert told[0] == "exactness"
    assert "exactness" not in (told[1], told[2])
