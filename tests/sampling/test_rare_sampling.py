"""Rare samplers keep what drafts promise: the text for a seed is plain decode's, and without one the law is exact."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from bench.instruments.laws import DRAFTERS, Before, Law, count, exact_law, generate, make_loop, p_value
from runtime.core.draft import Distribution, Logits
from runtime.core.errors import SettingsError
from runtime.core.rare_sampling import rare_sampling
from runtime.core.sampler_order import ORDER, sampler_order
from runtime.engine import Message, Sampling
from runtime.engine.engine import Ask
from runtime.sampling.masks import LengthMask, together
from runtime.sampling.mirostat import Mirostat
from runtime.sampling.reply_samplers import ReplySamplers
from runtime.sampling.sampler import Sampler
from runtime.sampling.settings import sampling_of
from tests.conftest import OpenEngine
from tests.support.quick import others_slow

N_DRAWS, FALSE_ALARM = 1500, 1e-6
SETTINGS: dict[str, dict[str, Any]] = {
    "dry": {"dry_multiplier": 40.0, "dry_allowed_length": 1, "dry_penalty_last_n": -1, "dry_sequence_breakers": ["?"]},
    "xtc": {"xtc_probability": 0.7, "xtc_threshold": 0.02},
    "top_n_sigma": {"top_n_sigma": 1.2},
    "typical": {"typical_p": 0.7},
    "dynamic temperature": {"dynatemp_range": 0.7},
    "mirostat": {"mirostat": 2, "mirostat_tau": 2.0, "mirostat_eta": 0.3},
    "penalties over all": {"repetition_penalty": 1.3, "penalty_last_n": -1},
    "an order": {"samplers": ["temperature", "xtc", "penalties", "top_k"], "xtc_probability": 0.7, "top_k": 4,
                 "frequency_penalty": 0.3},
    "minimum tokens": {"min_tokens": 40},
    "all": {"dry_multiplier": 0.8, "xtc_probability": 0.5, "top_n_sigma": 2.0, "typical_p": 0.9, "dynatemp_range": 0.5,
            "presence_penalty": 0.2},
}  # fmt: skip
FREE = {"temperature": 2.5, "top_p": 1.0, "min_p": 0.0}
WAYS: list[dict[str, Any]] = [{"drafters": ("ngram",), "fixed_k": 4}, {"drafters": ("model",), "fixed_k": 3}]
PROMPTS = [f"What does {name} do? And what does {name} return?" for name in ("os.path.join", "shutil.copy", "os.walk")]


def toy_reply(values: dict[str, Any], drafter: str, seed: int) -> list[int]:
    loop = make_loop(DRAFTERS[drafter]() if drafter else [], 4)
    return generate(loop, Sampler(sampling_of({"temperature": 1.3} | values, seed=seed)), 60)


@pytest.mark.parametrize("name", SETTINGS)
def test_a_seed_gives_the_same_tokens_with_every_drafter(name: str) -> None:
    for seed in range(4):
        plain = toy_reply(SETTINGS[name], "", seed)
        for drafter in DRAFTERS:
            assert toy_reply(SETTINGS[name], drafter, seed) == plain, drafter


@pytest.mark.parametrize("way", WAYS, ids=["ngram", "model"])
@pytest.mark.parametrize("name", SETTINGS)
def test_the_bundled_pair_says_the_same_with_drafts(open_demo: OpenEngine, name: str, way: dict[str, Any]) -> None:
    n_drafted, n_changed = 0, 0
    for seed, prompt in enumerate(PROMPTS):
        replies = []
        for values, options in ((SETTINGS[name], {"drafters": ()}), (SETTINGS[name], way), ({}, {"drafters": ()})):
            sampling = sampling_of(FREE | {"temperature": 1.6} | values, seed=seed)
            chunks = list(open_demo(**options).reply([Message("user", prompt)], sampling, 48))
            replies.append([token for chunk in chunks for token in chunk.tokens])
            if options is way:
                n_drafted += chunks[-1].stats.draft_n  # type: ignore[union-attr]
        assert replies[0] == replies[1]
        n_changed += replies[0] != replies[2]
    assert n_drafted > 0 or (name, way) == ("dry", WAYS[0])  # which looks for what DRY avoids
    assert n_changed > 0 or name == "minimum tokens"  # where the replies are longer anyway


def heated(row: Logits, kept: NDArray[np.bool_], temperature: float) -> NDArray[np.float64]:
    """Return the probabilities [n] of the kept tokens at a temperature."""
    weights = np.where(kept, np.exp((row.astype(np.float64) - row.max()) / temperature), 0.0)
    return weights / weights.sum()


def xtc_law(row: Logits, before: Before) -> Distribution:
    """One chance in two to exclude all but the last of the tokens from a tenth on, at temperature 2.5 afterwards."""
    everything = np.ones(len(row), dtype=np.bool_)
    probs = heated(row, everything, 1.0)
    above = sorted(np.flatnonzero(probs >= 0.1), key=lambda i: -probs[i])
    kept = everything.copy()
    kept[above[:-1]] = False
    return Distribution(np.arange(len(row)), (heated(row, everything, 2.5) + heated(row, kept, 2.5)) / 2)


def mirostat_law(row: Logits, before: Before) -> Distribution:
    """Tokens within a limit on their surprise, which the surprise of each token before has moved."""
    limit = 2 * 1.2
    for given, token in before:
        limit -= 0.8 * (-np.log2(given.of(token)) - 1.2)
    probs = heated(row, np.ones(len(row), dtype=np.bool_), 2.5)
    kept = (-np.log2(probs) <= limit) | (probs == probs.max())
    return Distribution(np.flatnonzero(kept), probs[kept] / probs[kept].sum())


LAWS: dict[str, tuple[dict[str, Any], Law]] = {
    "xtc": (FREE | {"xtc_probability": 0.5, "xtc_threshold": 0.1}, xtc_law),
    "mirostat": (FREE | {"mirostat": 2, "mirostat_tau": 1.2, "mirostat_eta": 0.8}, mirostat_law),
}


@pytest.mark.parametrize("is_coupled", [True, False], ids=["coupled", "without a seed"])
@pytest.mark.parametrize("drafter", others_slow(["", *DRAFTERS], ["", "poor model", "ngram"]))
@pytest.mark.parametrize("name", LAWS)
def test_the_law_is_the_samplers(name: str, drafter: str, is_coupled: bool) -> None:
    values, law = LAWS[name]
    counts = count(drafter or "ngram", 3 if drafter else 0, N_DRAWS, is_coupled, sampling_of(values))
    assert p_value(counts, exact_law(law)) > FALSE_ALARM


WRONG: dict[str, tuple[type, str, Callable[..., Any]]] = {
    "xtc": (ReplySamplers, "_coin", lambda self, depth: 0.1),
    "mirostat": (Mirostat, "limit", lambda self, path: 2.4),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_coin_without_chance_and_a_limit_that_never_moves_are_caught(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(*WRONG[name])
    values, law = LAWS[name]
    assert p_value(count("ngram", 0, N_DRAWS, True, sampling_of(values)), exact_law(law)) < FALSE_ALARM


def test_coins_are_fair_and_differ_by_place() -> None:
    sampler = Sampler(sampling_of({"xtc_probability": 0.5}, seed=5))
    coins = []
    for position in range(2000):
        sampler.begin(np.zeros(position, dtype=np.int32), position)
        coins.append(sampler._samplers._coin(0))
        assert sampler._samplers._coin(3) != coins[-1]
    assert abs(np.mean(np.array(coins) < 0.5) - 0.5) < 0.05


def test_a_reply_is_no_shorter_than_asked() -> None:
    sampler = Sampler(Sampling(temperature=0), together([LengthMask(3, [1], 4)]))
    row = np.array([0, 5, 2, 1], dtype=np.float32)
    for n, token in ((0, 2), (2, 2), (3, 1)):
        sampler.begin(np.zeros(n, dtype=np.int32), n)
        assert sampler.choose(row) == token
    sampler.begin(np.zeros(1, dtype=np.int32), 1)
    assert [sampler.choose(row, path) for path in ((), (2,), (2, 2))] == [2, 2, 1]


def test_the_bundled_pair_answers_at_least_so_long(open_demo: OpenEngine) -> None:
    def length(values: dict[str, Any]) -> int:
        sampling = sampling_of({"temperature": 0.0} | values)
        reply = open_demo(drafters=()).reply([Message("user", PROMPTS[0])], sampling, 120)
        return sum(len(chunk.tokens) for chunk in reply)

    usual = length({})
    assert usual < 100
    assert length({"min_tokens": usual + 9}) >= usual + 9


def test_at_temperature_0_only_what_changes_logits_counts() -> None:
    row = np.array([1, 5, 4, 2], dtype=np.float32)
    for values in SETTINGS.values():
        if "samplers" not in values and "dynatemp_range" not in values:
            assert Sampler(sampling_of({"temperature": 0.0} | values)).choose(row) == 1
    dry = Sampler(sampling_of({"temperature": 0.0, "dry_multiplier": 5.0}))
    dry.begin(np.array([2, 3, 1, 0, 2, 3], dtype=np.int32), 0)
    assert dry.choose(row) == 2
    assert Sampler(sampling_of({"temperature": 0.0, "samplers": ["temperature"]})).choose(row) == 1
    assert not sampling_of({"temperature": 0.0, "samplers": ["top_k"]}).is_greedy


@pytest.mark.parametrize(
    ("field", "value", "remedy"),
    [("dry_multiplier", -1, "from 0"), ("dry_base", 0.5, "from 1"), ("dry_allowed_length", -1, "0 or more"),
     ("dry_penalty_last_n", -2, "whole context"), ("xtc_probability", 1.5, "from 0"), ("xtc_threshold", "a", "number"),
     ("top_n_sigma", float("nan"), "number"), ("typical_p", 0, "above 0"), ("typical_p", True, "number"),
     ("dynatemp_range", 1e40, "number"), ("mirostat", 1, "Use 2"), ("mirostat", 3, "2, or 0"),
     ("min_tokens", 1.5, "whole"),
     ("mirostat_eta", -0.1, "from 0"), ("dry_sequence_breakers", "x", "list"), ("dry_sequence_breakers", [""], "empty"),
     ("samplers", ["topk", "min_q"], "min_p"), ("samplers", 5, "list"), ("samplers", ["xtc"] * 40, "32"),
     ("xtc_chance", 1, "xtc")],
)  # fmt: skip
def test_a_senseless_value_is_named_with_its_remedy(field: str, value: object, remedy: str) -> None:
    with pytest.raises(SettingsError, match=field) as refused:
        rare_sampling({field: value})
    assert remedy in str(refused.value)


@pytest.mark.parametrize(
    ("given", "order"),
    [("edskypmxt", tuple(ORDER)), ("top_k;top-p;temp", ("top_k", "top_p", "temperature")), ("dry", ("dry",)),
     (["TopK", "typical", "nucleus"], ("top_k", "typ_p", "top_p")), ([], ()), (None, None), (["top_k", "infill"], None),
     ("", ())],
)  # fmt: skip
def test_an_order_is_read_as_llama_cpp_does(given: object, order: tuple[str, ...] | None) -> None:
    assert sampler_order(given) == order


def test_an_interrupted_reply_resumes_with_mirostats_limit(open_demo: OpenEngine) -> None:
    engine = open_demo(drafters=())
    sampling = sampling_of(FREE | SETTINGS["mirostat"] | {"mirostat_eta": 0.9}, seed=3)
    ask = Ask([Message("user", PROMPTS[0])], sampling, 40)
    chunks = [chunk for chunk in engine.answer(ask, lambda: False, lambda *_: None) if chunk.tokens]
    whole = [token for chunk in chunks for token in chunk.tokens]
    first, limit = tuple(whole[:15]), chunks[14].surprise_limit
    assert len(chunks[0].tokens) == 1

    def rest(limit: float | None) -> list[int]:
        resumed = replace(ask, reply_tokens=first, surprise_limit=limit)
        return [token for chunk in engine.answer(resumed, lambda: False, lambda *_: None) for token in chunk.tokens]

    assert rest(limit) == whole[15:]
    assert rest(None) != whole[15:]
