"""Replay of concurrent texts, whose steps share passes, through the controller, with scripted times."""

from __future__ import annotations

from collections.abc import Sequence

from bench.instruments.traces import MAX_K, Proposed, Trace, controller_for, learn, propose, step
from runtime.core.drafter import NO_DRAFTER
from runtime.speculative.control.controller import Controller

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
