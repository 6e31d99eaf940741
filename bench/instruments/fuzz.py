"""Random and mutated GGUF headers and registries for their readers; the other readers are in fuzzed.py.

A reader may only refuse with its own error. A thousand inputs that take longer than LIMIT end the run with a traceback.
"""

from __future__ import annotations

import faulthandler
import io
import random
import struct
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from runtime.core.errors import ModelError, RegistryError, SlipstreamError
from runtime.models.cache_layout import HALVES, USUAL_CACHE, CacheSpec, cache_bytes
from runtime.models.facts import ModelFacts
from runtime.models.header import parse_header
from runtime.models.registry import parse_registry


def text(value: str) -> bytes:
    """Return a string as GGUF stores it."""
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def sample(part: int | None = None) -> bytes:
    """Return a small complete GGUF file with every kind of value."""
    values = [
        ("general.architecture", 8, text("llama")),
        ("general.alignment", 4, struct.pack("<I", 32)),
        ("llama.block_count", 4, struct.pack("<I", 2)),
        ("llama.context_length", 10, struct.pack("<Q", 512)),
        ("llama.attention.head_count", 4, struct.pack("<I", 2)),
        ("llama.attention.head_count_kv", 9, struct.pack("<IQ2i", 5, 2, 1, 1)),
        ("llama.embedding_length", 5, struct.pack("<i", 64)),
        ("llama.rope.freq_base", 6, struct.pack("<f", 1e4)),
        ("tokenizer.ggml.tokens", 9, struct.pack("<IQ", 8, 3) + text("a") + text("<PRE>") + text("<SUF>")),
        ("tokenizer.ggml.scores", 9, struct.pack("<IQ3f", 6, 3, 0, 1, 2)),
        ("tokenizer.ggml.add_bos_token", 7, b"\x01"),
        (
            "tokenizer.chat_template",
            8,
            text("{% for m in messages %}{{ m.content }}{% if tools %}{{ tools }}{% endif %}{% endfor %}"),
        ),
    ]
    if part is not None:
        values.append(("split.no", 2, struct.pack("<H", part)))
    keys = b"".join(text(name) + struct.pack("<I", kind) + data for name, kind, data in values)
    tensors = (
        text("token_embd.weight")
        + struct.pack("<IQQIQ", 2, 64, 3, 8, 0)
        + text("norm.weight")
        + struct.pack("<IQIQ", 1, 64, 0, 224)
    )
    head = b"GGUF" + struct.pack("<IQQ", 3, 2, len(values)) + keys + tensors
    return head + bytes(-len(head) % 32 + 224 + 256)


LIMIT = 300.0  # maximal seconds for a thousand inputs; eight are usual
SEED = 11
FILE = Path("models.toml")  # the name expected in errors; nothing is written
EXTREMES = (
    0, 1, 2, 7, 8, 9, 255, 2**15, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**40, 2**61, 2**63 - 1, 2**63, 2**64 - 1,
)  # fmt: skip
WORDS = (*"[ ] = pairs ' \" target draft drafters true 1e999 nan { } , \\u0000 # . [[".split(), "\n", "9" * 30)
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
    """Return the data with a few changes: bytes, integers, cuts, repetitions."""
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
    """Return the outcome of a refusal, after checking that it is one line that names the file."""
    assert file in str(error)
    assert str(error).isprintable()
    return "refused"


def read_header(data: bytes, rng: random.Random) -> str:
    """Return the outcome for one header; the given size may exceed the real one."""
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
    """Return a registry with a few changes: of lines, of words, of bytes."""
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
    """Return the outcome for one registry, sometimes on top of another one."""
    texts = [(FILE, TOML.encode())] * (rng.random() < 0.1) + [(FILE, registry(rng))]
    try:
        parse_registry(texts)
    except RegistryError as error:
        return refused(error, str(FILE))
    return "read"


def fuzz(read: Callable[[random.Random], str], n: int, seed: int = SEED) -> tuple[Counter[str], float]:
    """Return the outcomes of n inputs, and the seconds of the slowest. Raises any error that is not a refusal."""
    rng, outcomes, slowest = random.Random(seed), Counter[str](), 0.0
    for i in range(n):
        if i % 1000 == 0:
            faulthandler.dump_traceback_later(LIMIT, exit=True)
        began = time.perf_counter()
        outcomes[read(rng)] += 1
        slowest = max(slowest, time.perf_counter() - began)
    faulthandler.cancel_dump_traceback_later()
    return outcomes, slowest
