"""Cost of a step in Python alone: a backend without computation, with real sampling, verification and control.

Usage: `python -m bench.step`. Also measured after passes that read as many bytes as a small model has, which evict
everything else from the processor's caches; and the time between two passes with the models in a process of their own.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection, Pipe

import numpy as np

from bench.instruments.timing import interleaved, report, spread
from bench.instruments.toy import facts, one_step
from runtime.core.draft import NO_DRAFT, Adapters, Draft, Logits, Tokens
from runtime.core.drafter import NO_DRAFTER, Drafter, traits_of
from runtime.drafters.model import ModelDrafter
from runtime.drafters.ngram import NgramDrafter
from runtime.engine.output import Chunk, Output, Status
from runtime.engine.process.host import Host
from runtime.engine.process.messages import Call, receive, receive_all, send
from runtime.sampling.sampler import Sampler
from runtime.sampling.settings import Sampling
from runtime.speculative.control.controller import Controller
from runtime.speculative.control.costs import PassCosts
from runtime.speculative.control.explain import Pass
from runtime.speculative.decoder import Decoder
from runtime.speculative.target import TargetPasses

STEPS, CONTEXT, K = 200, 4096, 3
N_READ, FEWER_STEPS = 100_000_000, 40  # bytes read by a pass in the second variant, and its number of steps
GREEDY = Sampling(temperature=0)
SAMPLED = Sampling(temperature=0.8, top_k=40, top_p=0.95, min_p=0.05, seed=1)


class Instant:
    """Logits without a model: fixed rows with a clear favorite. Each pass reads `weights`; its seconds are counted."""

    n_ctx = n_rewindable = 1 << 20

    def __init__(self, n_vocab: int, n_read: int = 0) -> None:
        self.n_vocab, self.seconds = n_vocab, 0.0
        self.weights = np.ones(n_read, dtype=np.uint8)
        self.rows: Logits = np.random.default_rng(1).normal(size=(K + 1, n_vocab)).astype(np.float32) * 3
        self.rows[:, 7] = 30

    def forward(self, context: Tokens, draft: Draft = NO_DRAFT, exact: bool = True) -> Logits:
        began = time.perf_counter()
        self.weights.max(initial=0)
        self.seconds += time.perf_counter() - began
        return self.rows[: 1 + len(draft)]

    def n_cached(self, context: Tokens, exact: bool = True) -> int:
        return 0

    def set_slots(self, n: int) -> None: ...

    def use(self, adapters: Adapters) -> None: ...

    def resume(self, context: Tokens, exact: bool = True) -> None: ...

    def set_threads(self, one: int, many: int) -> None: ...

    def close(self) -> None: ...


def microseconds_per_step(n_vocab: int, sampling: Sampling, drafters: list[Drafter], n_read: int = 0) -> float:
    """Return the mean over some steps on a context of CONTEXT tokens, without the passes, each of which reads `n_read`
    bytes.
    """
    n_steps, target = FEWER_STEPS if n_read else STEPS, Instant(n_vocab, n_read)
    costs = PassCosts()
    for width in range(1, 10):
        costs.set(width, 1e-3 * (1 + 0.2 * width))
    known = {drafter.name: traits_of(drafter, 1e-5) for drafter in drafters}
    controller = Controller(costs, known, max_k=K, fixed_k=K if drafters else None)
    loop, sampler = Decoder(TargetPasses(target), drafters, controller), Sampler(sampling)
    tokens = np.random.default_rng(2).integers(0, n_vocab, CONTEXT + STEPS).astype(np.int32)
    one_step(loop, tokens[:CONTEXT], sampler, 0, 100)
    began, passes = time.perf_counter(), target.seconds
    for n in range(n_steps):
        one_step(loop, tokens[: CONTEXT + n], sampler, n, 100)
    return (time.perf_counter() - began - target.seconds + passes) / n_steps * 1e6


REPLY = 1  # number of the reply


class Reading:
    """Stands for a loaded engine: each step reads as many bytes as a pass.

    The last chunk has the mean time between two steps, in microseconds.
    """

    status = Status()
    facts = facts()

    def __init__(self, n_read: int) -> None:
        self.weights = np.ones(n_read, dtype=np.uint8)
        self.is_idle, self.n_running = True, 1
        self._n_steps = self._number = 0
        self._between, self._left = 0.0, 0.0

    def prepare(self) -> None:
        """Do nothing: there is no template."""

    def cancel(self, number: int) -> None:
        """Do nothing: no reply is cancelled."""

    def close(self, on_progress: Callable[[], object]) -> None:
        """Do nothing: there are no models."""

    def store_prompts(self) -> bool:
        """Return False: there are none to store."""
        return False

    def tend(self) -> None:
        """Do nothing: no memory is watched."""

    def begin(self, n_steps: int, number: int, pool: object) -> None:
        """Start a reply of `n_steps` steps."""
        self._n_steps, self.is_idle = n_steps, False

    def step(self) -> list[Output]:
        """Run the next step."""
        if self._number:
            self._between += time.perf_counter() - self._left
        if self._number == self._n_steps:
            self.is_idle = True
            return [Output(REPLY, Chunk(str(1e6 * self._between / self._n_steps), finish_reason="length"))]
        self._number += 1
        self.weights.max(initial=0)
        self._left = time.perf_counter()
        chunk = Chunk(" word", (self._number,), (False,), (" word",), made=Pass(1e-3, NO_DRAFTER, 0, 0))
        return [Output(REPLY, chunk)]


def serve(pipes: list[Connection], n_read: int) -> None:
    """Run the host in the other process."""
    host = Host(*pipes)
    host.open(Reading(n_read))  # type: ignore[arg-type]  # it has all that a host uses of an engine
    host.loop()


def microseconds_per_crossing(n_read: int, n_steps: int) -> float:
    """Return the mean over some steps of a single reply whose reader keeps up."""
    pairs = [Pipe() for _ in range(3)]
    process = get_context("spawn").Process(target=serve, args=([their for _, their in pairs], n_read))
    process.start()
    commands = pairs[0][0]
    receive(commands)
    send(commands, Call("add", (n_steps, REPLY)))
    last = read(commands)
    send(commands, Call("close"))
    process.join()
    return float(last.text)


def read(commands: Connection) -> Chunk:
    """Return the last chunk of the reply."""
    while True:
        for output in receive_all(commands):
            if isinstance(output, Output) and isinstance(output.came, Chunk) and output.came.finish_reason:
                return output.came


def main() -> None:
    """Goals for passes that read nothing: plain greedy at 32k under 150, sampled at 128k under 400, the crossing under
    50.
    """
    shapes = {"greedy, 32k words": (32_000, GREEDY), "sampled, 128k words": (128_256, SAMPLED)}
    kinds: dict[str, Callable[[int], list[Drafter]]] = {
        "plain": lambda n: [],
        "ngram": lambda n: [NgramDrafter()],
        f"draft model, K = {K}": lambda n: [ModelDrafter(Instant(n), n)],
    }
    cases = {
        f"{name}, {kind}{after}": (lambda n=n, s=s, make=make, read=read: microseconds_per_step(n, s, make(n), read))
        for name, (n, s) in shapes.items()
        for kind, make in kinds.items()
        for after, read in {"": 0, ", after 100 MB": N_READ}.items()
    }
    for after, read in {"": 0, ", after 100 MB": N_READ}.items():
        cases[f"the way to another process{after}"] = lambda read=read: microseconds_per_crossing(read, STEPS)
    results = {name: spread(values) for name, values in interleaved(cases).items()}
    rows = [[name, str(value)] for name, value in results.items()]
    report(
        "Python time per step, microseconds",
        ["case", "median"],
        rows,
        {name: round(value.median, 1) for name, value in results.items()},
    )


if __name__ == "__main__":
    main()
