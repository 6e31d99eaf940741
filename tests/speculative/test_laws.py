"""The output law of each rule, drafter, chain and tree is the target's; a wrong rule is caught by the same count."""

from __future__ import annotations

import pytest

from bench.instruments.laws import DRAFTERS, count, exact_law, p_value
from runtime.speculative import verify as verify_module
from tests.support.quick import others_slow

N_DRAWS = 1500
QUICK = "good model", "poor model", "block of a head", "heads", "ngram", "lookahead"
REJECTED = "poor model", "ngram", "block of a head", "heads", "lookahead"  # drafters of which tokens are
FALSE_ALARM = 1e-6  # per cell; the draws are seeded, so a test that passes once passes always


@pytest.mark.parametrize("is_coupled", [True, False], ids=["coupled", "without a seed"])
@pytest.mark.parametrize("k", others_slow((2, 5), (2,)))
@pytest.mark.parametrize("name", others_slow(DRAFTERS, QUICK))
def test_the_law_is_the_targets(name: str, k: int, is_coupled: bool) -> None:
    assert p_value(count(name, k, N_DRAWS, is_coupled), exact_law()) > FALSE_ALARM


@pytest.mark.parametrize("name", others_slow(REJECTED, REJECTED[1:3]))
def test_a_wrong_residual_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify_module, "residual", lambda target, *_: target)
    assert p_value(count(name, 3, 3 * N_DRAWS, is_coupled=False), exact_law()) < FALSE_ALARM


def test_dropping_a_drafted_token_for_its_value_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The trap of confidence tests on the token that was drawn."""
    right = verify_module.Block.verify

    def picky(self, draft, logits, sampler):  # type: ignore[no-untyped-def]
        is_zero = draft.tokens and draft.tokens[0] == 0
        return right(self, verify_module.Draft() if is_zero else draft, logits, sampler)

    monkeypatch.setattr(verify_module.Block, "verify", picky)
    assert p_value(count("poor model", 1, 3 * N_DRAWS, is_coupled=False), exact_law()) < FALSE_ALARM
