"""The loss of a training over many words: it is what PyTorch makes of it, and takes no memory for all rows at once."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the extra `train` is not installed")

from runtime.training import learners  # noqa: E402
from runtime.training.learners import ROWS, CrossEntropy  # noqa: E402

pytestmark = pytest.mark.slow

N, WIDTH, WORDS, LIKELY = 2 * ROWS + 5, 16, 300, 8


def given() -> tuple[Any, ...]:
    """Rows, outputs, places, of which some are named twice, and weights, of which some are 0."""
    torch.manual_seed(0)
    places = torch.randint(WORDS, (N, LIKELY))
    places[:, 1] = places[:, 0]
    weights = torch.rand(N, LIKELY) / LIKELY
    weights[:, 1] = 0
    return torch.randn(N, WIDTH, requires_grad=True), torch.randn(WORDS, WIDTH, requires_grad=True), places, weights


def test_loss_slopes_and_guesses_are_those_of_pytorch() -> None:
    rows, outputs, places, weights = given()
    logits = rows @ outputs.T
    expected = -(weights * logits.log_softmax(-1).gather(1, places)).sum(-1).mean()
    expected.mul(3).backward()
    slopes = rows.grad, outputs.grad
    rows.grad = outputs.grad = None
    loss, guessed = CrossEntropy.apply(rows, outputs, places, weights)
    loss.mul(3).backward()
    assert torch.allclose(loss, expected)
    assert torch.equal(guessed, logits.argmax(-1))
    for found, slope in zip((rows.grad, outputs.grad), slopes, strict=True):
        assert torch.allclose(found, slope, atol=1e-6)


def test_outputs_that_stay_as_they_are_have_no_slope_and_measuring_needs_none() -> None:
    rows, outputs, places, weights = given()
    loss, _ = CrossEntropy.apply(rows, outputs.detach(), places, weights)
    loss.backward()
    assert rows.grad is not None
    with torch.no_grad():
        assert torch.equal(CrossEntropy.apply(rows, outputs, places, weights)[0], loss)


def test_logits_of_a_few_rows_are_there_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, linear = list[int](), learners.F.linear
    monkeypatch.setattr(learners.F, "linear", lambda rows, *more: (seen.append(len(rows)), linear(rows, *more))[1])
    CrossEntropy.apply(*given())
    assert seen == [ROWS, ROWS, 5]
