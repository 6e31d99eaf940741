"""Memory that runs short in mid-reply of the bundled pair: the text is plain decode's, the draft model goes and
comes back.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from bench.instruments.processes import elsewhere
from runtime.core.pressure import Level, Thresholds
from runtime.engine import Message, Options, Sampling
from runtime.engine.loaded import LoadedEngine
from runtime.engine.process.client import EngineProcess
from runtime.engine.stats import Stats
from runtime.models.registry import load_registry
from tests.support.memory import CRITICAL, FREE, OK, TIGHT, Machine
from tests.support.mute import write_mute
from tests.support.waiting import wait_for

GREEDY = Sampling(temperature=0)
SEEDED = Sampling(temperature=1.2, seed=11)


@pytest.fixture(scope="module")
def demo() -> Iterator[LoadedEngine]:
    engine = LoadedEngine(load_registry()["demo"], Options(fixed_k=3, memory=Thresholds(calm_seconds=2)))
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def plain() -> Iterator[LoadedEngine]:
    engine = LoadedEngine(load_registry()["demo"], Options(drafters=()))
    yield engine
    engine.close()


def told(engine: LoadedEngine) -> Machine:
    """A machine that this engine takes for its own."""
    machine, degradation = Machine(), engine.decoder.active.degradation
    assert degradation is not None
    monitor = degradation.monitor
    monitor.source, monitor.clock, monitor.next_look = machine.read, lambda: machine.now, 0.0
    return machine


def answer(
    engine: LoadedEngine,
    prompt: str,
    sampling: Sampling,
    machine: Machine | None = None,
    changes: dict[int, Level] | None = None,
) -> tuple[list[int], Stats]:
    """The reply's tokens; `changes` says from which chunk on memory is how."""
    tokens, stats = list[int](), None
    for n, chunk in enumerate(engine.reply([Message("user", prompt)], sampling, 80)):
        tokens, stats = tokens + list(chunk.tokens), chunk.stats
        if machine is not None:
            machine.now += 1
            machine.free = FREE[changes[n]] if changes and n in changes else machine.free
    assert stats is not None
    return tokens, stats


def tend(engine: LoadedEngine, machine: Machine) -> None:
    """The engine looks at its memory a second later."""
    machine.now += 1
    engine.tend()


def names(engine: LoadedEngine) -> list[str]:
    """The drafters that there are now."""
    return [drafter.name for drafter in engine.decoder.active.drafters]


PROMPTS = ["What does os.path.join do?", "What does re.compile do?", "What is collections.deque?"]
CHANGES = [{2: TIGHT}, {2: CRITICAL}, {1: TIGHT, 3: CRITICAL, 5: OK}, {1: CRITICAL, 2: OK, 9: TIGHT}]


@pytest.mark.parametrize("sampling", [GREEDY, SEEDED], ids=["greedy", "seeded"])
@pytest.mark.parametrize("changes", CHANGES, ids=str)
def test_text_is_plain_decodes_when_memory_runs_short_in_mid_reply(
    demo: LoadedEngine, plain: LoadedEngine, sampling: Sampling, changes: dict[int, Level]
) -> None:
    machine = told(demo)
    for prompt in PROMPTS[:2]:
        machine.free = FREE[OK]
        tokens, stats = answer(demo, prompt, sampling, machine, changes)
        assert tokens == answer(plain, prompt, sampling)[0]
        assert stats.reason is not None
        assert stats.reason.code == "memory"
        assert "MiB" in stats.reason.text
        assert stats.timings()["memory_level"] == demo.status.memory_level


def test_the_draft_model_comes_back_and_drafts(demo: LoadedEngine, plain: LoadedEngine) -> None:
    machine = told(demo)
    answer(demo, PROMPTS[0], GREEDY, machine, {1: CRITICAL})
    machine.free = FREE[OK]
    wait_for(lambda: "model" in names(demo), meanwhile=lambda: tend(demo, machine))
    tokens, stats = answer(demo, PROMPTS[1], GREEDY, machine)
    assert stats.drafters["model"] > 0
    assert tokens == answer(plain, PROMPTS[1], GREEDY)[0]


def test_memory_is_looked_after_between_replies_too(demo: LoadedEngine) -> None:
    machine = told(demo)
    answer(demo, PROMPTS[2], GREEDY, machine)
    machine.free = FREE[CRITICAL]
    tend(demo, machine)
    assert (demo.status.memory_level, demo.decoder.active.drafters) == ("CRITICAL", [])
    assert demo.status.given_up.startswith("nothing is guessed ahead, because this machine had 300 MiB")
    machine.free = FREE[OK]
    wait_for(lambda: "model" in names(demo), meanwhile=lambda: tend(demo, machine))
    assert (demo.status.memory_level, demo.status.given_up) == ("OK", "")
    assert sorted(names(demo)) == sorted(demo.pair.drafters)


def test_an_idle_engine_in_another_process_closes_its_drafts_until_the_next_reply() -> None:
    pair = load_registry()["demo"]
    assert pair.draft
    with closing(EngineProcess(pair, Options(drafters=("model",), threads=1))) as engine:
        text = "".join(chunk.text for chunk in engine.reply(PROMPTS[0], GREEDY, 24))
        engine.facts = replace(engine.facts, n_needed=2**33)
        taken = engine.kept.current.own_bytes
        freed = engine.close_drafts()
        assert freed > 0.8 * pair.draft.stat().st_size
        wait_for(lambda: engine.kept.current.own_bytes < taken)
        assert engine.close_drafts() == 0  # there is none any more
        left = 2**33 - freed - engine.kept.current.own_bytes
        assert engine.pending_bytes() == pytest.approx(left, abs=2**20)
        assert "".join(chunk.text for chunk in engine.reply(PROMPTS[0], GREEDY, 24)) == text


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing tells what a process has mapped")
def test_a_draft_that_another_process_loads_too_is_in_memory_once() -> None:
    pair = load_registry()["demo"]
    assert pair.draft
    with closing(EngineProcess(pair, Options(drafters=("model",), threads=1, fixed_k=2))) as engine:
        list(engine.reply(PROMPTS[0], GREEDY, 24))
        engine.facts = replace(engine.facts, n_needed=2**33)
        alone, beside = engine.pending_bytes(), engine.pending_bytes([pair.draft])
        assert alone - beside == pytest.approx(pair.draft.stat().st_size, rel=0.3)  # all but its vocabulary
        assert engine.pending_bytes([Path("other.gguf")]) == pytest.approx(alone, abs=2**20)
        engine.close_drafts()
        assert engine.pending_bytes([pair.draft]) == pytest.approx(engine.pending_bytes(), abs=2**20)


def freed_with_the_draft() -> int:
    """Bytes that a process has less of when its draft model is given up."""
    engine = LoadedEngine(load_registry()["demo"], Options(drafters=("model",)))
    machine = told(engine)
    answer(engine, PROMPTS[0], GREEDY, machine)
    before = psutil.Process().memory_full_info().uss
    answer(engine, PROMPTS[0], GREEDY, machine, {0: TIGHT})
    assert engine.decoder.active.drafters == []
    freed = before - psutil.Process().memory_full_info().uss
    engine.close()
    return int(freed)


def test_freeing_the_draft_model_gives_its_memory_back() -> None:
    assert elsewhere(freed_with_the_draft) > 0.8 * load_registry()["demo"].draft.stat().st_size  # type: ignore[union-attr]


def test_the_wrong_vocabulary_in_place_of_the_draft_is_refused_when_it_is_opened_again(
    tmp_path: Path, plain: LoadedEngine
) -> None:
    pair = load_registry()["demo"]
    assert pair.draft is not None
    draft = tmp_path / "draft.gguf"
    draft.write_bytes(pair.draft.read_bytes())
    engine = LoadedEngine(replace(pair, draft=draft, drafters=("model",)), Options(memory=Thresholds(calm_seconds=2)))
    machine = told(engine)
    answer(engine, PROMPTS[0], GREEDY, machine, {0: TIGHT})
    draft.unlink()
    draft.write_bytes(write_mute(tmp_path / "mute.gguf").read_bytes())
    machine.free = FREE[OK]
    wait_for(lambda: not engine.status.given_up, meanwhile=lambda: tend(engine, machine))
    tokens, stats = answer(engine, PROMPTS[1], GREEDY, machine)
    assert stats.reason is not None
    assert stats.reason.code == "draft-error"
    assert "draft.gguf cannot draft for" in stats.reason.text
    assert tokens == answer(plain, PROMPTS[1], GREEDY)[0]
    engine.close()
