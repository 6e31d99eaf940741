"""The arithmetic of `slipstream bench` on made-up results: ratios, references, the table and its words."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from app.cli.bench_plan import ADAPTIVE, PLAIN, Cell
from app.cli.bench_report import headlines, rows, show, verdict
from app.cli.bench_results import TimedReply, as_json
from app.cli.bench_runs import Runs
from bench.instruments.toy import facts
from tests.support.bench import PLAN, STEPS, made


def test_a_ratio_is_of_the_same_round_so_a_slow_round_leaves_it_alone() -> None:
    ratio, speed = (
        made().ratio(ADAPTIVE, PLAIN, [Cell("question", 0.0)]),
        made().speed(ADAPTIVE, [Cell("question", 0.0)]),
    )
    assert ratio is not None
    assert speed is not None
    assert (ratio.least, ratio.most) == pytest.approx((2, 2))
    assert (speed.least, speed.most) == pytest.approx((20 / 0.3, 20 / 0.1))


def test_a_reply_that_has_no_counterpart_counts_for_no_ratio() -> None:
    results = made()
    results.samples.append(TimedReply(ADAPTIVE, Cell("question", 0.0), 1, 1, 1000, 1e-3, STEPS))
    results.samples.append(TimedReply(ADAPTIVE, Cell("question", 0.0), 0, 3, 1000, 1e-3, STEPS))
    assert results.ratio(ADAPTIVE, PLAIN, [Cell("question", 0.0)]) == made().ratio(
        ADAPTIVE, PLAIN, [Cell("question", 0.0)]
    )


def test_the_reference_is_the_fastest_setting_of_each_kind_and_may_be_plain() -> None:
    results = made()
    assert [results.best_fixed(Cell(kind, 0.8)) for kind in ("question", "prose")] == ["model K=2", PLAIN]
    assert results.share_of_best() == pytest.approx((1.25 * 0.95) ** 0.5)


def test_a_draft_token_counts_as_tried_when_all_before_it_were_accepted() -> None:
    assert made().acceptance("model", 0.0) == pytest.approx([1, 0.5, 1, 1])
    longer = made()
    longer.plan = replace(PLAN, ks=(2, 4, 6))
    longer.samples = [replace(sample, way="model K=6") for sample in longer.samples]
    assert longer.acceptance("model", 0.0)[4:] == [None, None]


def test_the_headlines_are_the_gain_the_worst_case_the_reference_and_the_differences() -> None:
    found = [number for number, _ in headlines(made())]
    assert found == ["1.30", "0.95", "1.09", "0"]
    assert "prose" in headlines(made())[1][1]


def test_a_difference_is_a_fault_unless_it_was_allowed() -> None:
    assert "same as plain" in verdict(made())
    assert "bug in Slipstream" in verdict(made(n_different=1))
    assert "--exact" in verdict(made(n_rounded=1))


def test_differences_are_counted_by_what_the_engine_promises() -> None:
    runs = Runs(SimpleNamespace(), PLAN, lambda: False)  # type: ignore[arg-type]
    task: Any = SimpleNamespace(cell=Cell("question", 0.0), prompt=0)
    for is_reproducible, tokens in ((True, [1, 2]), (True, [1, 2]), (True, [1, 3]), (False, [1])):
        engine: Any = SimpleNamespace(facts=facts(is_reproducible=is_reproducible))
        runs._compare(engine, task, tokens)
    assert (runs.results.n_compared, runs.results.n_different, runs.results.n_rounded) == (3, 1, 1)


def test_the_table_has_a_row_per_way_and_marks_the_fastest(capsys: pytest.CaptureFixture[str]) -> None:
    found = {row.way: row for row in rows(made(), 0.0)}
    assert list(found) == [way.name for way in PLAN.ways]
    assert found[PLAIN].by_kind[0] == ("67 tok/s", False)
    assert found[PLAIN].by_kind[1][1]
    assert found[ADAPTIVE].by_kind == [("2.00", True), ("0.95", False)]
    show(made())
    shown = capsys.readouterr().out
    assert all(way.name in shown for way in PLAN.ways)
    assert "1.30 times plain decode on this machine" in shown


def test_the_json_object_says_what_the_table_says() -> None:
    found = json.loads(json.dumps(as_json(made())))
    assert (found["times_plain"], found["times_best_fixed"], found["pass_cost"]) == (
        1.3,
        1.0897,
        {"1": 1.0, "2": 1.5, "4": 1.75},
    )
    assert found["cells"][0]["tokens_per_second"][PLAIN] == 66.6667
    assert found["acceptance_by_depth"]["ngram, temperature 0.8"] == [1.0, 0.5, 1.0, 1.0]
