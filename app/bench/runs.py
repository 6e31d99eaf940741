"""Makes the runs: rounds of every prompt in every way, interleaved so that a busy moment of the machine hits all ways
alike.

Knows engines and prompts; what the numbers mean is results.py's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product

from app.bench.engines import Engines
from app.bench.plan import ADAPTIVE, Cell, Plan, Way
from app.bench.prompts import KINDS, Turns
from app.bench.results import Results, TimedReply
from runtime.core.errors import ContextError, TemplateError
from runtime.engine import Chunk, Engine, Message, Sampling

SEED = 7
WARM_UP = 0  # the round that is not counted: it opens models, fills caches, and lets the controllers see the machine
Prompt = str | list[Message]


@dataclass(frozen=True, slots=True)
class Task:
    """One reply to make."""

    way: Way
    cell: Cell
    prompt: int


class Runs:
    """Asks engines, compares their replies and collects the numbers."""

    def __init__(self, engines: Engines, plan: Plan, is_cancelled: Callable[[], bool]) -> None:
        self.engines, self.plan, self.is_cancelled = engines, plan, is_cancelled
        self.results = Results(plan)
        self._prompts: dict[tuple[str, int], Prompt] = {}
        self._said: dict[tuple[Cell, int], list[int]] = {}  # plain decode's tokens

    def tasks(self) -> list[Task]:
        """A round. Where engines must come and go, each comes once; else every prompt goes to all ways in a row."""
        cells = [(cell, number) for number in range(self.plan.n_prompts) for cell in self.plan.cells]
        if self.engines.all_fit:
            return [Task(way, *cell) for cell, way in product(cells, self.plan.ways)]
        return [Task(way, *cell) for way, cell in product(self.plan.ways, cells)]

    def round(self, number: int) -> Iterator[Task]:
        """Makes the replies of a round, each after it was yielded; ends early when cancelled."""
        tasks, i = self.tasks(), 0
        while i < len(tasks) and not self.is_cancelled():
            with self.engines.lent(tasks[i].way) as engine:
                self._prepare(engine)
                way = tasks[i].way
                while i < len(tasks) and tasks[i].way == way and not self.is_cancelled():
                    yield tasks[i]
                    self._reply(engine, tasks[i], number)
                    i += 1

    def _prepare(self, engine: Engine) -> None:
        """Finds out once in which form this model takes the prompts, and whether the context holds them."""
        if self._prompts:
            return
        for kind in self.plan.kinds:
            for number, turns in enumerate(KINDS[kind][: self.plan.n_prompts]):
                self._prompts[kind, number] = prompt = in_form(engine, turns)
                if (n := len(engine.encode(prompt)) + self.plan.max_tokens) > engine.facts.n_ctx:
                    raise ContextError(
                        f"A prompt of kind '{kind}' and its reply take {n} tokens, but the context holds "
                        f"{engine.facts.n_ctx}. "
                        "Raise `--context`, or leave that kind out of `--kinds`."
                    )

    def _reply(self, engine: Engine, task: Task, number: int) -> None:
        """One reply: measured, and compared with plain decode's."""
        chosen = Sampling(**engine.pair.sampling_defaults | {"temperature": task.cell.temperature, "seed": SEED})
        prompt = self._prompts[task.cell.kind, task.prompt]
        chunks = list(engine.reply(prompt, chosen, self.plan.max_tokens, cancel=self.is_cancelled))
        if chunks[-1].finish_reason == "cancelled":
            return
        self._compare(engine, task, [token for chunk in chunks for token in chunk.tokens])
        if task.way.name == ADAPTIVE:
            self.results.costs = engine.explain().costs
            self.results.exactness = str(engine.facts.exactness)
        if number != WARM_UP:
            self.results.samples.append(sample(task, number, chunks[-1]))

    def _compare(self, engine: Engine, task: Task, tokens: list[int]) -> None:
        """Plain decode comes first and is what all others, and itself in later rounds, must repeat."""
        results, key = self.results, (task.cell, task.prompt)
        if key not in self._said:
            self._said[key] = tokens
            return
        is_different = tokens != self._said[key]
        results.n_compared += 1
        results.n_different += is_different and engine.facts.is_reproducible
        results.n_rounded += is_different and not engine.facts.is_reproducible


def in_form(engine: Engine, turns: Turns) -> Prompt:
    """A conversation; for a model without a chat template the turns as plain text."""
    messages = [Message("assistant" if i % 2 else "user", text) for i, text in enumerate(turns)]
    try:
        engine.encode(messages)
    except TemplateError:
        return "\n\n".join(turns)
    return messages


def sample(task: Task, number: int, last: Chunk) -> TimedReply:
    """The numbers of a finished reply."""
    stats = last.stats
    assert stats is not None
    steps = tuple((step.seconds, step.drafter, step.n_drafted, step.n_accepted) for step in stats.steps)
    return TimedReply(task.way.name, task.cell, task.prompt, number, stats.predicted_n, stats.decode_seconds, steps)
