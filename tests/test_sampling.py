"""The pipeline against the textbook definition, and the noise behind a seed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.draft import Logits
from runtime.errors import SettingsError
from runtime.sampling import Sampler, Sampling, distribution, gumbel, top_ids


def by_the_book(logits: Logits, s: Sampling) -> dict[int, float]:
    """Temperature, top-k, top-p, min-p with full sorts."""
    x = logits.astype(np.float64) / s.temperature
    order = sorted(range(len(x)), key=lambda i: -x[i])[: s.top_k or len(x)]
    probs = {i: np.exp(x[i] - x.max()) for i in order}
    total = sum(probs.values())
    kept, mass = {}, 0.0
    for i in order:
        kept[i] = probs[i] / total
        mass += kept[i]
        if s.top_p < 1 and mass >= s.top_p:
            break
    kept = {i: p for i, p in kept.items() if p >= s.min_p * max(kept.values())}
    return {i: p / sum(kept.values()) for i, p in kept.items()}


@settings(max_examples=200, deadline=None)
@given(
    n=st.integers(2, 2000), scale=st.floats(0.1, 8), seed=st.integers(0, 2**32), top_k=st.sampled_from([0, 1, 5, 40]),
    top_p=st.sampled_from([1.0, 0.95, 0.5, 0.01]), min_p=st.sampled_from([0.0, 0.05, 0.5]), temperature=st.sampled_from([0.2, 1.0, 3.0]),
)  # fmt: skip
def test_the_pipeline_is_the_textbooks(n: int, scale: float, seed: int, top_k: int, top_p: float, min_p: float, temperature: float) -> None:
    logits = (np.random.default_rng(seed).normal(size=n) * scale).astype(np.float32)
    sampling = Sampling(temperature, top_k, top_p, min_p)
    ours, book = distribution(logits, sampling), by_the_book(logits, sampling)
    assert ours.ids.tolist() == sorted(book)
    np.testing.assert_allclose(ours.probs, [book[int(i)] for i in ours.ids], rtol=1e-5)
    assert ours.probs.sum() == pytest.approx(1)


def test_the_largest_are_found_when_they_stand_together() -> None:
    logits = np.zeros(10_000, dtype=np.float32)
    logits[700:760] = np.arange(60)
    assert top_ids(logits, 40).tolist() == list(range(720, 760))


def test_noise_depends_on_seed_position_and_token_alone() -> None:
    ids = np.array([3, 9, 100_000])
    noise = gumbel(1, 2, ids)
    assert (gumbel(1, 2, ids[::-1])[::-1] == noise).all()
    assert gumbel(1, 2, np.array([9]))[0] == noise[1]
    assert not np.isclose(gumbel(1, 3, ids), noise).any()
    assert not np.isclose(gumbel(2, 2, ids), noise).any()


def test_noise_is_gumbels() -> None:
    noise = np.sort(np.concatenate([gumbel(seed, 5, np.arange(2000)) for seed in range(50)]))
    law = np.exp(-np.exp(-noise))
    empirical = (np.arange(len(noise)) + 0.5) / len(noise)
    assert np.abs(law - empirical).max() < 2.5 / len(noise) ** 0.5  # Kolmogorov-Smirnov, false alarm below 1e-5


def test_greedy_takes_the_first_of_the_likeliest() -> None:
    assert Sampler(Sampling(temperature=0)).choose(np.array([1, 5, 5, 2], dtype=np.float32), 0) == 1


def test_of_gives_zero_for_what_was_cut() -> None:
    given_ = distribution(np.array([5, 1, 4, 0], dtype=np.float32), Sampling(1.0, top_k=2, top_p=1.0, min_p=0.0))
    assert given_.of(1) == given_.of(3) == given_.of(99) == 0
    assert given_.of(0) + given_.of(2) == pytest.approx(1)


@pytest.mark.parametrize(
    ("field", "value"),
    [("temperature", -0.1), ("temperature", float("nan")), ("top_k", -1), ("top_p", 0.0), ("top_p", 1.5), ("min_p", 1.0), ("seed", -1), ("seed", 2**64)],
)  # fmt: skip
def test_a_senseless_setting_is_named(field: str, value: float) -> None:
    with pytest.raises(SettingsError, match=field):
        Sampling(**{field: value})  # type: ignore[arg-type]
