"""The block rule by exact enumeration: every draft, every outcome of every random number, the whole text's law."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.core.draft import Distribution, Draft, Logits, Path, certain
from runtime.sampling.sampler import Sampler
from runtime.sampling.settings import Sampling
from runtime.speculative.verify import BLOCK, REJECTION, Rule, Verdict
from tests.support.outcomes import ALL, outcomes

N_VOCAB = 3
PENALISED = Sampling(1.0, 0, 1.0, 0.0, repetition_penalty=1.7, presence_penalty=0.4)
CUT = Sampling(0.7, top_k=2, top_p=0.9, min_p=0.0)
Ends = Callable[[Path], bool]  # whether a draft ends after these tokens


def never(path: Path) -> bool:
    return False


@dataclass(frozen=True)
class Models:
    """A target and a draft model whose rows of logits [n_vocab] depend on the whole path."""

    seed: int
    agreement: float = 0.0

    def row(self, path: Path) -> Logits:
        return np.random.default_rng([self.seed, 1, *path]).normal(size=N_VOCAB).astype(np.float32) * 2

    def drafted(self, path: Path) -> Distribution:
        """The draft's distribution; sometimes it excludes tokens, and sometimes all but one."""
        rng = np.random.default_rng([self.seed, 2, *path])
        weights = np.exp(self.agreement * self.row(path) + (1 - self.agreement) * 2 * rng.normal(size=N_VOCAB))
        ids = np.sort(rng.permutation(N_VOCAB)[: rng.choice([1, 2, 3, 3])])
        return Distribution(ids, weights[ids] / weights[ids].sum())

    def drafts(self, k: int, ends: Ends = never, path: Path = ()) -> list[tuple[Draft, float]]:
        """Every chain of up to `k` tokens with its probability."""
        if len(path) == k or ends(path):
            return [(Draft(path, None, tuple(self.drafted(path[:n]) for n in range(len(path)))), 1.0)]
        q = self.drafted(path)
        return [
            (draft, p * rest)
            for token, p in zip(q.ids.tolist(), q.probs.tolist(), strict=True)
            for draft, rest in self.drafts(k, ends, (*path, token))
        ]

    def rows(self, path: Path) -> Logits:
        """The target's rows [1 + n, n_vocab] along a path."""
        return np.stack([self.row(path[:n]) for n in range(len(path) + 1)])


Case = tuple[Draft, Verdict, float]


def cases(models: Models, rule: Rule, k: int, ends: Ends = never, sampling: Sampling = ALL) -> list[Case]:
    """Every draft with every verdict and its probability."""
    return [
        (draft, verdict, p * q)
        for draft, q in models.drafts(k, ends)
        for verdict, p in outcomes(partial(rule.verify, draft, models.rows(draft.tokens)), sampling)
    ]


def text_law(models: Models, n: int, sampling: Sampling, start: Path = ()) -> dict[Path, float]:
    """The target's law of the first `n` tokens that begin with `start`."""
    if len(start) >= n:
        return {start[:n]: 1.0}
    after, found = Sampler(sampling).distribution(models.row(start), start), defaultdict[Path, float](float)
    for token, p in zip(after.ids.tolist(), after.probs.tolist(), strict=True):
        for text, rest in text_law(models, n, sampling, (*start, token)).items():
            found[text] += p * rest
    return found


def drafted_law(found: list[Case], models: Models, n: int, sampling: Sampling = ALL) -> dict[Path, float]:
    """The law of the first `n` tokens that begin with a verdict and go on as the target does."""
    law = defaultdict[Path, float](float)
    for _, verdict, p in found:
        for text, rest in text_law(models, n, sampling, verdict.tokens).items():
            law[text] += p * rest
    return law


def mean_accepted(found: list[Case]) -> float:
    return sum(p * len(verdict.accepted) for _, verdict, p in found)


def after_a_zero(path: Path) -> bool:
    return path[-1:] == (0,)


@pytest.mark.parametrize("rule", [BLOCK, REJECTION], ids=["block", "rejection"])
@pytest.mark.parametrize("sampling", [ALL, PENALISED, CUT], ids=["all", "penalised", "cut"])
@pytest.mark.parametrize("ends", [never, after_a_zero], ids=["whole", "ends by its tokens"])
@pytest.mark.parametrize("k", [1, 2, 3])
def test_the_law_of_the_text_is_exactly_the_targets(rule: Rule, sampling: Sampling, ends: Ends, k: int) -> None:
    for seed in range(6 if k < 3 else 2):
        models = Models(seed, agreement=0.3 * (seed % 3))
        found = cases(models, rule, k, ends, sampling)
        law, wanted = drafted_law(found, models, k + 1, sampling), text_law(models, k + 1, sampling)
        assert sum(law.values()) == pytest.approx(1)
        for text in {*law, *wanted}:
            assert law.get(text, 0.0) == pytest.approx(wanted.get(text, 0.0), abs=1e-12)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32), agreement=st.floats(0, 1), k=st.integers(1, 3))
def test_it_accepts_no_fewer_tokens_than_token_by_token(seed: int, agreement: float, k: int) -> None:
    models = Models(seed, agreement)
    block, rejection = (mean_accepted(cases(models, rule, k)) for rule in (BLOCK, REJECTION))
    assert block >= rejection - 1e-12
    if k == 1:
        assert block == pytest.approx(rejection, abs=1e-12)


def test_it_accepts_as_many_tokens_as_the_papers_example() -> None:
    """Two tokens of context-free models: 1/3 and 2/3, drafted with 2/3 and 1/3 (arXiv 2403.10444, section 2)."""
    target, q = np.log(np.array([1 / 3, 2 / 3], dtype=np.float32)), Distribution(np.arange(2), np.array([2 / 3, 1 / 3]))
    found = dict.fromkeys((BLOCK, REJECTION), 0.0)
    for tokens in product(range(2), repeat=2):
        draft, rows = Draft(tokens, None, (q, q)), np.tile(target, (3, 1))
        for rule in found:
            for verdict, p in outcomes(partial(rule.verify, draft, rows)):
                found[rule] += p * q.of(tokens[0]) * q.of(tokens[1]) * len(verdict.accepted)
    assert found[BLOCK] == pytest.approx(11 / 9)
    assert found[REJECTION] == pytest.approx(10 / 9)


@pytest.mark.parametrize("k", [2, 3])
def test_tokens_that_were_not_sampled_gain_nothing_by_it(k: int) -> None:
    """So lookups' drafts are left to the rejection rule, with the same law of what is accepted."""
    for seed, tokens in enumerate(product(range(N_VOCAB), repeat=k)):
        rows = Models(seed).rows(tokens)
        found = [defaultdict[int, float](float) for _ in range(2)]
        for law, draft in zip(found, (Draft(tokens), Draft(tokens, None, tuple(map(certain, tokens)))), strict=True):
            for verdict, p in outcomes(partial(BLOCK.verify, draft, rows)):
                law[len(verdict.accepted)] += p
        assert found[1] == pytest.approx(found[0])


def test_how_many_are_accepted_does_not_depend_on_how_many_follow() -> None:
    """What the controller learns of a token with long drafts is right for short ones, and the other way round."""
    for seed in range(4):
        models, found = Models(seed, 0.5), []
        for k in (1, 2, 3):
            whole = cases(models, BLOCK, k)
            found.append([sum(p for _, each, p in whole if len(each.accepted) >= n) for n in range(1, k + 1)])
        assert found[1][:1] == pytest.approx(found[0])
        assert found[2][:2] == pytest.approx(found[1])


def test_the_text_leaves_the_draft_where_acceptance_ends() -> None:
    """So a draft compared with the text has as many right tokens as were accepted."""
    for seed in range(4):
        for draft, verdict, _ in cases(Models(seed, 0.5), BLOCK, 3):
            n = len(verdict.accepted)
            assert verdict.accepted == tuple(range(n))
            assert verdict.tokens[:n] == draft.tokens[:n]
            assert len(verdict.tokens) == n + 1
            assert n == len(draft) or verdict.tokens[n] != draft.tokens[n]


class Watched(Sampler):
    """Remembers the paths after which a distribution was asked for."""

    def distribution(self, logits: Logits, path: Path = ()) -> Distribution:
        self.paths = [*getattr(self, "paths", []), path]
        return super().distribution(logits, path)


@pytest.mark.parametrize("seed", range(20))
def test_nothing_is_asked_after_a_token_that_the_target_excludes(seed: int) -> None:
    """A grammar has no answer there."""
    rows = np.zeros((4, N_VOCAB), dtype=np.float32)
    rows[1, 2] = -np.inf
    even = Distribution(np.arange(N_VOCAB), np.full(N_VOCAB, 1 / N_VOCAB))
    sampler = Watched(ALL)
    sampler.rng.seed(seed)
    verdict = BLOCK.verify(Draft((0, 2, 1), None, (even, even, even)), rows, sampler)
    assert len(verdict.accepted) <= 1
    assert verdict.tokens[1:] != (2,)
    assert set(sampler.paths) <= {(), (0,)}
    assert len(set(sampler.paths)) == len(sampler.paths)


def test_a_draft_that_cannot_be_accepted_any_more_is_read_no_further() -> None:
    """By what the random numbers allow, whatever the target says of the rest."""
    rows = np.tile(np.log(np.array([0.98, 0.01, 0.01], dtype=np.float32)), (9, 1))
    q = Distribution(np.arange(N_VOCAB), np.array([0.04, 0.48, 0.48]))
    sure = Distribution(np.arange(N_VOCAB), np.array([0.98, 0.01, 0.01]))
    n_asked = []
    for seed in range(50):
        sampler = Watched(ALL)
        sampler.rng.seed(seed)
        BLOCK.verify(Draft((1, *[0] * 7), None, (q, *[sure] * 7)), rows, sampler)
        n_asked.append(len(sampler.paths))
    assert sorted(n_asked)[25] == 1
