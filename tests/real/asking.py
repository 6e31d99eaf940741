"""What public models are asked, and in which ways they are to answer with the same words. Opens nothing itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from app.cli.bench_plan import TEXTS
from bench.instruments.texts import SCHEMA
from bench.instruments.weights import MODELS
from runtime.engine import Engine, Grammar, Message, Prompt, Sampling

LIBRARY, TIDES = TEXTS["library"], TEXTS["tides"]
N_CONTEXT = 2560
# As people run it: on some processors the kernels for Gemma's weights are exact for narrow passes only, unless asked
DEFAULT = "by default"
WAYS: dict[str, dict[str, Any]] = {
    "adaptive": {},
    "ngram": {"drafters": ("ngram",), "fixed_k": 4},
    "model": {"drafters": ("model",), "fixed_k": 2},
    "suffix": {"drafters": ("suffix",), "fixed_k": 4},
    "lookahead": {"drafters": ("lookahead",), "fixed_k": 2},
    "layerskip": {"drafters": ("layerskip",), "fixed_k": 2},
    "grammar": {"drafters": ("grammar",), "fixed_k": 8},
    "prediction": {"drafters": ("prediction",), "fixed_k": 8},
    DEFAULT: {},
}
WAYS = {way: options | {"exact": way != DEFAULT} for way, options in WAYS.items()}
CELLS = [(model, way) for model in MODELS for way in WAYS]
# Where a long context is read as well: everywhere with the model whose layers see a window of it; with the other, which
# reads slowly, in the first two ways
LONG_CELLS = CELLS[: len(WAYS) + 2]
GREEDY, SEEDED = Sampling(temperature=0, seed=7), Sampling(temperature=0.8, seed=7)
QUESTION = "Count from one to thirty in words: one, two, three, four, five, six,"


@dataclass(frozen=True, slots=True)
class Case:
    """A question and how it is answered; `is_raw`: as it is, without a chat template."""

    question: str
    max_tokens: int
    sampling: Sampling
    grammar: Grammar | None = None
    is_raw: bool = False


@dataclass(frozen=True, slots=True)
class Said:
    """A reply."""

    tokens: tuple[int, ...]
    text: str
    prompt_n: int
    drafted: Mapping[str, dict[str, int]]  # drafter -> its tokens, "drafted" and "accepted"


def cases(kind: str, *question: Any, **more: Any) -> dict[str, Case]:
    """The same question greedily and with a seed."""
    return {
        f"{kind}, {name}": Case(*question, sampling=sampling, **more)
        for name, sampling in {"greedy": GREEDY, "seeded": SEEDED}.items()
    }


SHORT = cases("short", QUESTION, 24)
# As long as a draft model needs that reads the text meanwhile, a piece of 32 tokens between two passes
LONG = cases("long", "\n\n".join([TIDES, LIBRARY] * 2 + [TIDES[:300]]), 96, is_raw=True)
FORM = cases("form", "Describe the function sorted.", 100, grammar=Grammar("json_schema", SCHEMA))
CASES = SHORT | LONG | FORM


def prompt(engine: Engine, case: Case) -> Prompt:
    """The question in the form that the model takes."""
    return case.question if case.is_raw or not engine.facts.template else [Message("user", case.question)]


def ask(engine: Engine, case: Case, **more: Any) -> Said:
    """The engine's reply."""
    asked = prompt(engine, case)
    chunks = list(engine.reply(asked, case.sampling, case.max_tokens, grammar=case.grammar, **more))
    stats = chunks[-1].stats
    assert stats is not None
    tokens = tuple(token for chunk in chunks for token in chunk.tokens)
    return Said(tokens, "".join(chunk.text for chunk in chunks), stats.prompt_n, stats.by_drafter)
