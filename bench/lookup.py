"""What the drafters that look text up cost at 32k tokens, and the store of past replies when it is full: `python -m
bench.lookup`.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from bench.timing import interleaved, report, spread
from runtime.core.draft import Tokens
from runtime.core.drafter import UNKNOWN_TOKEN, Budget, Drafter
from runtime.drafters.ngram import NgramDrafter
from runtime.drafters.prediction import PredictionDrafter
from runtime.drafters.reply_store import MAX_BYTES, Replies
from runtime.drafters.suffix import SuffixDrafter
from runtime.sampling.sampler import Sampler, Sampling

CONTEXT, STEPS, REPLY, N_VOCAB, K = 32_000, 300, 300, 32_000, 8
EDITED = 0.02  # share of tokens that the reply has and its prediction has not


def unlimited() -> Budget:
    """Lets a drafter say K tokens, of which it has to know the confidence."""

    def go_on(confidence: float, token: int = UNKNOWN_TOKEN) -> bool:
        return True

    return Budget(K, go_on, Sampler(Sampling(temperature=0)).pick)


def text(n: int, seed: int) -> Tokens:
    """Tokens as frequent as words are, in which passages come back."""
    rng = random.Random(seed)
    tokens = [min(int(rng.paretovariate(0.9)), N_VOCAB - 1) for _ in range(n)]
    for at in range(400, n - 40, 100):
        back = rng.randrange(at - 40)
        tokens[at : at + 40] = tokens[back : back + 40]
    return np.array(tokens, dtype=np.int32)


def microseconds(drafter: Drafter, tokens: Tokens) -> float:
    """The median of proposals for a reply after CONTEXT tokens, two tokens more each time; the first, which takes the
    prompt in, is left out.
    """
    seconds, budget = list[float](), unlimited()
    for n in range(CONTEXT, CONTEXT + 2 * STEPS, 2):
        began = time.perf_counter()
        drafter.propose(tokens[:n], budget)
        seconds.append(time.perf_counter() - began)
    return float(np.median(seconds[1:])) * 1e6


def predicting(tokens: Tokens) -> Drafter:
    """With a prediction of CONTEXT tokens of which the reply is a changed copy."""
    drafter, rng = PredictionDrafter(), random.Random(4)
    reply = [token if rng.random() > EDITED else 0 for token in tokens[CONTEXT:].tolist()]
    drafter.begin(tokens[:CONTEXT], reply + tokens[: CONTEXT - len(reply)].tolist())
    return drafter


def fill(folder: Path) -> Replies:
    """A store as large as it gets."""
    store, tokens = Replies(folder / "replies", N_VOCAB), text(MAX_BYTES // 4, 5)
    for first in range(0, len(tokens) - REPLY, REPLY + 4):  # four words beside it in a row
        store.append(tokens[first : first + REPLY])
    return store


def remembering(path: Path) -> SuffixDrafter:
    """As the next process finds it."""
    drafter = SuffixDrafter(Replies(path, N_VOCAB))
    drafter.begin(np.zeros(0, dtype=np.int32), ())
    return drafter


def milliseconds(do: Callable[[], object]) -> float:
    """Of one call."""
    began = time.perf_counter()
    do()
    return (time.perf_counter() - began) * 1e3


def main() -> None:
    """Wanted: under 50 microseconds per proposal at 32k; a full store read in some milliseconds."""
    tokens = text(CONTEXT + 2 * STEPS, 3)
    with tempfile.TemporaryDirectory() as name:
        store = fill(Path(name))
        cases: dict[str, Callable[[], float]] = {
            "ngram, microseconds": lambda: microseconds(NgramDrafter(), tokens),
            "prediction, microseconds": lambda: microseconds(predicting(tokens), tokens),
            "suffix, full store, microseconds": lambda: microseconds(remembering(store.path), tokens),
            "ngram, the whole prompt at once, ms": lambda: milliseconds(
                lambda: NgramDrafter().propose(tokens, unlimited())
            ),
            "suffix, read a full store, ms": lambda: milliseconds(lambda: remembering(store.path)),
            "suffix, keep a reply, ms": lambda: milliseconds(
                lambda: Replies(store.path.with_name("new"), N_VOCAB).append(tokens[:REPLY])
            ),
            "the full store, KiB": lambda: store.path.stat().st_size / 1024,
        }
        results = {name: spread(values) for name, values in interleaved(cases).items()}
    rows = [[name, str(value)] for name, value in results.items()]
    report(
        "lookup at 32k tokens",
        ["case", "median"],
        rows,
        {name: round(value.median, 2) for name, value in results.items()},
    )


if __name__ == "__main__":
    main()
