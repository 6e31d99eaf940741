"""The reasons of plain passes on the page that explains."""

from __future__ import annotations

import json

from app.tui.dialogs.why_text import unguessed
from app.tui.numbers import kept, reasons_of, stats_of
from runtime.engine.stats import Stats
from runtime.speculative.control.explain import Pass, Why


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
