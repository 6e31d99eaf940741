"""The long proof that nothing is different: `python -m bench.prove`, or `make prove`. Exit code 1 on a mismatch.

Laws on the toy model: each rule, drafter and K against the exact law. Texts on the bundled pair: prompts, seeds, temperatures, drafters
and Ks against plain decode, token for token; grammars against a validator. One table: cells tried, mismatches, smallest p-value.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path

from rich.progress import track

from bench.timing import report
from demo.conversations import QUESTIONS
from demo.corpus import load
from runtime.engine import Engine, Grammar, Message, Options, Sampling
from runtime.registry import load_registry
from tests.forms import SCHEMA, follows_schema
from tests.laws import DRAFTERS, count, exact_law, p_value

TEMPERATURES, SEEDS = (0.0, 0.7, 1.2), (1, 2, 3, 4)
KS = (1, 3, 7, None)  # None: adaptive
KINDS = {"model": Options(drafters=("model",)), "ngram": Options(drafters=("ngram",)), "all": Options(), "tree": Options(branches=2)}
MAX_TOKENS, GRAMMAR_TOKENS = 60, 120
FALSE_ALARM = 1e-3  # that a right rule is called wrong in any of the cells


def laws(n_draws: int) -> list[float]:
    """The p-value of each rule, drafter and K."""
    cells = list(product(DRAFTERS, range(9), (True, False)))
    return [p_value(count(name, k, n_draws, is_coupled), exact_law()) for name, k, is_coupled in track(cells, "laws")]


def prompts(n: int) -> list[str]:
    """Questions over the whole corpus, in all phrasings."""
    entries = load(Path(__file__).parent.parent / "demo" / "corpus.jsonl")
    return [QUESTIONS[i % len(QUESTIONS)].format(entry.name) for i, entry in enumerate(entries[:: len(entries) // n][:n])]


def cases(asked: list[str]) -> Iterator[tuple[str, Sampling, Grammar | None]]:
    """Every prompt, temperature and seed (temperature 0 once), each fifth prompt also under a grammar."""
    for (i, prompt), temperature, seed in product(enumerate(asked), TEMPERATURES, SEEDS):
        if temperature or seed == SEEDS[0]:
            yield prompt, Sampling(temperature, seed=seed), None
            if i % 5 == 0:
                yield prompt, Sampling(temperature, seed=seed), Grammar("json_schema", SCHEMA)


def texts(options: Options, asked: Iterable[tuple[str, Sampling, Grammar | None]]) -> list[tuple[tuple[int, ...], str]]:
    """(token ids, text) of every case."""
    engine, found = Engine(load_registry()["demo"], options), []
    for prompt, sampling, grammar in asked:
        most = GRAMMAR_TOKENS if grammar else MAX_TOKENS
        chunks = list(engine.reply([Message("user", prompt)], sampling, most, grammar=grammar))
        found.append((tuple(token for chunk in chunks for token in chunk.tokens), "".join(chunk.text for chunk in chunks)))
    engine.close()
    return found


def main() -> None:
    """Prints the table and a JSON line."""
    parser = argparse.ArgumentParser(description="Prove that drafters change nothing.")
    parser.add_argument("--draws", type=int, default=5_000, help="replies of the toy model per cell")
    parser.add_argument("--prompts", type=int, default=50, help="questions to the bundled pair")
    args = parser.parse_args()
    values = laws(args.draws)
    asked = list(cases(prompts(args.prompts)))
    plain = texts(Options(drafters=()), asked)
    invalid = sum(not follows_schema(text) for (_, text), (_, _, grammar) in zip(plain, asked, strict=True) if grammar)
    rows = [["laws of the toy model", str(len(values)), str(sum(value < FALSE_ALARM / len(values) for value in values)), f"{min(values):.2g}"]]
    for (name, options), k in track(list(product(KINDS.items(), KS)), "texts"):
        ways = Options(drafters=options.drafters, branches=options.branches, fixed_k=k)
        wrong = sum(a != b for a, b in zip(texts(ways, asked), plain, strict=True))
        rows.append([f"{name}, K {'adaptive' if k is None else k}", str(len(asked)), str(wrong), ""])
    rows.append(["JSON by schema", str(sum(grammar is not None for *_, grammar in asked)), str(invalid), ""])
    wrong = sum(int(row[2]) for row in rows)
    total = sum(int(row[1]) for row in rows)
    summary: dict[str, object] = {"cells": total, "mismatches": wrong, "smallest p": min(values)}
    report("never different", ["cells", "tried", "mismatches", "smallest p"], rows, summary)
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
