"""The engine's step over real models: who comes together begins together, who is cancelled ends at once."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from weakref import ref

import pytest

from bench.instruments.concurrent_replies import Concurrent
from runtime.core.errors import BusyError
from runtime.core.limits import Limits
from runtime.engine import Chunk, Message, Options, Sampling
from runtime.engine.engine import Ask
from runtime.engine.loaded import LoadedEngine
from runtime.engine.output import ignore
from runtime.models.registry import load_registry

GREEDY = Sampling(temperature=0.0)
TEXT = "\n".join(f"def f{i}(x): return x + {i}" for i in range(12))


@pytest.fixture(scope="module")
def engine() -> Iterator[LoadedEngine]:
    found = LoadedEngine(load_registry()["demo"], Options(threads=1, slots=6, drafters=()))
    yield found
    found.close()


def test_short_prompts_that_come_together_have_their_first_tokens_from_the_pass_that_reads_them(
    engine: LoadedEngine,
) -> None:
    together = Concurrent(engine)
    first = together.add(("What does os.path.join do?", GREEDY, None), 40)
    second = together.add(("What is a tuple?", GREEDY, None), 40)
    together.step()  # tells how much there is to read
    assert (first.n_pieces, second.n_pieces, first.tokens) == (1, 1, [])
    together.step()
    assert (len(first.tokens), len(second.tokens)) == (1, 1)
    third = together.add(("What is a list?", GREEDY, None), 40)
    for _ in range(9):
        together.step()
    assert len(first.tokens) >= 8
    assert third.tokens
    together.leave_all()


def test_a_reply_that_is_cancelled_ends_with_its_numbers(engine: LoadedEngine) -> None:
    number = engine.add(Ask([Message("user", TEXT)], GREEDY, 40), ignore)
    while not any(isinstance(came, Chunk) and came.tokens for _, came in engine.step()):
        pass
    engine.cancel(number)
    engine.cancel(number + 99)  # nobody's
    ((ended, last),) = engine.step()
    assert isinstance(last, Chunk)
    assert (ended, last.finish_reason) == (number, "cancelled")
    assert last.stats is not None
    assert last.stats.predicted_n >= 1
    assert engine.step() == []


def test_nothing_is_held_of_a_request_that_was_cancelled_while_it_was_prepared(engine: LoadedEngine) -> None:
    before = engine.core.last
    with ThreadPoolExecutor(1) as pool:
        engine.begin(Ask([Message("user", TEXT)], GREEDY, 40), 999, pool)
        made = ref(engine.core.preparing[0].made.result())
        engine.cancel(999)
        ((_, last),) = engine.step()
    assert isinstance(last, Chunk)
    assert last.finish_reason == "cancelled"
    gc.collect()
    assert (made(), engine.core.last) == (None, before)


def test_a_pass_is_ended_by_a_cancel_of_one_that_has_a_part_in_it(
    engine: LoadedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by another thread while it is made; the other sequence goes on."""
    whole = "".join(chunk.text for chunk in engine.reply([Message("user", "What is a list?")], GREEDY, 20))
    together = Concurrent(engine)
    kept = together.add(("What is a list?", GREEDY, None), 20)
    gone = together.add((TEXT, GREEDY, None), 20)
    together.until(lambda: kept.tokens and gone.tokens)
    number = next(number for number, each in together.told.items() if each is gone)
    step = engine.decoder.step
    monkeypatch.setattr(engine.decoder, "step", lambda *asked: engine.cancel(number) or step(*asked))  # type: ignore[func-returns-value]
    together.step()
    assert gone.last is not None
    assert gone.last.finish_reason == "cancelled"
    monkeypatch.undo()
    together.until(lambda: kept.is_over)
    assert "".join(engine.token_text(token) for token in kept.tokens) == whole


def test_an_engine_without_replies_has_no_step_to_make(engine: LoadedEngine) -> None:
    assert engine.core.is_idle
    assert engine.step() == []


def test_who_leaves_while_it_waits_is_not_begun() -> None:
    engine, heard = (
        LoadedEngine(load_registry()["demo"], Options(threads=1, drafters=(), limits=Limits(1, 1))),
        list[str](),
    )

    def add(name: str, **how: bool) -> int:
        def hear(came: Chunk | Exception) -> None:
            heard.append(f"{name} {came.finish_reason or 'goes on'}" if isinstance(came, Chunk) else f"{name} failed")

        return engine.add(Ask([Message("user", name)], GREEDY, 3, **how), hear)

    add("first")
    engine.step()
    gone = add("gone")
    with pytest.raises(BusyError, match=r"1 waiting"):
        add("refused")
    add("admitted", is_admitted=True)
    assert engine.status.n_waiting == 2
    engine.cancel(gone)
    with pytest.raises(BusyError):
        add("refused")  # for the one that goes before all
    while not engine.core.is_idle:
        engine.step()
    engine.close()
    assert heard == [
        "first goes on", "gone cancelled", *["first goes on"] * 3, "first length",
        *["admitted goes on"] * 4, "admitted length",
    ]  # fmt: skip
