"""One token's way is short: how many files of the runtime a pass of the target enters, counted by tracing replies."""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import median
from types import FrameType

import pytest

import runtime
from runtime.engine import Message, Sampling
from runtime.engine.core import EngineCore
from runtime.engine.engine import Ask
from runtime.engine.output import ignore
from tests.conftest import OpenEngine

HOME = str(Path(runtime.__file__).parent)
QUESTIONS = "What does os.path.join do?", "What is collections.deque?", "How does itertools.groupby work?"
GREEDY, SEEDED = Sampling(temperature=0), Sampling(temperature=0.8, seed=3)


def files_entered(core: EngineCore) -> set[str]:
    """The runtime's files that a step enters."""
    entered: set[str] = set()

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(HOME):
            entered.add(frame.f_code.co_filename.removeprefix(HOME + "/"))

    sys.setprofile(note)
    try:
        core.step()
    finally:
        sys.setprofile(None)
    return entered


def walks(open_demo: OpenEngine, sampling: Sampling, **options: object) -> list[set[str]]:
    """Of each pass but the first of some replies, on an engine that has answered before."""
    engine, found = open_demo(**options), list[set[str]]()
    for question in QUESTIONS * 4:
        number = engine.add(Ask([Message("user", question)], sampling, 40), ignore)
        for _ in range(2):  # it begins, and its prompt is read
            engine.step()
        while not engine.core.scheduler.sequences[0].drafting.has_begun:  # a draft model reads it, too
            engine.step()
        found += [files_entered(engine.core) for _ in range(3)]
        engine.end(number)
    return found[len(found) // 2 :]


@pytest.mark.parametrize("sampling", [GREEDY, SEEDED], ids=["greedy", "seeded"])
def test_a_plain_pass_enters_at_most_seventeen_files(open_demo: OpenEngine, sampling: Sampling) -> None:
    assert median(map(len, walks(open_demo, sampling, threads=1, drafters=()))) <= 17


@pytest.mark.parametrize("sampling", [GREEDY, SEEDED], ids=["greedy", "seeded"])
def test_a_pass_with_the_usual_drafters_enters_at_most_twenty_five(open_demo: OpenEngine, sampling: Sampling) -> None:
    assert median(map(len, walks(open_demo, sampling, threads=1))) <= 25
