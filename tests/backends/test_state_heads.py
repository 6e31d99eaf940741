"""Medusa and Hydra heads: their arithmetic, the states that they read, and their drafts from those."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader, quants

from bench.instruments.heads import StateHeadShape, random_weights, state_head_for, write_state_head
from bench.instruments.shapes import K_QUANTS, TINY, write_random
from runtime.backends.contexts import open_backend
from runtime.backends.file_rows import find_rows
from runtime.backends.heads.state_head import StateHeadBackend, open_state_head
from runtime.backends.llama import LlamaBackend
from runtime.backends.model import LlamaModel
from runtime.backends.shared import SharedBackend
from runtime.backends.shown_states import Rows
from runtime.core.draft import Draft, Logits, PassInput, Tokens
from runtime.core.draft import Path as Tentative
from runtime.core.drafter import CONTINUE, Budget, Pick
from runtime.drafters.eagle1 import EagleOneDrafter
from runtime.drafters.head import FRESH, HeadDrafter
from runtime.drafters.hydra import HydraDrafter
from runtime.drafters.medusa import MedusaDrafter
from runtime.drafters.network import silu
from runtime.drafters.registry import networks
from runtime.models.facts import ModelFacts
from runtime.models.header import read_model_header
from runtime.models.heads import drafter_of
from tests.support import tiny_target
from tests.support.memory import PAGES, play_pages

target_file, target = tiny_target.target_file, tiny_target.target

N_CTX, N_ROWS, ROOM = 256, 9, 8
KINDS = pytest.mark.parametrize("kind", sorted(networks()))
DRAFTERS = {"medusa": MedusaDrafter, "hydra": HydraDrafter, "eagle1": EagleOneDrafter}
Sizes = dict[str, int]


def tokens(seed: int, n: int) -> Tokens:
    return np.random.default_rng(seed).integers(0, TINY.vocab, n).astype(np.int32)


def longer(text: Tokens, *more: int) -> Tokens:
    return np.append(text, more).astype(np.int32)


def pick(row: Logits, path: Tentative) -> Pick:
    return Pick(int(row.argmax()), 1.0, None)


BUDGET = Budget(4, lambda confidence, token=-1: CONTINUE, pick)


def head_in(path: Path, backend: LlamaBackend, n: int = 1) -> tuple[StateHeadBackend, HeadDrafter]:
    facts = ModelFacts(read_model_header(path))
    head = open_state_head(path, facts, backend, n, ROOM)
    return head, DRAFTERS[drafter_of(facts)](head, backend.n_vocab, ROOM)


def matrix(path: Path, *names: str) -> Rows:
    found = find_rows(path, *names)
    assert found is not None
    return found.floats(slice(None))


# A plain form of the papers' formulas, number by number


def dot(row: Rows, x: Sequence[float]) -> float:
    return math.fsum(float(a) * float(b) for a, b in zip(row, x, strict=True))


def layer(weight: Rows, bias: Rows, x: Sequence[float]) -> list[float]:
    return [dot(row, x) + float(b) for row, b in zip(weight, bias, strict=True)]


def activated(xs: Sequence[float]) -> list[float]:
    return [x / (1 + math.exp(-x)) for x in xs]


def added(a: Sequence[float], b: Sequence[float]) -> list[float]:
    return [x + y for x, y in zip(a, b, strict=True)]


def reference(
    shape: StateHeadShape, weights: dict[str, Rows], output: Rows, i: int, state: Rows, vectors: Rows
) -> list[float]:
    """The logits of head `i` after a state and the vectors of the tokens that it reads."""
    x = [float(v) for v in state]
    if shape.kind == "hydra":
        joined = x + [float(v) for row in vectors for v in row]
        skipped = layer(weights[f"head.{i}.0.skip.weight"], weights[f"head.{i}.0.skip.bias"], joined)
        x = added(skipped, activated(layer(weights[f"head.{i}.0.weight"], weights[f"head.{i}.0.bias"], joined)))
    for j in range(1 if shape.kind == "hydra" else 0, shape.layers):
        x = added(x, activated(layer(weights[f"head.{i}.{j}.weight"], weights[f"head.{i}.{j}.bias"], x)))
    return [dot(row, x) for row in weights.get(f"head.{i}.output.weight", output)]


@pytest.mark.parametrize("kind", ["medusa", "hydra"])
@pytest.mark.parametrize("change", [{}, {"layers": 2, "n_outputs": 3}, {"words": 64}, {"words": 64, "n_outputs": 3}])
def test_a_head_computes_what_its_paper_says(
    kind: str, change: Sizes, target: LlamaModel, target_file: Path, tmp_path: Path
) -> None:
    shape = state_head_for(target_file, kind, **change)
    file = write_state_head(tmp_path / "head.gguf", shape)
    backend = LlamaBackend(target, N_CTX, N_ROWS)
    head, _ = head_in(file, backend)
    text, state = tokens(0, 12), np.random.default_rng(1).standard_normal(TINY.width).astype(np.float32)
    head.feed(text[:10], 9, state[None])
    kept = np.linspace(0, TINY.vocab - 1, shape.words).astype(int) if shape.words else np.arange(TINY.vocab)
    output, table = (
        matrix(target_file, "output.weight", "token_embd.weight")[kept],
        matrix(target_file, "token_embd.weight"),
    )
    weights = random_weights(shape)
    for i in range(3):
        found = head.forward(longer(text[:11], *range(i)))[0]
        vectors = table[longer(text[10:11], *range(i))]
        want = reference(shape, weights, output, i, state, vectors)
        np.testing.assert_allclose(found[kept], want, rtol=1e-3, atol=1e-3)
        assert np.isneginf(np.delete(found, kept)).all()
    head.close()
    backend.close()


def test_large_numbers_do_not_overflow() -> None:
    with np.errstate(all="raise", under="ignore"):
        found = silu(np.array([-1e4, -100, 0, 100, 1e4], dtype=np.float32))
    np.testing.assert_allclose(found, [0, 0, 0, 100, 1e4], atol=1e-20)


@pytest.mark.parametrize("n_seats", [1, 3])
def test_the_states_are_what_the_output_matrix_reads_and_cost_no_bit(
    target: LlamaModel, target_file: Path, n_seats: int
) -> None:
    output, found = matrix(target_file, "output.weight", "token_embd.weight"), list[Logits]()
    heard: list[tuple[int, Rows]] = []
    for listens in (False, True):
        backend = open_backend(target, N_CTX, N_ROWS, 64, n_seats=n_seats)
        if listens:
            backend.shown.show_outputs(lambda known, start, states: heard.append((start, states)))
        backend.forward(tokens(0, 30))
        assert heard == []  # its rows have no logits but the last
        found.append(backend.forward(longer(tokens(0, 30), 7), Draft((8, 9))).copy())
        backend.close()
    np.testing.assert_array_equal(found[0], found[1])
    ((start, states),) = heard
    assert (start, states.shape) == (30, (3, TINY.width))
    np.testing.assert_allclose(states @ output.T, found[0], atol=0.05 * found[0].std())


def anew(target: LlamaModel, file: Path, text: Tokens, n_prompt: int) -> tuple[int, ...]:
    """What the head drafts after a prompt of so many tokens and passes over each other one but the last."""
    backend = LlamaBackend(target, N_CTX, N_ROWS)
    head, drafter = head_in(file, backend)
    for end in range(n_prompt, len(text)):
        backend.forward(text[:end])
    found = drafter.propose(text, BUDGET).tokens
    head.close()
    backend.close()
    return found


@KINDS
def test_drafts_are_those_from_scratch_whatever_was_rejected_before(
    kind: str, target: LlamaModel, target_file: Path, tmp_path: Path
) -> None:
    file = write_state_head(tmp_path / "head.gguf", state_head_for(target_file, kind))
    backend, plain = LlamaBackend(target, N_CTX, N_ROWS, 64), LlamaBackend(target, N_CTX, N_ROWS, 64)
    head, drafter = head_in(file, backend)
    text = tokens(1, 40)
    text = longer(text, int(backend.forward(text)[0].argmax()))
    assert drafter.propose(text, BUDGET).tokens == ()  # nothing is known of a prompt
    text = longer(text, int(backend.forward(text)[0].argmax()))
    for n_right in (0, 2, 3, 1, 0):
        want = text.copy()
        for _ in range(4):
            want = longer(want, int(plain.forward(want)[0].argmax()))
        draft = drafter.propose(text, BUDGET)
        assert len(draft.tokens) == 3  # as many as there are heads
        assert draft.tokens == anew(target, file, text, 40)
        wrong = [(int(token) + 1) % TINY.vocab for token in want[len(text) :][n_right:3]]
        tried = Draft((*want[len(text) :][:n_right].tolist(), *wrong))
        picks = backend.forward(text, tried).argmax(axis=1)
        text = longer(want[: len(text) + n_right], int(picks[n_right]))
        np.testing.assert_array_equal(text, want[: len(text)])
    for each in (head, backend, plain):
        each.close()


@KINDS
def test_each_of_several_conversations_has_its_own_state(
    kind: str, target: LlamaModel, target_file: Path, tmp_path: Path
) -> None:
    file = write_state_head(tmp_path / "head.gguf", state_head_for(target_file, kind))
    backend = SharedBackend(target, N_CTX, N_ROWS, 64, 3)
    backend.set_slots(3)
    head, drafter = head_in(file, backend, 3)
    texts = [longer(tokens(9, 20), *tokens(seed, 20 + seed)) for seed in range(3)]  # which begin alike
    for _ in range(2):
        texts = [longer(text, int(backend.forward(text)[0].argmax())) for text in texts]
    for n_drafted in (2, 0, 3):
        drafts = [drafter.propose(text, BUDGET).tokens for text in texts]
        assert drafts == [anew(target, file, text, 40 + seed) for seed, text in enumerate(texts)]
        asked = [PassInput(text, Draft(draft[:n_drafted])) for text, draft in zip(texts, drafts, strict=True)]
        rows = backend.forward_all(asked)
        texts = [longer(text, int(row[0].argmin())) for text, row in zip(texts, rows, strict=True)]  # never drafted
    head.close()
    backend.close()


def test_a_head_that_rests_is_told_nothing_and_knows_again_when_it_wakes(
    target: LlamaModel, target_file: Path, tmp_path: Path
) -> None:
    file = write_state_head(tmp_path / "head.gguf", state_head_for(target_file))
    backend = LlamaBackend(target, N_CTX, N_ROWS, 64)
    head, drafter = head_in(file, backend)
    text = tokens(5, 60)
    backend.forward(text[:30])
    drafter.rest(FRESH + 8)
    for end in range(31, 61):
        backend.forward(text[:end])
        assert head.knows(longer(text[:end], 3)) is (end > 38)
    head.close()
    backend.forward(longer(text, 4))  # nobody listens any more
    backend.close()


@PAGES
def test_rows_of_every_type_are_read_as_the_writer_meant_them(
    page: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    play_pages(monkeypatch, page)
    file = write_random(tmp_path / "k.gguf", K_QUANTS, k_quants=True)
    for tensor in GGUFReader(file).tensors:
        if len(tensor.shape) == 2:
            want = quants.dequantize(tensor.data, tensor.tensor_type)
            np.testing.assert_allclose(matrix(file, tensor.name), want, rtol=1e-5, atol=1e-6)
    assert find_rows(file, "no.weight") is None
