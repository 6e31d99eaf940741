"""What is made of the loss of the models' process: which reply or feature is its cause, and what becomes of that."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.instruments.concurrent_replies import Concurrent
from runtime.core.errors import ModelError, SettingsError
from runtime.engine import Grammar, Options
from runtime.engine.process import kept
from runtime.engine.process.client import EngineProcess
from tests.conftest import OpenEngine
from tests.engine.test_process import DEMO, GREEDY, QUESTION, text_of
from tests.support.mishaps import UNLOADABLE
from tests.support.waiting import wait_for


def test_what_keeps_being_lost_ends_with_a_sentence(unlucky: EngineProcess) -> None:
    with pytest.raises(ModelError, match=r"target\.gguf cannot be run.*SIGABRT; its last message: .*ASSERT\(luck\)"):
        list(unlucky.reply("[abort] What is a list?", GREEDY, 20))
    assert text_of(list(unlucky.reply(QUESTION, GREEDY, 20))).startswith("Join")


def test_a_drafter_that_is_the_cause_is_left_out(unlucky: EngineProcess, open_demo: OpenEngine) -> None:
    prompt = "[abort with drafts] What is a list?"
    said = text_of(list(unlucky.reply(prompt, GREEDY, 20)))
    assert said == text_of(list(open_demo(threads=1, drafters=()).reply(prompt, GREEDY, 20)))


@pytest.mark.slow
def test_drafts_come_back_when_the_losses_are_past(
    unlucky: EngineProcess, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    list(unlucky.reply("[abort with drafts] What is a list?", GREEDY, 20))
    assert "without drafts" in said[-1]
    monkeypatch.setattr(kept, "MEMORY", 0.0)
    wait_for(lambda: "all that was left out" in said[-1])
    *_, last = unlucky.reply(QUESTION, GREEDY, 40)
    assert last.stats is not None
    assert last.stats.draft_n > 0


def test_a_grammar_that_ends_the_process_ends_its_own_reply_alone(
    unlucky: EngineProcess, open_demo: OpenEngine
) -> None:
    """Once; the reply beside it goes on, with its drafts."""
    together, grammar = Concurrent(unlucky), Grammar("json_object")
    whole = text_of(list(open_demo(threads=1).reply(QUESTION, GREEDY, 30)))
    first = together.add(("What does os.path.join do?", GREEDY, None), 30)
    together.until(lambda: first.tokens)
    second = together.add(("[abort while prepared] What is a tuple?", GREEDY, grammar), 20)
    together.until(lambda: not together.live)
    assert isinstance(second.error, SettingsError)
    assert "Simplify it" in str(second.error)
    assert "".join(unlucky.token_text(token) for token in first.tokens) == whole
    assert unlucky.kept._losses.options.drafters is None
    assert first.error is None


def test_what_loading_could_not_survive_is_left_out_and_told(unlucky: EngineProcess) -> None:
    engine = EngineProcess(replace(DEMO, name=UNLOADABLE), Options(threads=1))
    told = engine.facts.left_out
    assert told == (
        "the model's process was lost while it loaded and was started again, without drafts, as they may be the cause"
    )
    assert text_of(list(engine.reply(QUESTION, GREEDY, 5)))
    engine.close()
