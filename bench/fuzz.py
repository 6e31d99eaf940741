"""Mutated GGUF headers and registries, and what fuzzed.py has, against their readers: `python -m bench.fuzz [N]
[READER]`, a million of each by default, which takes hours.

A reader may refuse with its own error and nothing else; a thousand inputs that take longer than LIMIT end the run with
a traceback.
"""

from __future__ import annotations

import faulthandler
import io
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from bench.fuzzed import READERS
from bench.timing import report
from runtime.core.errors import ModelError, RegistryError, SlipstreamError
from runtime.engine import chat_template
from runtime.models.cache_layout import HALVES, USUAL_CACHE, CacheSpec, cache_bytes
from runtime.models.facts import ModelFacts
from runtime.models.header import parse_header
from runtime.models.hub import fetch
from runtime.models.registry import parse_registry
from tests.support.header import sample
from tests.support.hub_client import ask_once

LIMIT = 300.0  # seconds; eight are usual
SEED = 11
FILE = Path("models.toml")  # what errors are to name; nothing is written
EXTREMES = (
    0,
    1,
    2,
    7,
    8,
    9,
    255,
    2**15,
    2**16,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**32,
    2**40,
    2**61,
    2**63 - 1,
    2**63,
    2**64 - 1,
)
WORDS = (
    "[",
    "]",
    "=",
    "pairs",
    "'",
    '"',
    "\n",
    "target",
    "draft",
    "drafters",
    "true",
    "1e999",
    "nan",
    "{",
    "}",
    ",",
    "\\u0000",
    "#",
    ".",
    "[[",
    "9" * 30,
)
TOML = (
    "[pairs.a]\ntarget = 'x.gguf'\ndraft = 'hf:o/r:y.gguf'\ndrafters = ['model', 'ngram']\ncontext = 4096\n"
    "temperature = 0.5\nexact = true\n[pairs.b]\ntarget = 'z.gguf'\nexit_layer = 4\n"
)
LINES = (
    "context = 99\n", "context = 0\n", "temperature = 1\n", "temperature = nan\n", "exact = false\n", "drafters = []\n",
    "drafters = [1]\n",
    "drafters = ['suffix', 'grammar']\n", "licence = 'x'\n", "size = 12\n", "size = 1_000.5\n", "draft = 3\n",
    "draft = ''\n", "top_k = 5\n",
    "top_p = 1e-1\n", "min_p = inf\n", "target = 'hf:'\n", "target = '../..'\n", "[pairs.c]\n", "[pairs.'']\n",
    "[pairs]\n",
    "description = \"\"\"\n", "\n",
)  # fmt: skip


def mutate(data: bytes, rng: random.Random) -> bytes:
    """A few changes: bytes, integers, cuts, repetitions."""
    found = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4, 16))):
        at, kind = rng.randrange(len(found)), rng.randrange(5)
        if kind == 0:
            found[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            found[at : at + 8] = rng.choice(EXTREMES).to_bytes(8, "little")
        elif kind == 2:
            found[at : at + 4] = (rng.choice(EXTREMES) % 2**32).to_bytes(4, "little")
        elif kind == 3:
            del found[at : at + rng.choice((1, 8, 64, len(found)))]
        else:
            found[at:at] = found[at : at + rng.randrange(1, 64)]
        found = found or bytearray(b"G")
    return bytes(found)


def refused(error: SlipstreamError, file: str) -> str:
    """In one line that names the file."""
    assert file in str(error)
    assert str(error).isprintable()
    return "refused"


def read_header(data: bytes, rng: random.Random) -> str:
    """What became of one header; its size may be claimed to be larger than it is."""
    size = len(data) + rng.choice((0, 0, 0, 0, 1, 2**40))
    try:
        facts = ModelFacts(parse_header(io.BytesIO(data), "x.gguf", size))
    except ModelError as error:
        return refused(error, "x.gguf")
    assert facts.bits >= 0
    assert min(cache_bytes(facts, CacheSpec(4096, types)) for types in (USUAL_CACHE, HALVES)) >= 0
    assert isinstance(
        (facts.takes_tools, facts.fills_gaps, facts.n_bytes_per_token, facts.kinds, facts.exit_layer), tuple
    )
    return "read"


def registry(rng: random.Random) -> bytes:
    """A registry with a few changes: of lines, of words, of bytes."""
    kind, found = rng.random(), TOML
    for _ in range(rng.choice((1, 1, 2, 4))):
        if kind < 0.5:
            lines = found.splitlines(keepends=True)
            at = rng.randrange(len(lines) + 1)
            lines[at : at + rng.choice((0, 1, 1))] = rng.choices(LINES, k=rng.choice((0, 1, 1, 2)))
            found = "".join(lines)
        else:
            at = rng.randrange(len(found) + 1)
            found = found[:at] + rng.choice(WORDS) + found[at + rng.choice((0, 1, 1, 5, 20)) :]
    return found.encode() if kind < 0.9 else mutate(found.encode(), rng)


def read_registry(rng: random.Random) -> str:
    """What became of one registry, which lies over another now and then."""
    texts = [(FILE, TOML.encode())] * (rng.random() < 0.1) + [(FILE, registry(rng))]
    try:
        parse_registry(texts)
    except RegistryError as error:
        return refused(error, str(FILE))
    return "read"


def fuzz(read: Callable[[random.Random], str], n: int, seed: int = SEED) -> tuple[Counter[str], float]:
    """What became of n inputs, and the seconds of the slowest. Anything but a refusal is raised."""
    rng, outcomes, slowest = random.Random(seed), Counter[str](), 0.0
    for i in range(n):
        if i % 1000 == 0:
            faulthandler.dump_traceback_later(LIMIT, exit=True)
        began = time.perf_counter()
        outcomes[read(rng)] += 1
        slowest = max(slowest, time.perf_counter() - began)
    faulthandler.cancel_dump_traceback_later()
    return outcomes, slowest


def main() -> None:
    """Prints what became of all."""
    n, whole = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000, sample()
    readers = {"GGUF header": lambda rng: read_header(mutate(whole, rng), rng), "registry": read_registry} | READERS
    chat_template.SECONDS, fetch.PAUSE = 0.5, 0.0
    ask_once()  # the same answer would come again
    results = {name: fuzz(readers[name], n) for name in sys.argv[2:] or readers}
    rows = [
        [name, f"{outcomes['read']:,}", f"{outcomes['refused']:,}", f"{1e3 * slowest:.1f}"]
        for name, (outcomes, slowest) in results.items()
    ]
    report(
        "fuzz",
        ["reader", "read", "refused", "slowest, ms"],
        rows,
        {name: dict(outcomes) for name, (outcomes, _) in results.items()},
    )


if __name__ == "__main__":
    main()
