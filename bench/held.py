"""What a head that learns costs replies while a training is under way: `python -m bench.held HEAD.gguf`.

Three engines answer the same question in turns: plain, with the head, and with the head that learns, beside which a
process of the lowest priority computes without end until the reply begins, as a training does. The ratio is of tokens
per second of the whole reply, its prompt included, as the moment in which the training is held is part of it.
"""

from __future__ import annotations

import argparse
import time
from contextlib import ExitStack, closing
from dataclasses import replace
from itertools import count
from pathlib import Path

from bench.learned import IDLE, begin_training, rest
from bench.timing import ratios, report
from bench.turns import rounds
from runtime.engine import Message, Options, Sampling
from runtime.engine.loaded import LoadedEngine
from runtime.learning.trainer import TrainerProcess
from runtime.models.registry import load_registry

QUESTIONS = "What does os.path.join do?", "Explain textwrap.wrap.", "What is a deque?", "How does json.dumps work?"
PLAIN, HEAD, LEARNS = "plain", "head", "head that learns"


def rate(engine: LoadedEngine, training: TrainerProcess | None, question: str) -> float:
    """Tokens per second of a reply that begins while the training computes, where there is one."""
    if training:
        rest(engine, training)
    else:
        time.sleep(IDLE)
    began = time.perf_counter()
    chunks = list(engine.reply([Message("user", question)], Sampling(temperature=0), 120))
    return sum(len(chunk.tokens) for chunk in chunks) / (time.perf_counter() - began)


def main() -> None:
    """Wanted: the head that learns is as fast as the head, and no slower than plain decode."""
    parser = argparse.ArgumentParser(description="Replies while a training is held.")
    parser.add_argument("head", type=Path, help="an EAGLE-3 head for the bundled target")
    parser.add_argument("--rounds", type=int, default=40)
    args = parser.parse_args()
    pair, numbers = replace(load_registry()["demo"], draft=args.head), count()
    ways = {
        PLAIN: (pair, Options(1024, drafters=())),
        HEAD: (pair, Options(1024)),
        LEARNS: (replace(pair, learn=True), Options(1024)),
    }
    with ExitStack() as stack:
        engines = {name: stack.enter_context(closing(LoadedEngine(*way, learns=True))) for name, way in ways.items()}
        training = begin_training(engines[LEARNS])

        def measured() -> dict[str, float]:
            question = QUESTIONS[next(numbers) % len(QUESTIONS)]
            return {name: rate(each, training if name == LEARNS else None, question) for name, each in engines.items()}

        found = rounds(measured, args.rounds)
    over_head, over_plain = ratios(found[LEARNS], found[HEAD]), ratios(found[LEARNS], found[PLAIN])
    rows = [[LEARNS, str(over_head), str(over_plain)], [HEAD, "", str(ratios(found[HEAD], found[PLAIN]))]]
    medians = {"learns / head": over_head.median, "learns / plain": over_plain.median}
    summary: dict[str, object] = {name: round(value, 3) for name, value in medians.items()}
    report("replies while a training is held", ["way", "/ head", "/ plain"], rows, summary)


if __name__ == "__main__":
    main()
