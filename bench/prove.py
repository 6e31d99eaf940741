"""Long test that drafting changes no output.

Usage: `python -m bench.prove`, or `make prove`. Exit code 1 on a mismatch. Distributions on the toy model: each rule,
drafter and K against the exact distribution. Texts on the bundled pair: prompts, seeds, temperatures, drafters and Ks
against plain decode, token for token, also of two to eight concurrent replies that start and are cancelled at random;
heads have random weights. Texts of tiny models with drafting layers of their own (MTP), as token ids. Grammars against
a validator. Prints one table: cells tried, mismatches, smallest p-value.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from random import Random

import numpy as np
from rich.progress import track

from bench.instruments.architectures.writer import write_drafting
from bench.instruments.concurrent_replies import (
    KINDS,
    MAX_TOKENS,
    OTHER_WORDS,
    PLAIN,
    THREADS,
    Case,
    Collected,
    Reply,
    alone,
    concurrently,
    n_different,
    no_past,
    opened,
    temporary,
    texts,
)
from bench.instruments.laws import DRAFTERS, count, exact_law, least_draws, p_value
from bench.instruments.texts import SCHEMA, follows_schema
from bench.instruments.timing import report
from demo.conversations import QUESTIONS
from demo.corpus import load
from runtime.core.errors import SettingsError
from runtime.engine import Grammar, Ids, Options, Sampling
from runtime.engine.loaded import LoadedEngine
from runtime.models.registry import Pair

TEMPERATURES, SEEDS = (0.0, 0.7, 1.2), (1, 2, 3, 4)
KS = (1, 3, 7, None)  # None: adaptive
NOT_HERE = "cannot be had here"
# Families of tiny models with a drafting layer; the first two also with concurrent replies
MTP = "qwen35mtp", "glm4moe", "qwen35moemtp", "deepseek2mtp", "nemotron_h_moe_mtp", "step35", "mimo2", "bailingmoe3"
N_IDS, FIRST_ID, LAST_ID = 24, 300, 500  # number and range of the ids in their prompts
CONCURRENT = (  # concurrent replies, their drafters, and K
    (2, "none", None), (2, "all", None), (3, "suffix", None), (3, "eagle", None), (3, "dflash", None), (3, "eagle", 3),
    (3, "dflash", 3), (3, "dspark", 3), (3, "medusa", 3), (3, "hydra", 3), (3, "eagle1", 3), (4, "none", None),
    (4, "model", None), (5, "ngram", None), (6, "lookahead", None), (7, "layerskip", None), (8, "none", None),
    (8, "all", None), (8, "eagle", 3), (3, OTHER_WORDS, 3),
)  # fmt: skip
MTP_CONCURRENT = (3, None), (3, 3), (8, 3)  # concurrent replies and K for a target's own layers
GREEDY = Sampling(0.0, seed=SEEDS[0])
FALSE_ALARM = 1e-3  # probability that a right rule fails in any of the cells


def laws(n_draws: int) -> list[float]:
    """Return the p-value of each rule, drafter and K."""
    cells = list(product(DRAFTERS, range(9), (True, False)))
    return [p_value(count(name, k, n_draws, is_coupled), exact_law()) for name, k, is_coupled in cells]


def prompts(n: int) -> list[str]:
    """Return `n` questions over the whole corpus, in all phrasings."""
    entries = load(Path(__file__).parent.parent / "demo" / "corpus.jsonl")
    return [
        QUESTIONS[i % len(QUESTIONS)].format(entry.name) for i, entry in enumerate(entries[:: len(entries) // n][:n])
    ]


def cases(asked: list[str]) -> Iterator[Case]:
    """Yield every prompt, temperature and seed (temperature 0 once), each fifth prompt also under a grammar."""
    for (i, prompt), temperature, seed in product(enumerate(asked), TEMPERATURES, SEEDS):
        if temperature or seed == SEEDS[0]:
            yield prompt, Sampling(temperature, seed=seed), None
            if i % 5 == 0:
                yield prompt, Sampling(temperature, seed=seed), Grammar("json_schema", SCHEMA)


@dataclass(frozen=True, slots=True)
class Proof:
    """Plain decode's replies to every case, as the reference. Sent to processes."""

    asked: list[Case]
    plain: list[Reply]

    @classmethod
    def of(cls, n_prompts: int) -> Proof:
        """Generate the replies."""
        asked = list(cases(prompts(n_prompts)))
        return cls(asked, texts(PLAIN, asked, {}))

    def row(self, name: str, k: int | None) -> list[str]:
        """Return the row of a kind of drafting at that K. The prediction is the greedy reply."""
        pairs = zip(self.asked, self.plain, strict=True)
        expected = {
            prompt: reply.text for (prompt, sampling, grammar), reply in pairs if sampling == GREEDY and not grammar
        }
        title = f"{name}, K {'adaptive' if k is None else k}"
        try:
            with no_past():
                found = texts(replace(KINDS[name], fixed_k=k), self.asked, expected, name)
        except SettingsError:  # such as early exit on a GPU
            return [title, "0", "0", NOT_HERE, "0"]
        wrong = sum((a.tokens, a.text) != (b.tokens, b.text) for a, b in zip(found, self.plain, strict=True))
        return [title, str(len(found)), str(wrong), "", str(sum(reply.n_guessed for reply in found))]

    def concurrent_row(self, most: int, name: str, k: int | None) -> list[str]:
        """Return the row of up to `most` concurrent replies, each compared as far as it was generated."""
        whole, title = [reply.tokens[:MAX_TOKENS] for reply in self.plain], concurrent_title(name, most, k)
        try:
            with no_past():
                engine = opened(replace(KINDS.get(name, PLAIN), slots=most + 1, fixed_k=k), name)
                found = concurrently(engine, self.asked, MAX_TOKENS, most, seed=most)
                engine.close()
        except SettingsError:
            return [title, "0", "0", NOT_HERE, ""]
        return [title, str(len(found)), str(n_different(found, whole)), "", n_guessed(found)]

    def form_row(self) -> list[str]:
        """Return the row of the replies under a grammar, checked against its schema."""
        forms = [reply for reply, (_, _, grammar) in zip(self.plain, self.asked, strict=True) if grammar]
        return ["JSON by schema", str(len(forms)), str(sum(not follows_schema(reply.text) for reply in forms)), "", ""]


def concurrent_title(name: str, most: int, k: int | None) -> str:
    """Return the title of a row of concurrent replies."""
    return f"{name}, {most} at once" + ("" if k is None else f", K {k}")


def n_guessed(found: Mapping[int, Collected]) -> str:
    """Return the number of drafted tokens of all replies."""
    return str(sum(told.n_guessed for told in found.values()))


def mtp_row(family: str, k: int | None, n_prompts: int) -> list[str]:
    """Return the row of drafts by a tiny model's own layers, against its plain decode."""
    pair, reply = Pair("own layers", write_drafting(family, Path(temporary().name))), list[list[tuple[int, ...]]]()
    n_guessed, is_exact = 0, True
    for drafters in ((), ("mtp",)):
        engine = LoadedEngine(pair, Options(512, drafters, fixed_k=k if drafters else None, threads=THREADS, fast=True))
        reply.append([])
        for ids, sampling in own_layers_cases(n_prompts):
            chunks = list(engine.reply(ids, sampling, MAX_TOKENS))
            reply[-1].append(tuple(token for chunk in chunks for token in chunk.tokens))
            n_guessed += sum(sum(chunk.drafted) for chunk in chunks)
        is_exact = engine.facts.exactness.is_exact
        engine.close()
    wrong = sum(a != b for a, b in zip(*reply, strict=True))
    title = f"mtp of {family}, K {'adaptive' if k is None else k}"
    return [title, str(len(reply[0])), *counted(wrong, is_exact), str(n_guessed)]


def counted(wrong: int, is_exact: bool) -> tuple[str, str]:
    """Return the mismatches, and those that `--fast` allows: without exact widths the text may differ."""
    return (str(wrong), "") if is_exact else ("0", f"--fast: {wrong}")


def mtp_concurrent_row(family: str, most: int, k: int | None, n_prompts: int) -> list[str]:
    """Return the same row for concurrent replies, each compared as far as it was generated."""
    pair = Pair("own layers", write_drafting(family, Path(temporary().name)))
    asked: list[Case] = [(ids, sampling, None) for ids, sampling in own_layers_cases(n_prompts)]
    options = Options(512, (), threads=THREADS, slots=most + 1, fast=True)
    engine = LoadedEngine(pair, options)
    plain = alone(engine, asked, MAX_TOKENS)
    engine.close()
    engine = LoadedEngine(pair, replace(options, drafters=("mtp",), fixed_k=k))
    found = concurrently(engine, asked, MAX_TOKENS, most, seed=most)
    is_exact = engine.facts.exactness.is_exact
    engine.close()
    title = concurrent_title(f"mtp of {family}", most, k)
    return [title, str(len(found)), *counted(n_different(found, plain), is_exact), n_guessed(found)]


def own_layers_cases(n_prompts: int) -> Iterator[tuple[Ids, Sampling]]:
    """Yield every prompt of random ids, temperature and seed (temperature 0 once)."""
    for i, temperature, seed in product(range(n_prompts), TEMPERATURES, SEEDS):
        if temperature or seed == SEEDS[0]:
            ids = np.random.default_rng(i).integers(FIRST_ID, LAST_ID, N_IDS).tolist()
            yield Ids(tuple(ids)), Sampling(temperature, seed=seed)


def main() -> None:
    """Print the table and a JSON line."""
    parser = argparse.ArgumentParser(description="Prove that drafters change nothing.")
    parser.add_argument("--draws", type=int, default=5_000, help="replies of the toy model per cell")
    parser.add_argument("--prompts", type=int, default=50, help="questions to the bundled pair")
    parser.add_argument("--ways", type=int, default=100, help="of drafting, at most; those are by chance")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes, of a thread each")
    args = parser.parse_args()
    if args.draws < least_draws():
        parser.error(f"--draws must be at least {least_draws()}: from fewer replies no law can be told from another")
    proof = Proof.of(args.prompts)
    with ProcessPoolExecutor(args.jobs, get_context("spawn")) as pool:
        proving = pool.submit(laws, args.draws)
        tried = [partial(proof.row, name, k) for name, k in product(KINDS, KS)]
        tried += [partial(proof.concurrent_row, *each) for each in CONCURRENT]
        tried += [partial(mtp_row, family, k, args.prompts) for family, k in product(MTP, KS)]
        tried += [
            partial(mtp_concurrent_row, family, most, k, args.prompts)
            for family, (most, k) in product(MTP[:2], MTP_CONCURRENT)
        ]
        ways = [pool.submit(each) for each in Random(0).sample(tried, min(args.ways, len(tried)))]
        rows = [way.result() for way in track(ways, "texts")]
        values = proving.result()
    rows.append(proof.form_row())
    n_wrong = sum(value < FALSE_ALARM / len(values) for value in values)
    rows.insert(0, ["laws of the toy model", str(len(values)), str(n_wrong), f"{min(values):.2g}", ""])
    wrong = sum(int(row[2]) for row in rows)
    total = sum(int(row[1]) for row in rows)
    summary: dict[str, object] = {"cells": total, "mismatches": wrong, "smallest p": min(values)}
    report("never different", ["cells", "tried", "mismatches", "smallest p", "tokens guessed"], rows, summary)
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
