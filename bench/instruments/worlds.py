"""Worlds for the controller: made-up traces at costs of real machines, one after the other or several at once.

All times are the traces' own. Knows no model and no clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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
    """Every law at every cost."""
    for where, costs in COSTS.items():
        for what, law in LAWS.items():
            yield World(f"{where}: {what}", [made_up(law, costs, n, seed)])


# Worlds: texts that one controller meets one after the other.

STRETCH, SHORT = 200, 20  # tokens of a text, and of a short reply
SURE, HALF, HOPELESS = "informed 0.9", "informed 0.5", "unsure 0.1"


def changed(costs: Costs, plain: float = 1, wide: float = 1, draft: float = 1) -> Costs:
    """The same machine when plain passes, wider ones and draft tokens take so many times as long."""
    passes, first, rest = costs
    return [plain * passes[0], *(wide * seconds for seconds in passes[1:])], draft * first, draft * rest


def turns(costs: Costs) -> dict[str, list[tuple[str, Costs]]]:
    """What comes in turns, a law and costs each: costs jump and come back, drafts stall, texts are of two kinds."""
    return {
        "twice as slow and back": [(SURE, costs), (SURE, changed(costs, 2, 2, 2))],
        "wide passes dear and back": [(SURE, costs), (SURE, changed(costs, wide=1.5))],
        "drafts stall and back": [(SURE, costs), (SURE, changed(costs, draft=20))],
        "good and bad texts": [(SURE, costs), (HOPELESS, costs)],
    }


def worlds(n: int, seed: int) -> Iterator[World]:
    """Of `n` tokens each: what changes while one process decodes, and short replies in processes of their own."""
    for where in ("1B, 2 cores", "demo, 2 cores", "GPU"):
        for what, pieces in turns(COSTS[where]).items():
            each = [pieces[i % len(pieces)] for i in range(n // STRETCH)]
            traces = [made_up(LAWS[law], costs, STRETCH, seed + i) for i, (law, costs) in enumerate(each)]
            yield World(f"{where}: {what}", traces)
        for law in (SURE, HALF, HOPELESS):
            traces = [made_up(LAWS[law], COSTS[where], SHORT, seed + i) for i in range(n // SHORT)]
            yield World(f"{where}: short replies, {law}", traces, restarts=True)
        found = [HOPELESS if i < n // SHORT // 2 else SURE for i in range(n // SHORT)]
        traces = [made_up(LAWS[law], COSTS[where], SHORT, seed + i) for i, law in enumerate(found)]
        yield World(f"{where}: short replies, bad ones, then good ones", traces, restarts=True)


def together(n: int, seed: int) -> Iterator[tuple[str, Callable[[], float]]]:
    """Several texts at once: what computes how many times faster they are than by passes without drafts for all."""
    for where, (law, n_replies) in product(
        ("1B, 2 cores", "demo, 2 cores", "GPU"), product((SURE, HALF, HOPELESS), (2, 4, 8))
    ):
        traces = [made_up(LAWS[law], COSTS[where], n, seed + i) for i in range(n_replies)]
        yield f"{where}: {n_replies} at once, {law}", partial(times_plain, traces)


def times_plain(traces: Sequence[Trace]) -> float:
    """Return how many times faster these are with drafts than by passes without."""
    return plain_together(traces) / Together(traces).run()
