"""The long proof that nothing is different: `python -m bench.prove`, or `make prove`. Exit code 1 on a mismatch.

Laws on the toy model: each rule, drafter and K against the exact law. Texts on the bundled pair: prompts, seeds,
temperatures, drafters and Ks against plain decode, token for token, also of two to eight replies at once that come and
are given up by chance; heads have random weights. Texts of tiny models that bring layers of their own to draft with
(MTP), as token ids. Grammars against a validator. One table: cells tried, mismatches,
smallest p-value.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import numpy as np
from rich.progress import track

from bench.instruments.architectures.mtp import write_drafting
from bench.instruments.company import Case, Told, alone, in_company, n_different
from bench.instruments.forms import SCHEMA, follows_schema
from bench.instruments.heads import block_head_for, head_for, write_head
from bench.instruments.laws import DRAFTERS, count, exact_law, p_value
from bench.instruments.timing import report
from demo.conversations import QUESTIONS
from demo.corpus import load
from runtime.core.errors import SettingsError
from runtime.engine import Grammar, Ids, Message, Options, Sampling
from runtime.engine.loaded import LoadedEngine
from runtime.models.registry import Pair, load_registry

TEMPERATURES, SEEDS = (0.0, 0.7, 1.2), (1, 2, 3, 4)
KS = (1, 3, 7, None)  # None: adaptive
NOT_HERE = "cannot be had here"
ALONE = ("model", "eagle", "dflash", "ngram", "layerskip", "lookahead", "suffix", "prediction")
KINDS = {name: Options(drafters=(name,)) for name in ALONE} | {"all": Options(), "tree": Options(branches=2)}
PLAIN = Options(drafters=())
HEADS = {"eagle": head_for, "dflash": block_head_for}
# Families of tiny models that bring a drafting layer; in company, the first two
MTP = "qwen35mtp", "glm4moe", "qwen35moemtp", "deepseek2mtp", "nemotron_h_moe_mtp", "step35", "mimo2", "bailingmoe3"
N_IDS, FIRST_ID, LAST_ID = 24, 300, 500  # of a prompt to those, and which
COMPANIES = (  # replies at once, what drafts for them, and how far
    (2, "none", None), (2, "all", None), (3, "suffix", None), (3, "eagle", None), (3, "dflash", None), (3, "eagle", 3),
    (3, "dflash", 3), (4, "none", None), (4, "model", None), (5, "ngram", None), (6, "lookahead", None),
    (7, "layerskip", None), (8, "none", None), (8, "all", None), (8, "eagle", 3),
)  # fmt: skip
MTP_COMPANIES = (3, None), (3, 3), (8, 3)  # the same of layers of a target's own file
MAX_TOKENS, GRAMMAR_TOKENS = 60, 120
THREADS = 1  # of an engine: there is a process for each core
GREEDY = Sampling(0.0, seed=SEEDS[0])
FALSE_ALARM = 1e-3  # that a right rule is called wrong in any of the cells


def laws(n_draws: int) -> list[float]:
    """The p-value of each rule, drafter and K."""
    cells = list(product(DRAFTERS, range(9), (True, False)))
    return [p_value(count(name, k, n_draws, is_coupled), exact_law()) for name, k, is_coupled in cells]


def prompts(n: int) -> list[str]:
    """Questions over the whole corpus, in all phrasings."""
    entries = load(Path(__file__).parent.parent / "demo" / "corpus.jsonl")
    return [
        QUESTIONS[i % len(QUESTIONS)].format(entry.name) for i, entry in enumerate(entries[:: len(entries) // n][:n])
    ]


def cases(asked: list[str]) -> Iterator[Case]:
    """Every prompt, temperature and seed (temperature 0 once), each fifth prompt also under a grammar."""
    for (i, prompt), temperature, seed in product(enumerate(asked), TEMPERATURES, SEEDS):
        if temperature or seed == SEEDS[0]:
            yield prompt, Sampling(temperature, seed=seed), None
            if i % 5 == 0:
                yield prompt, Sampling(temperature, seed=seed), Grammar("json_schema", SCHEMA)


@dataclass(frozen=True, slots=True)
class Said:
    """A reply, and how much of it was guessed before the target said so."""

    tokens: tuple[int, ...]
    text: str
    n_guessed: int


def opened(options: Options) -> LoadedEngine:
    """The bundled pair; with a head instead of the draft model where that is to draft."""
    pair = load_registry()["demo"]
    if shape_for := next((HEADS[name] for name in options.drafters or () if name in HEADS), None):
        file = Path(temporary().name) / "head.gguf"
        pair = replace(pair, draft=write_head(file, shape_for(pair.target, words=1024)))
    return LoadedEngine(pair, replace(options, threads=THREADS))


@cache
def temporary() -> TemporaryDirectory[str]:
    """A folder that is there as long as the process."""
    return TemporaryDirectory()


def texts(options: Options, asked: Iterable[Case], expected: Mapping[str, str]) -> list[Said]:
    """The reply to every case; `expected` is what the prediction drafter is told, by prompt."""
    engine, found = opened(options), []
    for prompt, sampling, grammar in asked:
        most = GRAMMAR_TOKENS if grammar else MAX_TOKENS
        chunks = list(
            engine.reply(
                [Message("user", prompt)], sampling, most, grammar=grammar, prediction=expected.get(prompt, "")
            )
        )
        tokens = tuple(token for chunk in chunks for token in chunk.tokens)
        found.append(Said(tokens, "".join(chunk.text for chunk in chunks), sum(sum(chunk.drafted) for chunk in chunks)))
    engine.close()
    return found


@contextmanager
def no_past() -> Iterator[None]:
    """Past replies are those of this way alone."""
    with TemporaryDirectory() as folder:
        os.environ["XDG_DATA_HOME"] = folder
        yield


@dataclass(frozen=True, slots=True)
class Proof:
    """Plain decode's replies to every case, for others to be held against. Sent to processes."""

    asked: list[Case]
    plain: list[Said]

    @classmethod
    def of(cls, n_prompts: int) -> Proof:
        """Decodes them."""
        asked = list(cases(prompts(n_prompts)))
        return cls(asked, texts(PLAIN, asked, {}))

    def row(self, name: str, k: int | None) -> list[str]:
        """How a kind of drafting at that K compares. The prediction drafter is told the greedy reply."""
        pairs = zip(self.asked, self.plain, strict=True)
        expected = {
            prompt: said.text for (prompt, sampling, grammar), said in pairs if sampling == GREEDY and not grammar
        }
        title = f"{name}, K {'adaptive' if k is None else k}"
        try:
            with no_past():
                found = texts(replace(KINDS[name], fixed_k=k), self.asked, expected)
        except SettingsError:  # such as early exit on a GPU
            return [title, "0", "0", NOT_HERE, "0"]
        wrong = sum((a.tokens, a.text) != (b.tokens, b.text) for a, b in zip(found, self.plain, strict=True))
        return [
            title,
            str(len(found)),
            str(wrong),
            "",
            str(sum(said.n_guessed for said in found)),
        ]

    def company_row(self, most: int, name: str, k: int | None) -> list[str]:
        """How so many replies at once compare, each as far as it came."""
        whole, title = [said.tokens[:MAX_TOKENS] for said in self.plain], company_title(name, most, k)
        try:
            with no_past():
                engine = opened(replace(KINDS.get(name, PLAIN), slots=most + 1, fixed_k=k))
                found = in_company(engine, self.asked, MAX_TOKENS, most, seed=most)
                engine.close()
        except SettingsError:
            return [title, "0", "0", NOT_HERE, ""]
        return [title, str(len(found)), str(n_different(found, whole)), "", n_guessed(found)]

    def form_row(self) -> list[str]:
        """Whether what was written under a grammar is in its form."""
        forms = [said for said, (_, _, grammar) in zip(self.plain, self.asked, strict=True) if grammar]
        return ["JSON by schema", str(len(forms)), str(sum(not follows_schema(said.text) for said in forms)), "", ""]


def company_title(name: str, most: int, k: int | None) -> str:
    """What so many replies at once are called in the table."""
    return f"{name}, {most} at once" + ("" if k is None else f", K {k}")


def n_guessed(found: Mapping[int, Told]) -> str:
    """Tokens of all replies that were drafted."""
    return str(sum(told.n_guessed for told in found.values()))


def own_layers_row(family: str, k: int | None, n_prompts: int) -> list[str]:
    """How drafts from a tiny model's own layers compare with its plain decode."""
    pair, said = Pair("own layers", write_drafting(family, Path(temporary().name))), list[list[tuple[int, ...]]]()
    n_guessed, is_exact = 0, True
    for drafters in ((), ("mtp",)):
        engine = LoadedEngine(pair, Options(512, drafters, fixed_k=k if drafters else None, threads=THREADS, fast=True))
        said.append([])
        for ids, sampling in own_layers_cases(n_prompts):
            chunks = list(engine.reply(ids, sampling, MAX_TOKENS))
            said[-1].append(tuple(token for chunk in chunks for token in chunk.tokens))
            n_guessed += sum(sum(chunk.drafted) for chunk in chunks)
        is_exact = engine.facts.exactness.is_exact
        engine.close()
    wrong = sum(a != b for a, b in zip(*said, strict=True))
    title = f"mtp of {family}, K {'adaptive' if k is None else k}"
    return [title, str(len(said[0])), *counted(wrong, is_exact), str(n_guessed)]


def counted(wrong: int, is_exact: bool) -> tuple[str, str]:
    """Mismatches, and those that `--fast` allows: of a model whose widths round otherwise, nothing is promised then."""
    return (str(wrong), "") if is_exact else ("0", f"--fast: {wrong}")


def own_layers_company_row(family: str, most: int, k: int | None, n_prompts: int) -> list[str]:
    """The same of so many replies at once, each as far as it came."""
    pair = Pair("own layers", write_drafting(family, Path(temporary().name)))
    asked: list[Case] = [(ids, sampling, None) for ids, sampling in own_layers_cases(n_prompts)]
    options = Options(512, (), threads=THREADS, slots=most + 1, fast=True)
    engine = LoadedEngine(pair, options)
    plain = alone(engine, asked, MAX_TOKENS)
    engine.close()
    engine = LoadedEngine(pair, replace(options, drafters=("mtp",), fixed_k=k))
    found = in_company(engine, asked, MAX_TOKENS, most, seed=most)
    is_exact = engine.facts.exactness.is_exact
    engine.close()
    title = company_title(f"mtp of {family}", most, k)
    return [title, str(len(found)), *counted(n_different(found, plain), is_exact), n_guessed(found)]


def own_layers_cases(n_prompts: int) -> Iterator[tuple[Ids, Sampling]]:
    """Every prompt of made-up ids, temperature and seed (temperature 0 once)."""
    for i, temperature, seed in product(range(n_prompts), TEMPERATURES, SEEDS):
        if temperature or seed == SEEDS[0]:
            ids = np.random.default_rng(i).integers(FIRST_ID, LAST_ID, N_IDS).tolist()
            yield Ids(tuple(ids)), Sampling(temperature, seed=seed)


def main() -> None:
    """Prints the table and a JSON line."""
    parser = argparse.ArgumentParser(description="Prove that drafters change nothing.")
    parser.add_argument("--draws", type=int, default=5_000, help="replies of the toy model per cell")
    parser.add_argument("--prompts", type=int, default=50, help="questions to the bundled pair")
    parser.add_argument("--ways", type=int, default=100, help="of drafting, at most; those are by chance")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes, of a thread each")
    args = parser.parse_args()
    proof = Proof.of(args.prompts)
    with ProcessPoolExecutor(args.jobs, get_context("spawn")) as pool:
        proving = pool.submit(laws, args.draws)
        tried = [partial(proof.row, name, k) for name, k in product(KINDS, KS)]
        tried += [partial(proof.company_row, *each) for each in COMPANIES]
        tried += [partial(own_layers_row, family, k, args.prompts) for family, k in product(MTP, KS)]
        tried += [
            partial(own_layers_company_row, family, most, k, args.prompts)
            for family, (most, k) in product(MTP[:2], MTP_COMPANIES)
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
