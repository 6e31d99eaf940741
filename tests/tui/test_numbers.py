"""The numbers of a reply in a word or two, and which faults the line above the prompt tells."""

from __future__ import annotations

from typing import Any

import pytest

from app.tui.numbers import FEWEST, ChatNumbers, by_pass, kept, line, sentence, speed, stats_of, usage
from app.tui.widgets.panel import rolling
from bench.instruments.toy import facts
from runtime.engine.output import Status
from runtime.engine.stats import Stats
from runtime.speculative.control.explain import Pass
from runtime.speculative.control.reasons import Reason
from tests.support.scripted import ScriptedEngine
from tests.tui.test_parts import PASSES, plain_passes


def test_live_numbers_count_what_came() -> None:
    numbers = ChatNumbers()
    numbers.add(PASSES, None)
    assert [*speed(numbers.reply), *usage(numbers.reply, 100)] == ["175 tok/s", "context 7/100"]
    assert rolling(PASSES[:2]) == [1.0, 0.5]


@pytest.mark.parametrize("right", [0, 1])
def test_few_guesses_have_no_number_of_guesses_a_pass(right: int) -> None:
    def told(n: int) -> list[str]:
        passes = [Pass(0.01, "model", 1, right, 1 + right)] * n
        return by_pass(Stats(steps=[*passes, *plain_passes(500)], decode_seconds=5.0))

    for n in (0, 1, FEWEST - 1, FEWEST):
        assert told(n) == []  # of as many as FEWEST it would be 0.0
    assert told(50)[1] == "Guessed ahead: 0.1"


def reply(n_drafted: int, n_plain: int, drafted: float, plain: float) -> Stats:
    """A reply whose passes with a draft of three tokens bring two in `drafted` seconds, and its plain ones one in
    `plain` seconds; the model alone makes 100 tokens a second.
    """
    passes = [Pass(drafted, "ngram", 3, 1, 2, own_seconds=drafted)] * n_drafted
    passes += [Pass(plain, "none", 0, 0, 1, own_seconds=plain)] * n_plain
    return Stats(steps=passes, decode_seconds=n_drafted * drafted + n_plain * plain, plain_per_second=100.0)


@pytest.mark.parametrize(
    ("n_drafted", "n_plain", "drafted", "plain", "told"),
    [
        (50, 0, 0.0125, 0.01, "160 tok/s · 1.6 times as fast"),
        (50, 0, 0.025, 0.01, "80 tok/s · 0.8 times as fast"),
        (50, 0, 0.0195, 0.01, "103 tok/s"),  # within noise
        (8, 521, 0.0125, 0.0122, "83 tok/s"),  # few passes with guesses, and slow plain ones
        (6, 30, 0.0125, 0.01, "112 tok/s"),  # fewer guesses than are counted
        (50, 100, 0.0125, 0.02, "76 tok/s · 1.1 times as fast"),  # plain passes count as what they are
    ],
)
def test_a_ratio_is_told_where_it_is_news(
    n_drafted: int, n_plain: int, drafted: float, plain: float, told: str
) -> None:
    stats = reply(n_drafted, n_plain, drafted, plain)
    assert line(stats) == told
    assert line(stats_of({"numbers": kept(stats)})) == told


def test_the_status_says_how_short_memory_is_and_what_was_given_up() -> None:
    numbers, engine = Stats(), ScriptedEngine()
    shown: Any = engine
    assert sentence(numbers, shown) == ""
    engine.facts = facts(left_out="memory is short: left out the draft model: all of it needs 900 MiB")
    assert sentence(numbers, shown) == "memory is short: left out the draft model: all of it needs 900 MiB"
    numbers.steps += PASSES
    assert sentence(numbers, shown) == ""
    given_up = "the draft model was unloaded, because this machine had 900 MiB of memory left"
    engine.status = Status(memory_level="TIGHT", given_up=given_up)
    assert sentence(numbers, shown) == f"memory is short: {given_up}"


def test_that_drafts_do_not_pay_is_no_fault() -> None:
    left_out = "the draft model was left out, because it cannot pay here"
    engine: Any = ScriptedEngine()
    engine.facts = facts(left_out=left_out, remark=left_out)
    assert sentence(Stats(), engine) == ""
    engine.facts = facts(left_out=f"the context holds 256 tokens, not 512; {left_out}", remark=left_out)
    assert sentence(Stats(), engine) == "the context holds 256 tokens, not 512"
    for code, told in (("cost", ""), ("acceptance", ""), ("exactness", ""), ("draft-error", "it failed")):
        assert sentence(Stats(steps=plain_passes(9), reason=Reason(code, "it failed")), engine) == told
