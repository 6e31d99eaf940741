"""Worlds: synthetic texts and machines, and the replay of several texts whose steps share passes.

All times are scripted. Used by tests and by the simulation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import product

from bench.instruments.traces import LAWS, MAX_K, Proposed, Trace, World, controller_for, learn, made_up, propose, step
from runtime.core.drafter import NO_DRAFTER
from runtime.speculative.control.controller import Controller

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


FURTHER = 0.1  # relative cost of each further reply with a row in a draft pass


class Together:
    """Several texts at the costs of the first, and one controller."""

    def __init__(self, traces: Sequence[Trace]) -> None:
        self.traces, self.places = traces, [0] * len(traces)
        self.controller: Controller = controller_for(traces[0])
        self.seconds, self.n_drafted = 0.0, 0

    def live(self) -> list[int]:
        """Return the texts that have not ended."""
        return [i for i, trace in enumerate(self.traces) if self.places[i] < len(trace.agrees)]

    def run(self) -> float:
        """Return the seconds until the last text has ended."""
        while live := self.live():
            if len(live) == 1:
                came, seconds = step(self.controller, self.traces[live[0]], self.places[live[0]])
                self.places[live[0]] += came
                self.seconds += seconds
            else:
                self._step(live)
        return self.seconds

    def _step(self, live: Sequence[int]) -> None:
        """Run one pass for all of them."""
        controller, first = self.controller, self.traces[0]
        proposed = {i: self._propose(i, len(live), MAX_K // len(live) or (i == live[0])) for i in live}
        width = len(live) + sum(each.k for each in proposed.values())
        verify, draft = first.pass_seconds(width), self._draft_seconds(list(proposed.values()))
        own = {i: each.terms.shares[each.k] for i, each in proposed.items()}
        n_proposed = sum(len(each.confidences) for each in proposed.values())
        controller.passes.joint.learn_drafts([each.k for each in proposed.values()])
        controller.passes.learn(NO_DRAFTER, width, 0, verify, len(live))
        for i, each in proposed.items():
            share = verify * own[i] / sum(own.values())
            thought = draft * len(each.confidences) / max(n_proposed, 1)
            self.places[i] += learn(controller, self.traces[i], self.places[i], each, thought, share)
        self.seconds += verify + draft
        self.n_drafted += width - len(live)

    def _propose(self, i: int, n: int, room: int) -> Proposed:
        terms = self.controller.begin(0, n_together=n)
        return propose(self.controller, terms, self.traces[i], self.places[i], room)

    def _draft_seconds(self, proposed: Sequence[Proposed]) -> float:
        """Return the seconds of the draft passes, each with a token of every reply whose draft continues."""
        first, seconds = self.traces[0], 0.0
        for depth in range(max(len(each.confidences) for each in proposed)):
            n = sum(len(each.confidences) > depth for each in proposed)
            seconds += (first.rest if depth else first.first) * (1 + FURTHER * (n - 1))
        return seconds


def plain_together(traces: Sequence[Trace]) -> float:
    """Return the seconds without drafts, in passes shared by all texts that have not ended."""
    lengths = sorted((len(trace.agrees) for trace in traces), reverse=True)
    return sum(traces[0].pass_seconds(sum(length > place for length in lengths)) for place in range(lengths[0]))
