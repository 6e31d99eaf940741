"""What a step costs in Python alone: a backend that answers at once, real sampling, verification and control: `python
-m bench.step`.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from bench.timing import interleaved, report, spread
from runtime.core.draft import NO_DRAFT, Draft, Logits, Tokens
from runtime.core.drafter import Drafter
from runtime.drafters.model import ModelDrafter
from runtime.drafters.ngram import NgramDrafter
from runtime.sampling.sampler import Sampler, Sampling
from runtime.speculative.control.controller import Controller
from runtime.speculative.control.costs import PassCosts
from runtime.speculative.loop import SpecLoop

STEPS, CONTEXT, K = 200, 4096, 3
GREEDY = Sampling(temperature=0)
SAMPLED = Sampling(temperature=0.8, top_k=40, top_p=0.95, min_p=0.05, seed=1)


class Instant:
    """Logits without a model: fixed rows with a clear favourite."""

    can_branch = True
    n_ctx = n_rewindable = 1 << 20

    def __init__(self, n_vocab: int) -> None:
        self.n_vocab = n_vocab
        self.rows: Logits = np.random.default_rng(1).normal(size=(K + 1, n_vocab)).astype(np.float32) * 3
        self.rows[:, 7] = 30

    def forward(self, context: Tokens, draft: Draft = NO_DRAFT) -> Logits:
        return self.rows[: 1 + len(draft)]

    def n_cached(self, context: Tokens) -> int:
        return 0

    def set_slots(self, n: int) -> None: ...

    def resume(self, context: Tokens) -> None: ...

    def set_threads(self, one: int, many: int) -> None: ...

    def close(self) -> None: ...


def microseconds_per_step(n_vocab: int, sampling: Sampling, drafters: list[Drafter]) -> float:
    """Mean over STEPS steps on a context of CONTEXT tokens."""
    costs = PassCosts()
    for width in range(1, 10):
        costs.set(width, 1e-3 * (1 + 0.2 * width))
    controller = Controller(
        costs, {drafter.name: 1e-5 for drafter in drafters}, max_k=K, fixed_k=K if drafters else None
    )
    loop, sampler = SpecLoop(Instant(n_vocab), drafters, controller), Sampler(sampling)
    tokens = np.random.default_rng(2).integers(0, n_vocab, CONTEXT + STEPS).astype(np.int32)
    loop.step(loop.request, tokens[:CONTEXT], sampler, 0, 100)
    began = time.perf_counter()
    for n in range(STEPS):
        loop.step(loop.request, tokens[: CONTEXT + n], sampler, n, 100)
    return (time.perf_counter() - began) / STEPS * 1e6


def main() -> None:
    """Wanted: plain greedy at 32k under 150, sampled at 128k under 400."""
    shapes = {"greedy, 32k words": (32_000, GREEDY), "sampled, 128k words": (128_256, SAMPLED)}
    kinds: dict[str, Callable[[int], list[Drafter]]] = {
        "plain": lambda n: [],
        "ngram": lambda n: [NgramDrafter()],
        f"draft model, K = {K}": lambda n: [ModelDrafter(Instant(n), n)],
    }
    cases = {
        f"{name}, {kind}": (lambda n=n, s=s, make=make: microseconds_per_step(n, s, make(n)))
        for name, (n, s) in shapes.items()
        for kind, make in kinds.items()
    }
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
