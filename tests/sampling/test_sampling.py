"""The pipeline against the textbook definition, and the noise behind a seed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.core.draft import Logits, Path
from runtime.core.errors import SettingsError
from runtime.core.image_runs import ids_of
from runtime.sampling.logits import Row, distribution, logprobs, nucleus, softmax
from runtime.sampling.noise import gumbel
from runtime.sampling.sampler import Sampler
from runtime.sampling.settings import Sampling


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
    top_p=st.sampled_from([1.0, 0.95, 0.5, 0.01]), min_p=st.sampled_from([0.0, 0.05, 0.5]),
    temperature=st.sampled_from([0.2, 1.0, 3.0]),
)  # fmt: skip
def test_the_pipeline_is_the_textbooks(
    n: int, scale: float, seed: int, top_k: int, top_p: float, min_p: float, temperature: float
) -> None:
    logits = (np.random.default_rng(seed).normal(size=n) * scale).astype(np.float32)
    sampling = Sampling(temperature, top_k, top_p, min_p)
    ours, book = distribution(Row(logits), sampling), by_the_book(logits, sampling)
    assert ours.ids.tolist() == sorted(book)
    np.testing.assert_allclose(ours.probs, [book[int(i)] for i in ours.ids], rtol=1e-5)
    assert ours.probs.sum() == pytest.approx(1)


def test_the_largest_are_found_when_they_stand_together() -> None:
    logits = np.zeros(10_000, dtype=np.float32)
    logits[700:760] = np.arange(60)
    assert Row(logits).top_ids(40).tolist() == list(range(720, 760))


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
    assert Sampler(Sampling(temperature=0)).choose(np.array([1, 5, 5, 2], dtype=np.float32)) == 1


def test_of_gives_zero_for_what_was_cut() -> None:
    given_ = distribution(Row(np.array([5, 1, 4, 0], dtype=np.float32)), Sampling(1.0, top_k=2, top_p=1.0, min_p=0.0))
    assert given_.of(1) == given_.of(3) == given_.of(99) == 0
    assert given_.of(0) + given_.of(2) == pytest.approx(1)


def row(*values: float) -> Logits:
    return np.array(values, dtype=np.float32)


def begun(sampling: Sampling, context: list[int], mask: object = None) -> Sampler:
    sampler = Sampler(sampling, mask)  # type: ignore[arg-type]  # a stand-in
    sampler.begin(np.array(context, dtype=np.int32), 0)
    return sampler


def test_penalties_count_the_context_and_the_tentative_tokens_before_a_row() -> None:
    sampler = begun(Sampling(0, repetition_penalty=2.0, frequency_penalty=0.5, presence_penalty=0.25), [0, 1, 1])
    np.testing.assert_allclose(sampler.adjusted(row(4, -3, 2, 1)), [4 / 2 - 0.75, -3 * 2 - 1.25, 2, 1])
    np.testing.assert_allclose(
        sampler.adjusted(row(4, -3, 2, 1), (2, 0)), [4 / 2 - 1.25, -3 * 2 - 1.25, 2 / 2 - 0.75, 1]
    )


def test_penalties_look_back_no_further_than_they_should() -> None:
    context = [3, 0, 1]
    assert begun(Sampling(0, presence_penalty=1.0, penalty_last_n=2), context).adjusted(row(5, 5, 5, 5)).tolist() == [
        4,
        4,
        5,
        5,
    ]
    assert begun(Sampling(0, presence_penalty=1.0, penalty_last_n=2), context).adjusted(
        row(5, 5, 5, 5), (2,)
    ).tolist() == [5, 4, 4, 5]
    for n, expected in ((-1, [4, 4, 5, 4]), (0, [5, 5, 5, 5])):
        whole_or_off = begun(Sampling(0, presence_penalty=1.0, penalty_last_n=n), context)
        assert whole_or_off.adjusted(row(5, 5, 5, 5)).tolist() == expected


def test_penalties_look_past_images_at_the_text_before_them() -> None:
    context = [2, 3, *ids_of(b"an image", 5).tolist(), 1]
    sampler = begun(Sampling(0, presence_penalty=1.0, penalty_last_n=2), context)
    assert sampler.adjusted(row(5, 5, 5, 5)).tolist() == [5, 4, 5, 4]
    assert sampler.adjusted(row(5, 5, 5, 5), (0,)).tolist() == [4, 4, 5, 5]


class OnlyEven:
    """A mask that allows even tokens, and 1 after a path."""

    def begin(self, reply: np.ndarray) -> None: ...

    def allowed(self, path: Path) -> np.ndarray:
        return np.array([i % 2 == 0 or (i == 1 and bool(path)) for i in range(4)])

    def forced(self) -> Path:
        return ()

    def choice(self, path: Path) -> None: ...


def test_bias_then_mask_then_penalties() -> None:
    sampling = Sampling(0, logit_bias=((1, 10.0), (2, -1.0), (0, float("-inf"))), presence_penalty=1.0)
    got = begun(sampling, [2], OnlyEven()).adjusted(row(1, 2, 3, 4))
    assert got.tolist() == [-np.inf, -np.inf, 1, -np.inf]
    assert begun(sampling, [2], OnlyEven()).choose(row(1, 2, 3, 4), (3,)) == 1


def test_the_row_itself_is_never_changed() -> None:
    logits = row(1, 2, 3, 4)
    begun(Sampling(0, logit_bias=((1, 10.0),), presence_penalty=1.0), [2]).choose(logits)
    assert logits.tolist() == [1, 2, 3, 4]


def test_a_shorter_vocabulary_is_adjusted_as_far_as_it_goes() -> None:
    sampler = begun(Sampling(0, logit_bias=((3, 1.0),), presence_penalty=1.0), [3, 1], OnlyEven())
    assert sampler.adjusted(row(1, 2)).tolist() == [1, -np.inf]


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_confidence_is_the_models_own_and_tells_sure_from_very_sure(temperature: float) -> None:
    logits = np.random.default_rng(2).normal(size=4100).astype(np.float32)
    confidences = []
    for favourite in (12.0, 15.0, 18.0):  # ahead by so much that sampling leaves only it
        logits[4099] = favourite
        pick = Sampler(Sampling(temperature, seed=1)).pick(logits)
        assert pick.token == 4099
        confidences.append(pick.confidence)
        assert pick.confidence >= softmax(logits, 1.0)[4099]
    assert 0.9 < confidences[0] < confidences[1] < confidences[2] < 1


def test_near_ties_are_counted_where_rounding_could_turn_a_choice() -> None:
    sampler = Sampler(Sampling(0), tolerance=0.1)
    for values in ((1, 5, 4.9, 0), (1, 5, 4.7, 0)):
        sampler.choose(row(*values))
    assert sampler.n_near_ties == 1


def test_logprobs_are_the_models_own() -> None:
    (found,) = logprobs(row(1, 2, 3, 4)[None], [1], 2)
    exact = np.log(np.exp([1, 2, 3, 4]) / np.exp([1, 2, 3, 4]).sum())
    assert found.logprob == pytest.approx(exact[1])
    assert [token for token, _ in found.top] == [3, 2]
    assert found.top[0][1] == pytest.approx(exact[3])
    assert logprobs(row(1, 2)[None], [0], 0)[0].top == ()


@pytest.mark.parametrize(
    ("field", "value"),
    [("repetition_penalty", 0.0), ("repetition_penalty", float("nan")), ("frequency_penalty", 1e9), ("presence_penalty",
    float("nan")),
     ("penalty_last_n", -2), ("logit_bias", ((3, float("nan")),)), ("logit_bias", ((3, float("inf")),)),
     ("logit_bias", ((-1, 1.0),)),
     ("temperature", -0.1), ("temperature", float("nan")), ("top_k", -2), ("top_p", 0.0), ("top_p", 1.5),
     ("min_p", 1.0), ("seed", -1), ("seed", 2**64)],
)  # fmt: skip
def test_a_senseless_setting_is_named(field: str, value: object) -> None:
    with pytest.raises(SettingsError, match=field):
        Sampling(**{field: value})  # type: ignore[arg-type]


def test_the_nucleus_ends_with_the_token_by_which_it_reaches_p() -> None:
    probs = np.array([0.125, 0.5, 0.25, 0.125])
    assert nucleus(probs, 0.75).tolist() == [1, 2]
    assert nucleus(probs, 0.76).tolist() == [0, 1, 2]
    assert nucleus(probs, 0.01).tolist() == [1]


@pytest.mark.parametrize("top_p", [1e-6, 0.3, 0.95, 0.9999999])
@pytest.mark.parametrize("spread", [0.0, 0.1, 1.0, 4.0])
def test_the_nucleus_of_many_tokens_is_that_of_all_of_them_sorted(spread: float, top_p: float) -> None:
    logits = (np.random.default_rng(7).normal(size=20_000) * spread).astype(np.float32)
    logits[5::9] = logits[4::9][: len(logits[5::9])]  # some are as likely as others
    probs = softmax(logits, 1.0)
    order = np.argsort(-probs, kind="stable")
    n = int(probs[order].cumsum().searchsorted(top_p - 1e-12)) + 1
    found = nucleus(probs, top_p)
    assert abs(len(found) - n) <= 1  # sums round
    assert found.tolist() == sorted(order[: len(found)].tolist())


@pytest.mark.parametrize("seed", [None, 5])
@pytest.mark.parametrize("temperature", [0.0, 0.01])
def test_a_drafter_guesses_under_what_binds_the_target(seed: int | None, temperature: float) -> None:
    sampler = begun(Sampling(temperature, seed=seed, logit_bias=((2, -9.0),)), [2], OnlyEven())
    assert sampler.pick(row(1, 2, 3, 4)).token == sampler.choose(row(1, 2, 3, 4)) == 0
