"""Public weights, fetched once; what plain decode says to everything; and every way to draft, one open at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

import pytest

from bench.instruments.weights import MODELS, FetchError, fetched
from runtime.backends import library
from runtime.engine import Options
from runtime.engine.loaded import LoadedEngine
from runtime.models.registry import Pair
from tests.real.asking import CASES, CELLS, N_CONTEXT, SHORT, WAYS, Said, ask

FindPair = Callable[[str], Pair]
SayPlainly = Callable[[str, bool, str], Said]


@dataclass(frozen=True, slots=True)
class Drafting:
    """An engine that drafts in one way, and what its model says to a case without drafts."""

    engine: LoadedEngine
    way: str
    plain: Callable[[str], Said]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All that is in this folder needs the weights."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.real)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says once, not for each test, why there are no weights."""
    found = terminalreporter.stats.get("skipped", [])
    skipped = [report for report in found if "real" in getattr(report, "keywords", ())]  # a whole file has none
    for reason in sorted({report.longrepr[2].removeprefix("Skipped: ") for report in skipped}):
        terminalreporter.write_line(f"Skipped: {reason}")


@pytest.fixture(scope="session")
def real_pair() -> FindPair:
    """Fetches a model's file, or skips the test; neither is tried again.

    Which kernels are used is settled once for a process, so the exact ones are asked for before the first pass.
    """
    library.prefer_exact()

    @cache
    def path_or_reason(name: str) -> Path | str:
        try:
            return fetched(MODELS[name])
        except FetchError as error:
            return str(error)

    def find(name: str) -> Pair:
        found = path_or_reason(name)
        if isinstance(found, str):
            pytest.skip(found)
        return Pair(name, found, context=N_CONTEXT)

    return find


@pytest.fixture(scope="session")
def said_plainly(real_pair: FindPair) -> Iterator[SayPlainly]:
    """Plain decode's reply to a case, with exact kernels or without."""
    engines: dict[tuple[str, bool], LoadedEngine] = {}

    @cache
    def say(name: str, exact: bool, case: str) -> Said:
        if (name, exact) not in engines:
            engines[name, exact] = LoadedEngine(real_pair(name), Options(drafters=(), exact=exact))
        return ask(engines[name, exact], CASES[case])

    yield say
    for engine in engines.values():
        engine.close()


@pytest.fixture(scope="session", params=CELLS, ids="-".join)
def drafting(request: pytest.FixtureRequest, real_pair: FindPair, said_plainly: SayPlainly) -> Iterator[Drafting]:
    """One way with one model; a model drafts for itself where a draft model is needed."""
    name, way = request.param
    pair, plain = real_pair(name), partial(said_plainly, name, WAYS[way]["exact"])
    pair = replace(pair, draft=pair.target if way == "model" else None)
    with closing(LoadedEngine(pair, Options(**WAYS[way]))) as engine:
        for case in SHORT if way == "suffix" else ():
            ask(engine, CASES[case])  # so that there are past replies
        yield Drafting(engine, way, plain)
