"""Worlds for the controller: synthetic traces with costs of real machines, successive or concurrent.

All times are the traces' own. Knows no model and no clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import product

from bench.instruments.traces import LAWS, Trace, World, made_up
from bench.instruments.traces_together import Together, plain_together

Costs = tuple[Sequence[float], float, float]  # milliseconds: passes by width - 1, a first draft token, a further one
COSTS: dict[str, Costs] = {
    "1B, 2 cores": ([46, 67, 79, 82, 129, 132, 138, 143, 150], 6.0, 4.0),
    "demo, 2 cores": ([2.08, 3.4, 4.0, 4.3, 5.0, 5.6, 6.1, 6.3, 7.7], 0.85, 0.37),
    "1B Q4_K_M": ([46, 73, 99, 123, 154, 180, 205, 230, 255], 6.0, 4.0),
    "GPU": ([10, 10.3, 10.6, 10.9, 11.2, 11.5, 11.8, 12.1, 17], 1.5, 1.4),
    "draft as slow": ([46, 67, 79, 82, 129, 132, 138, 143, 150], 50.0, 46.0),
}


def made_up_worlds(n: int, seed: int) -> Iterator[World]:
    """Yield every law at every cost."""
    for where, costs in COSTS.items():
        for what, law in LAWS.items():
            yield World(f"{where}: {what}", [made_up(law, costs, n, seed)])


# Worlds: successive texts of one controller.

STRETCH, SHORT = 200, 20  # tokens of a text, and tokens of a short reply
SURE, HALF, HOPELESS = "informed 0.9", "informed 0.5", "unsure 0.1"


def changed(costs: Costs, plain: float = 1, wide: float = 1, draft: float = 1) -> Costs:
    """Return the costs of the machine with plain passes, wider passes and draft tokens scaled by these factors."""
    passes, first, rest = costs
    return [plain * passes[0], *(wide * seconds for seconds in passes[1:])], draft * first, draft * rest


HIDDEN = (1.5, 3.0)  # what steps with drafts take, relative to drafting and the pass together


def turns(costs: Costs) -> dict[str, list[tuple[str, Costs]]]:
    """Return alternating laws and costs: costs jump and come back, drafts stall, texts are of two kinds."""
    return {
        "twice as slow and back": [(SURE, costs), (SURE, changed(costs, 2, 2, 2))],
        "wide passes dear and back": [(SURE, costs), (SURE, changed(costs, wide=1.5))],
        "drafts stall and back": [(SURE, costs), (SURE, changed(costs, draft=20))],
        "good and bad texts": [(SURE, costs), (HOPELESS, costs)],
    }


def worlds(n: int, seed: int) -> Iterator[World]:
    """Yield worlds of `n` tokens each: changes within one process, and short replies in processes of their own."""
    for where in ("1B, 2 cores", "demo, 2 cores", "GPU"):
        for what, pieces in turns(COSTS[where]).items():
            each = [pieces[i % len(pieces)] for i in range(n // STRETCH)]
            traces = [made_up(LAWS[law], costs, STRETCH, seed + i) for i, (law, costs) in enumerate(each)]
            yield World(f"{where}: {what}", traces)
        for law, factor in product((SURE, HALF), HIDDEN):
            trace = replace(made_up(LAWS[law], COSTS[where], n, seed), hidden=factor)
            yield World(f"{where}: steps with drafts take {factor:g} times their parts, {law}", [trace])
        for law in (SURE, HALF, HOPELESS):
            traces = [made_up(LAWS[law], COSTS[where], SHORT, seed + i) for i in range(n // SHORT)]
            yield World(f"{where}: short replies, {law}", traces, restarts=True)
        found = [HOPELESS if i < n // SHORT // 2 else SURE for i in range(n // SHORT)]
        traces = [made_up(LAWS[law], COSTS[where], SHORT, seed + i) for i, law in enumerate(found)]
        yield World(f"{where}: short replies, bad ones, then good ones", traces, restarts=True)


def together(n: int, seed: int) -> Iterator[tuple[str, Callable[[], float]]]:
    """Yield cases of concurrent texts: a name, and a function that returns the speed relative to no drafts."""
    for where, (law, n_replies) in product(
        ("1B, 2 cores", "demo, 2 cores", "GPU"), product((SURE, HALF, HOPELESS), (2, 4, 8))
    ):
        traces = [made_up(LAWS[law], COSTS[where], n, seed + i) for i in range(n_replies)]
        yield f"{where}: {n_replies} at once, {law}", partial(times_plain, traces)


def times_plain(traces: Sequence[Trace]) -> float:
    """Return the speed of these texts with drafts relative to passes without."""
    return plain_together(traces) / Together(traces).run()
