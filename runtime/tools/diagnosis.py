"""Measures the costs and the exactness of a pair's passes on this machine.

Knows the engine; draws no conclusions.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from runtime.drafters.model import ModelDrafter
from runtime.engine.loaded import LoadedEngine
from runtime.loading.exactness import Exactness
from runtime.loading.options import Options
from runtime.loading.pass_timing import measure, pass_runner, timed
from runtime.models.registry import Pair
from runtime.speculative.control.costs import PassCosts

MAX_WIDTH = 9  # rows: the longest default draft, and one
BUDGET = 4.0  # seconds; widths beyond it are left out


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Seconds of a target pass by width, and of one token of the draft model (0 without one).

    In messages of `unquoted_roles`, names of control tokens become those tokens.
    """

    pass_seconds: dict[int, float]
    draft_seconds: float
    exactness: Exactness
    unquoted_roles: tuple[str, ...]


def diagnose(pair: Pair, workers: tuple[str, ...] = ()) -> Diagnosis:
    """Open the pair with these workers, and measure. Raises ModelError and other errors of loading."""
    engine = LoadedEngine(pair, Options(rpc=workers))
    try:
        costs = PassCosts()
        drafting = [drafter for drafter in engine.decoder.active.drafters if isinstance(drafter, ModelDrafter)]
        measure(costs, pass_runner(engine.decoder.target.backend), MAX_WIDTH, time.perf_counter() + BUDGET)
        seconds = [timed(pass_runner(drafter.backend), 1, 5, float("inf")) for drafter in drafting]
        pass_seconds = dict(sorted(costs.widths(0).items()))
        return Diagnosis(pass_seconds, sum(seconds), engine.facts.exactness, tuple(engine.unquoted_roles()))
    finally:
        engine.close()
