"""Longer pieces of prompts are used only where they give the same bits, which is tested once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pytest

from runtime.backends.filled import FilledContext
from runtime.backends.model import LlamaModel
from runtime.core.draft import Tokens
from runtime.loading import pieces
from runtime.loading.neighbours import Neighbours
from runtime.loading.pieces import are_alike
from runtime.models.cache_layout import HALVES
from runtime.models.registry import load_registry


class Memory(dict[str, Any]):
    def read(self) -> dict[str, Any]:
        return self

    def write(self, values: dict[str, Any]) -> None:
        self.update(values)


@pytest.fixture(scope="module")
def model() -> Iterator[LlamaModel]:
    with closing(LlamaModel(load_registry()["demo"].target)) as found:
        yield found


@pytest.mark.slow
@pytest.mark.parametrize("is_halves", [True, False])
def test_the_bundled_models_kernels_round_tiles_alike(model: LlamaModel, is_halves: bool) -> None:
    usual = model.cache_types
    model.cache_types = HALVES if is_halves else usual
    pieces_of_halves = pieces.tested(model)
    model.cache_types = usual
    assert pieces_of_halves in (True, None)  # None: others keep the cores busy


@pytest.mark.slow
def test_pieces_that_round_otherwise_are_found(model: LlamaModel, monkeypatch: pytest.MonkeyPatch) -> None:
    decode = FilledContext.decode

    def decode_otherwise(self: FilledContext, tokens: Tokens, n_outputs: int) -> Any:
        wide = np.concatenate([tokens[:-1], tokens[-1:] + 1]).astype(np.int32) if len(tokens) > pieces.PIECE else tokens
        return decode(self, wide, n_outputs)

    monkeypatch.setattr(FilledContext, "decode", decode_otherwise)
    monkeypatch.setattr(pieces, "MAX_SECONDS", 60.0)
    assert pieces.tested(model) is False


def test_a_slow_model_is_tested_again_once_nobody_else_is_busy(
    model: LlamaModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    results, memo, busy = list[bool | None](), Memory(), True
    monkeypatch.setattr(Neighbours, "are_calm", lambda _: not busy)
    monkeypatch.setattr(pieces, "is_calm", lambda: not busy)
    monkeypatch.setattr(pieces, "tested", lambda _: results.pop())
    cases = [(True, [None], False), (True, [], False), (False, [None], False), (False, [], False)]
    for busy, results, alike in cases:  # noqa: B007
        assert (are_alike(model, memo), results) == (alike, [])  # type: ignore[arg-type]
    memo, results = Memory(), [True]
    for busy in (True, False):  # noqa: B007
        assert are_alike(model, memo)  # type: ignore[arg-type]
