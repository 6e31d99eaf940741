"""The reasons of plain passes on the page that explains."""

from __future__ import annotations

import json

from app.tui.dialogs.why_screen import read_ahead, unguessed
from app.tui.dialogs.why_summary import figure
from app.tui.numbers import kept, reasons_of, stats_of
from runtime.engine.output import Status
from runtime.engine.stats import Stats
from runtime.speculative.control.explain import Pass, Why
from tests.support.scripted import ScriptedEngine


def test_why_passes_had_no_guess_is_kept_and_counted() -> None:
    why = Why(9, (), "", 100.0, ("ngram",), {"model": "it is parked"})
    plain = Pass(0.1, "none", 0, 0, 1, why=why._replace(reason="30% of its tokens were accepted"))
    made = Stats(steps=[plain, plain, Pass(0.1, "ngram", 2, 2, 3, why=why)])
    facts = json.loads(json.dumps({"numbers": kept(made)}))
    told = unguessed(stats_of(facts).steps, reasons_of(facts))
    assert told.text.startswith("1 of the 3 passes")
    assert [line.split(maxsplit=1) for line in told.table.splitlines()] == [
        ["2", "30% of its tokens were accepted"],
        ["3", "did not ask model: it is parked"],
    ]
    assert reasons_of({}) == []


def test_what_was_read_ahead_is_told_once_there_is_some() -> None:
    engine = ScriptedEngine("Hello.")
    assert read_ahead(None) == read_ahead(engine) == []  # type: ignore[arg-type]
    engine.status = Status(ahead=(2310, 2300))
    (section,) = read_ahead(engine)  # type: ignore[arg-type]
    assert "2,310 tokens were read while you typed" in section.text
    assert "2,300 of them were needed" in section.text


def test_speeds_have_a_decimal_where_a_whole_number_would_hide_a_difference() -> None:
    assert [figure(value) for value in (9.56, 10.44, 19.96, 100.0, 3)] == ["9.6", "10.4", "20.0", "100", "3"]
