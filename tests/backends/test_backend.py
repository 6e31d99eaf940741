"""The real library: whatever was decoded before, the logits are those of exactly the tokens asked for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import llama_cpp.llama_cpp as lib
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.backends import library
from runtime.backends.llama import LlamaBackend
from runtime.backends.model import LlamaModel
from runtime.core.draft import Draft
from runtime.core.errors import ContextError

N_VOCAB, N_CTX = 512, 256


@pytest.fixture(scope="module")
def model(tiny: Path) -> Iterator[LlamaModel]:
    opened = LlamaModel(tiny)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def backends(model: LlamaModel) -> Iterator[tuple[LlamaBackend, LlamaBackend]]:
    """One that is asked in any order, one that starts afresh each time."""
    pair = LlamaBackend(model, N_CTX, n_rows=9, n_batch=32), LlamaBackend(model, N_CTX, n_rows=9, n_batch=256)
    for backend in pair:
        backend.set_threads(1, 1)
    yield pair
    for backend in pair:
        backend.close()


def tokens(seed: int, n: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, N_VOCAB, n).astype(np.int32)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 200), st.integers(0, 8)), min_size=1, max_size=5))
def test_the_cache_is_only_a_memo(
    backends: tuple[LlamaBackend, LlamaBackend], asked: list[tuple[int, int, int]]
) -> None:
    """Contexts that share prefixes, shrink, grow and are edited; drafts of every width; prompts longer than a batch."""
    memo, fresh = backends
    for seed, n, k in asked:
        context, draft = tokens(seed, n), Draft(tuple(tokens(9, k).tolist()))
        context[0] = 1
        got = memo.forward(context, draft).copy()
        fresh.forward(tokens(77, 1))
        whole = np.concatenate([context, np.array(draft.tokens, dtype=np.int32)])
        for i in range(k + 1):
            assert np.array_equal(fresh.forward(whole[: n + i])[0], got[i])


def test_nothing_is_decoded_twice(backends: tuple[LlamaBackend, LlamaBackend]) -> None:
    memo, context = backends[0], tokens(5, 100)
    memo.forward(context)
    before = memo.n_decoded
    memo.forward(context, Draft((1, 2, 3)))
    assert memo.n_decoded - before == 4  # the context's last token and the draft
    longer = np.concatenate([context, np.array([1, 2, 7], dtype=np.int32)])
    memo.forward(longer)
    assert memo.n_decoded - before == 5  # two draft tokens were accepted: only the new one
    assert memo.n_cached(context[:50]) == 49


def test_what_does_not_fit_is_refused_and_the_rest_still_right(backends: tuple[LlamaBackend, LlamaBackend]) -> None:
    memo, context = backends[0], tokens(6, N_CTX)
    full = memo.forward(context).copy()
    with pytest.raises(ContextError, match="Shorten"):
        memo.forward(context, Draft((1,)))
    with pytest.raises(ContextError):
        memo.forward(tokens(6, N_CTX + 1))
    assert np.array_equal(memo.forward(context), full)


def test_every_piece_of_text_survives_the_tokenizer(model: LlamaModel) -> None:
    for text in ("", "plain", "wörld ☃ \U0001f600", "tabs\t\n  and spaces", "\x00\x07"):
        assert b"".join(map(model.vocab.pieces.__getitem__, model.vocab.encode(text, special=False))).decode() == text


def test_special_tokens_are_only_read_where_they_are_wanted(model: LlamaModel) -> None:
    assert model.vocab.encode("<|end|>", special=True) == [256]
    assert 256 not in model.vocab.encode("<|end|>", special=False)
    assert model.vocab.pieces[256] == b""
    assert model.vocab.ends[256]
    assert not model.vocab.ends[255]


@pytest.mark.parametrize(
    ("built", "exact", "wanted"), [("AVX2 = 1", False, True), ("AVX2 = 1", True, False), ("AMX_INT8 = 1", False, False)]
)
def test_weights_keep_their_layout_where_the_kernels_of_another_are_not_to_be_trusted(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, built: str, exact: bool, wanted: bool
) -> None:
    asked: list[bool] = []
    load = lib.llama_model_load_from_file

    def spied(path: bytes, params: Any) -> Any:
        asked.append(params.use_extra_bufts)
        params.use_extra_bufts = False
        return load(path, params)

    monkeypatch.setattr(library, "prefer_exact", lambda: None)  # it is for the whole process
    monkeypatch.setattr(lib, "llama_print_system_info", f"CPU : {built} | ".encode)
    monkeypatch.setattr(lib, "llama_model_load_from_file", spied)
    LlamaModel(tiny, exact=exact).close()
    assert asked == [wanted]


def test_a_context_is_read_again_from_the_first_token_that_differs(backends: tuple[LlamaBackend, LlamaBackend]) -> None:
    memo, fresh = backends
    context = tokens(7, 60)
    memo.forward(context, Draft((1, 2, 3)))
    edited = context[:45].copy()
    edited[30] = (edited[30] + 1) % N_VOCAB
    assert memo.n_cached(edited) == 30
    assert np.array_equal(memo.forward(edited).copy(), fresh.forward(edited))
