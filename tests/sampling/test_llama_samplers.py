"""Rare samplers against llama.cpp's own, on random logits and histories: the same tokens, the same probabilities."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator, Sequence
from typing import Any

import llama_cpp.llama_cpp as lib
import numpy as np
import pytest

from runtime.backends.model import LlamaModel
from runtime.core.draft import Logits
from runtime.core.rare_sampling import USUAL, RareSampling
from runtime.models.registry import bundled
from runtime.sampling.dry import NO_BREAKERS, Breakers, Dry, SpelledTokens, breakers_of
from runtime.sampling.sampler import Sampler
from runtime.sampling.settings import sampling_of
from tests.support.llama_samplers import applied, dry

SIZES = (5, 100, 1500, 32_000)
OFF = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
MAKERS = {
    "penalties": lambda v, n: lib.llama_sampler_init_penalties(
        n, v["penalty_last_n"], v["repetition_penalty"], v["frequency_penalty"], v["presence_penalty"]
    ),
    "top_n_sigma": lambda v, n: lib.llama_sampler_init_top_n_sigma(v["top_n_sigma"]),
    "top_k": lambda v, n: lib.llama_sampler_init_top_k(v["top_k"]),
    "typ_p": lambda v, n: lib.llama_sampler_init_typical(v["typical_p"], 0),
    "top_p": lambda v, n: lib.llama_sampler_init_top_p(v["top_p"], 0),
    "min_p": lambda v, n: lib.llama_sampler_init_min_p(v["min_p"], 0),
    "xtc": lambda v, n: lib.llama_sampler_init_xtc(v["xtc_probability"], v["xtc_threshold"], 0, 1),
    "temperature": lambda v, n: lib.llama_sampler_init_temp_ext(
        v["temperature"], v["dynatemp_range"], v["dynatemp_exponent"]
    ),
}
SETTINGS: dict[str, dict[str, Any]] = {
    "top_n_sigma": {"top_n_sigma": 1.0},
    "typ_p": {"typical_p": 0.7},
    "xtc": {"xtc_probability": 1.0, "xtc_threshold": 0.08},
    "temperature": {"temperature": 0.8, "dynatemp_range": 0.5, "dynatemp_exponent": 1.3},
    "penalties": {
        "repetition_penalty": 1.3, "frequency_penalty": 0.2, "presence_penalty": 0.1, "penalty_last_n": 20,
        "samplers": ["penalties"],
    },
}  # fmt: skip
ORDERS = [
    ["top_k", "temperature", "typ_p", "xtc"],
    ["temperature", "xtc", "top_p", "top_k"],
    ["min_p", "penalties", "top_p", "temperature", "xtc"],
    ["xtc", "typ_p", "top_k", "penalties"],
    ["top_k", "top_k", "top_n_sigma", "min_p", "temperature"],
    [],
]
ALL = {
    "temperature": 0.7, "dynatemp_range": 0.4, "top_k": 30, "top_p": 0.9, "min_p": 0.03, "typical_p": 0.8,
    "xtc_probability": 1.0, "xtc_threshold": 0.1, "top_n_sigma": 2.5, "repetition_penalty": 1.2,
    "penalty_last_n": 30,
}  # fmt: skip


def rows(sizes: Sequence[int] = SIZES) -> Iterator[tuple[Logits, list[int]]]:
    """Yield random logits [n_vocab] with a history of tokens among the likely ones."""
    for seed, n_vocab in enumerate(sizes * 3):
        random = np.random.default_rng(seed)
        logits = (random.normal(size=n_vocab) * random.uniform(0.5, 4)).astype(np.float32)
        likely = np.argsort(-logits)[:12]
        yield logits, random.choice(likely, size=40).tolist()


def ours(
    values: dict[str, Any], logits: Logits, history: Sequence[int], breakers: Breakers = NO_BREAKERS
) -> dict[int, float]:
    sampler = Sampler(sampling_of(OFF | values, seed=3), breakers=breakers)
    sampler.begin(np.array(history, dtype=np.int32), 0)
    given = sampler.distribution(logits)
    return dict(zip(given.ids.tolist(), given.probs.tolist(), strict=True))


def theirs(values: dict[str, Any], order: Sequence[str], logits: Logits, history: Sequence[int]) -> dict[int, float]:
    usual = {"frequency_penalty": 0.0, "presence_penalty": 0.0, "repetition_penalty": 1.0, "penalty_last_n": 64}
    settings = usual | {name: getattr(USUAL, name) for name in USUAL.__slots__} | OFF | values
    return applied([MAKERS[name](settings, len(logits)) for name in order], logits, history)


def assert_same(one: dict[int, float], other: dict[int, float]) -> None:
    assert {token for token, share in one.items() if share > 1e-9} == {t for t, p in other.items() if p > 1e-9}
    for token, share in other.items():
        assert one.get(token, 0.0) == pytest.approx(share, abs=1e-5)


@pytest.mark.parametrize("name", SETTINGS)
def test_each_sampler_alone_is_llama_cpps(name: str) -> None:
    sizes = SIZES[:3] if name in ("typ_p", "temperature") else SIZES  # llama.cpp sums with 32 bits
    for logits, history in rows(sizes):
        assert_same(ours(SETTINGS[name], logits, history), theirs(SETTINGS[name], [name], logits, history))


@pytest.mark.parametrize("order", ORDERS, ids=",".join)
def test_samplers_are_applied_in_the_given_order(order: list[str]) -> None:
    for logits, history in rows():
        assert_same(ours(ALL | {"samplers": order}, logits, history), theirs(ALL, order, logits, history))


def test_the_usual_order_with_any_of_them_is_llama_cpps() -> None:
    order = ["penalties", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature"]
    values = ALL | {"top_n_sigma": -1.0}
    for logits, history in rows():
        assert_same(ours(values, logits, history), theirs(values, order, logits, history))


def test_mirostat_keeps_to_its_surprise_as_llama_cpps_does() -> None:
    """llama.cpp's state depends on its own draws, so its draws are ours, token by token."""
    random = np.random.default_rng(4)
    sampler = Sampler(
        sampling_of({"mirostat": 2, "mirostat_tau": 3.0, "mirostat_eta": 0.3, "temperature": 0.9}, seed=1)
    )
    reply, limit = [7], 6.0
    for _ in range(30):
        sampler.begin(np.array(reply, dtype=np.int32), len(reply) - 1)
        logits = (random.normal(size=500) * 2).astype(np.float32)
        temperature, cut = lib.llama_sampler_init_temp(0.9), lib.llama_sampler_init_mirostat_v2(1, limit / 2, 0.3)
        expected = applied([temperature, cut], logits)  # begins at twice the wanted surprise
        given = sampler.distribution(logits)
        assert_same(dict(zip(given.ids.tolist(), given.probs.tolist(), strict=True)), expected)
        reply.append(sampler.choose(logits))
        limit -= 0.3 * (-np.log2(expected[reply[-1]]) - 3.0)
    assert limit != 6.0


@pytest.fixture(scope="module")
def demo() -> Iterator[LlamaModel]:
    model = LlamaModel(bundled("demo/target.gguf"))
    yield model
    model.close()


@pytest.mark.parametrize(
    ("multiplier", "base", "allowed", "last_n", "breakers"),
    [
        (0.8, 1.75, 2, 64, ["\n", ":", '"', "*"]),
        (1.5, 1.0, 1, 30, []),
        (0.3, 3.0, 4, 500, ["the", "return self", " of a", "):\n"]),
        (2.0, 1.2, 0, 200, ["e"]),
    ],
)
def test_dry_is_llama_cpps(
    demo: LlamaModel, multiplier: float, base: float, allowed: int, last_n: int, breakers: list[str]
) -> None:
    vocab = demo.vocab
    values = {
        "dry_multiplier": multiplier, "dry_base": base, "dry_allowed_length": allowed, "dry_penalty_last_n": last_n,
        "samplers": ["dry"],
    }  # fmt: skip
    found = vocab.breakers(tuple(breakers))
    text = vocab.encode(
        'def join(a, b):\n    """Return the sum of a and b."""\n    return self.sum(a) * "x: y"\n', special=False
    )
    n_changed = 0
    for seed in range(25):
        random = np.random.default_rng(seed)
        logits = (random.normal(size=vocab.n_vocab) * 2).astype(np.float32)
        pieces = [text[i : i + 9] for i in random.integers(0, len(text), size=seed * 2)] + [text[:seed]]
        history = [token for piece in pieces for token in piece]
        expected = applied([dry(vocab.handle, multiplier, base, allowed, last_n, breakers)], logits, history)
        assert_same(ours(values, logits, history, found), expected)
        n_changed += expected != applied([], logits)
    assert n_changed > 3


def test_breakers_are_tokens_with_them_and_tokens_that_begin_them() -> None:
    pieces = [b"", b"a:b", b"re", b"turn", b" re", b"x"]
    found = breakers_of((":", "return"), SpelledTokens(pieces), lambda text: [100 + len(text)])
    assert found == {1: [()], 2: [(104,)], 4: [(104,)]}


def test_many_long_breakers_and_endless_repetitions_take_little() -> None:
    """A request may name 64 of 40 bytes, and a context may repeat one token throughout."""
    pieces = [bytes([97 + i % 26]) * (1 + i % 30) for i in range(20_000)]
    texts = [chr(97 + i % 26) * 38 + str(i) for i in range(64)]
    spelled = SpelledTokens(pieces)
    found = breakers_of(texts, spelled, lambda text: [len(text)])
    assert {*spelled.containing(b"aa")} == {i for i, piece in enumerate(pieces) if b"aa" in piece}
    assert sorted(spelled.ending_with(b"bb")) == [i for i, piece in enumerate(pieces) if piece.endswith(b"bb")]
    assert len(found) == len(pieces)
    rare = RareSampling(dry_multiplier=0.8, dry_base=1.0001, dry_penalty_last_n=-1)
    logits = np.zeros(8, dtype=np.float32)
    tracemalloc.start()  # which sees NumPy's arrays
    try:
        Dry(rare, NO_BREAKERS).penalise(logits, np.zeros(30_000, dtype=np.int32))
        assert tracemalloc.get_traced_memory()[1] < 128 << 20
    finally:
        tracemalloc.stop()
    assert logits[0] < -0.8
