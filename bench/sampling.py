"""What one row costs from logits to a token at a vocabulary of 128k: `python -m bench.sampling`."""

from __future__ import annotations

import time

import numpy as np

from bench.timing import interleaved, report, spread
from runtime.core.draft import Logits
from runtime.sampling.sampler import Sampler, Sampling

N_VOCAB, ROWS = 128_256, 200
TOP_40 = Sampling(temperature=0.8, top_k=40, top_p=0.95, min_p=0.05, seed=1)
CASES = {
    "greedy": Sampling(temperature=0),
    "top-k 40, top-p, min-p": TOP_40,
    "the same with penalties": Sampling(0.8, 40, 0.95, 0.05, 1, repetition_penalty=1.1, presence_penalty=0.1),
    "the same with a bias": Sampling(0.8, 40, 0.95, 0.05, 1, logit_bias=((5, -1.0),)),
    "no top-k": Sampling(0.8, 0, 0.95, 0.05, 1),
}


def microseconds(sampling: Sampling, logits: Logits) -> float:
    """Mean per row."""
    sampler = Sampler(sampling)
    sampler.begin(np.arange(4096, dtype=np.int32), 10)
    began = time.perf_counter()
    for _ in range(ROWS):
        sampler.choose(logits)
    return (time.perf_counter() - began) / ROWS * 1e6


def main() -> None:
    """Wanted: greedy under 50 microseconds, with top-k 40 under 300."""
    logits = (np.random.default_rng(1).normal(size=N_VOCAB) * 3).astype(np.float32)
    cases = {name: (lambda sampling=sampling: microseconds(sampling, logits)) for name, sampling in CASES.items()}
    results = {name: spread(values) for name, values in interleaved(cases).items()}
    rows = [[name, str(value)] for name, value in results.items()]
    report(
        "one row at 128k, microseconds",
        ["settings", "median"],
        rows,
        {name: round(value.median, 1) for name, value in results.items()},
    )


if __name__ == "__main__":
    main()
