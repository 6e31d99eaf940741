"""The numbers of a reply in a word or two, and which faults the line above the prompt tells."""

from __future__ import annotations

from typing import Any

import pytest

from app.tui.numbers import FEWEST, ChatNumbers, sentence, summary
from app.tui.widgets.panel import rolling
from bench.instruments.facts import facts
from runtime.engine.stats import Stats
from runtime.engine.status import Status
from runtime.speculative.control.explain import Pass
from runtime.speculative.control.reasons import Reason
from tests.support.scripted import ScriptedEngine
from tests.test_tui_parts import PASSES, plain_passes


def test_live_numbers_count_what_came() -> None:
    numbers = ChatNumbers()
    numbers.add(PASSES, None)
    assert summary(numbers.reply, 100) == ["175 tok/s", "context 7/100"]  # of five guesses nothing is told
    numbers.add(PASSES * 4, None)
    assert summary(numbers.reply, 100) == [
        "175 tok/s",
        "60% of guesses right",
        "context 35/100",
        "1.8 tokens/pass",
        "1.2 guesses/pass",
    ]
    assert rolling(PASSES[:2]) == [1.0, 0.5]


@pytest.mark.parametrize("right", [0, 1])
def test_few_guesses_have_no_percentage_and_no_guesses_a_pass(right: int) -> None:
    def told(n: int) -> str:
        passes = [Pass(0.01, "model", 1, right, 1 + right)] * n
        return " ".join(summary(Stats(steps=[*passes, *plain_passes(500)], decode_seconds=5.0), 900))

    for n in (0, 1, FEWEST - 1):
        assert not {"%", "guesses/pass", "tokens/pass"} & {*told(n).replace("%", " % ").split()}
    assert f"{right:.0%} of guesses right" in told(FEWEST)
    assert "guesses/pass" not in told(FEWEST)  # it would be 0.0
    assert "0.1 guesses/pass" in told(50)
    assert "no guesses" in told(0)


def test_the_status_says_how_short_memory_is_and_what_was_given_up() -> None:
    numbers, engine = Stats(), ScriptedEngine()
    shown: Any = engine
    assert sentence(numbers, shown) == ""
    engine.facts = facts(left_out="memory is short: left out the draft model: all of it needs 900 MiB")
    assert sentence(numbers, shown) == "memory is short: left out the draft model: all of it needs 900 MiB"
    numbers.steps += PASSES
    assert sentence(numbers, shown) == ""
    given_up = "the model drafter was unloaded, because this machine had 900 MiB of memory left"
    engine.status = Status(memory_level="TIGHT", given_up=given_up)
    assert sentence(numbers, shown) == f"memory is TIGHT: {given_up}"


def test_that_drafts_do_not_pay_is_no_fault() -> None:
    left_out = "the draft model was left out, because it cannot pay here"
    engine: Any = ScriptedEngine()
    engine.facts = facts(left_out=left_out, remark=left_out)
    assert sentence(Stats(), engine) == ""
    engine.facts = facts(left_out=f"the context holds 256 tokens, not 512; {left_out}", remark=left_out)
    assert sentence(Stats(), engine) == "the context holds 256 tokens, not 512"
    for code, told in (("cost", ""), ("acceptance", ""), ("exactness", ""), ("draft-error", "it failed")):
        assert sentence(Stats(steps=plain_passes(9), reason=Reason(code, "it failed")), engine) == told
