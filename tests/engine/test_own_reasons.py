"""In company each reply is told why it, and not another one, was not drafted for."""

from __future__ import annotations

import pytest

from bench.instruments.concurrent_replies import Case, Concurrent
from runtime.engine import Grammar, Sampling
from tests.conftest import OpenEngine


def test_each_reply_is_told_its_own_reason(open_demo: OpenEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where wider passes round otherwise, a reply with a seed goes without drafts, and nobody else is told that."""
    engine = open_demo(slots=4)
    assert engine.decoder.target.shared is not None
    monkeypatch.setattr(engine.decoder.target, "exact_rows", 1)
    monkeypatch.setattr(engine.decoder.target, "shared", engine.decoder.target.shared._replace(exact_rows=1))
    monkeypatch.setattr(engine.decoder.target, "_rows_at", lambda n_context: 1)
    greedy, unseeded = Sampling(temperature=0, seed=1), Sampling(temperature=1)
    cases: list[Case] = [("Q1", greedy, None), ("Q2", unseeded, None), ("Q3", unseeded, Grammar("json_object"))]
    together = Concurrent(engine)
    told = [together.add(case, 12) for case in cases]
    together.until(lambda: not together.live)
    reasons = [each.last.stats.reason for each in told if each.last and each.last.stats]
    codes = [reason.code if reason else "" for reason in reasons]
    assert codes[0] == "exactness"
    assert "exactness" not in codes[1:]
