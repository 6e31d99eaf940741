"""Heads (EAGLE-3, MTP): states of the target, what a head makes of them, what is refused before llama.cpp would end."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench.instruments.architectures.families import TEXT
from bench.instruments.architectures.writer import write_family
from bench.instruments.heads import PROMPT, head_for, write_head
from bench.instruments.shapes import write_random
from runtime.backends import shown_states
from runtime.backends.contexts import open_backend
from runtime.backends.heads.llama_heads import EagleBackend
from runtime.backends.heads.trail import Trail
from runtime.backends.llama import LlamaBackend
from runtime.backends.model import LlamaModel
from runtime.backends.private_llama import SYMBOLS, symbol
from runtime.backends.shared import SharedBackend
from runtime.backends.shown_states import Rows
from runtime.core.draft import Draft, Logits, PassInput, Tokens
from runtime.core.draft import Path as Tentative
from runtime.core.drafter import CONTINUE, Budget, Pick
from runtime.drafters.head import FRESH, EagleDrafter
from runtime.engine import Ids, Options, Sampling
from runtime.engine.loaded import LoadedEngine
from runtime.engine.pairing import Target
from runtime.models import heads
from runtime.models.registry import Pair
from tests.support import tiny_target

N_CTX, N_ROWS, ROOM = 256, 9, 8
TARGET, target_file, target = tiny_target.TARGET, tiny_target.target_file, tiny_target.target


@pytest.fixture(scope="module", params=["few words", "the target's words", "a table of its own"])
def head(
    request: pytest.FixtureRequest, target_file: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LlamaModel]:
    words = {"few words": 64}.get(request.param, 0)
    shape = replace(head_for(target_file, words), own_table=request.param == "a table of its own")
    model = LlamaModel(write_head(tmp_path_factory.mktemp("head") / "head.gguf", shape), is_head=True)
    yield model
    model.close()


def tokens(seed: int, n: int) -> Tokens:
    return np.random.default_rng(seed).integers(0, TARGET.vocab, n).astype(np.int32)


def pick(row: Logits, path: Tentative) -> Pick:
    return Pick(int(row.argmax()), 1.0, None)


BUDGET = Budget(4, lambda confidence, token=-1: CONTINUE, pick)


def layers(model: LlamaModel) -> tuple[int, ...]:
    return head_for(model.path).layers


def beside(backend: LlamaBackend, head: LlamaModel, n: int = 1) -> EagleBackend:
    return EagleBackend(head, backend, layers(backend.model), n, ROOM)


def guessed_anew(target: LlamaModel, head: LlamaModel, context: Tokens) -> tuple[int, ...]:
    """What a head guesses after one pass over all of the context but its last token."""
    backend = LlamaBackend(target, N_CTX, N_ROWS)
    eagle = beside(backend, head)
    backend.forward(context[:-1])
    found = EagleDrafter(eagle, backend.n_vocab, ROOM).propose(context, BUDGET).tokens
    eagle.close()
    backend.close()
    return found


def test_states_do_not_depend_on_how_the_text_was_read(target: LlamaModel) -> None:
    heard = dict[int, Rows]()
    context, at = tokens(0, 90), layers(target)
    for pieces in ([90], [30, 31, 90], [89, 90]):
        backend = LlamaBackend(target, N_CTX, N_ROWS, 64)
        seen = np.zeros((90, 3 * TARGET.width), dtype=np.float32)

        def feed(known: Tokens, start: int, states: Rows, into: Rows = seen) -> None:
            assert len(known) - start == len(states)
            into[start : len(known)] = states

        backend.shown.show(at, feed)
        for end in pieces:
            backend.forward(context[:end])
        heard[len(pieces)] = seen
        backend.close()
    assert np.abs(heard[1]).min(axis=1).max() > 0
    for other in (heard[3], heard[2]):
        np.testing.assert_array_equal(heard[1], other)


@pytest.mark.parametrize("name", [name for name, family in TEXT.items() if family.architecture in heads.SHOWN])
def test_a_target_that_shows_its_layers_computes_the_same(name: str, tmp_path: Path) -> None:
    model = LlamaModel(write_family(name, tmp_path))
    context, found = np.arange(5, 45, dtype=np.int32), list[Logits]()
    for shows in (False, True):
        backend = open_backend(model, N_CTX, 5, 64)
        if shows:
            backend.shown.show((1, 2, 3), lambda known, start, states: None)
        found.append(backend.forward(context, Draft((7, 8))).copy())
        backend.close()
    model.close()
    np.testing.assert_array_equal(found[0], found[1])


def test_drafts_are_those_from_scratch_whatever_was_rejected_before(target: LlamaModel, head: LlamaModel) -> None:
    backend, plain = LlamaBackend(target, N_CTX, N_ROWS, 64), LlamaBackend(target, N_CTX, N_ROWS, 64)
    eagle = beside(backend, head)
    drafter = EagleDrafter(eagle, backend.n_vocab, ROOM)
    text = tokens(1, 75)
    text = np.append(text, backend.forward(text)[0].argmax()).astype(np.int32)
    for n_right in (0, 2, 4, 1, 0, 3):
        want = text.copy()
        for _ in range(5):
            want = np.append(want, plain.forward(want)[0].argmax()).astype(np.int32)
        draft = drafter.propose(text, BUDGET)
        assert draft.tokens == guessed_anew(target, head, text)
        tried = Draft((*want[len(text) :][:n_right].tolist(), *draft.tokens[n_right:]))
        picks = backend.forward(text, tried).argmax(axis=1)
        text = np.append(want[: len(text) + n_right], picks[n_right]).astype(np.int32)
        np.testing.assert_array_equal(text, want[: len(text)])
    for each in (eagle, backend, plain):
        each.close()


def test_each_of_several_conversations_has_its_own_states(target: LlamaModel, head: LlamaModel) -> None:
    backend = SharedBackend(target, N_CTX, N_ROWS, 64, 3)
    backend.set_slots(3)
    eagle = beside(backend, head, 3)
    drafter = EagleDrafter(eagle, backend.n_vocab, ROOM)
    texts = [np.append(tokens(9, 20), tokens(seed, 20 + seed)) for seed in range(3)]  # which begin alike
    texts = [np.append(text, backend.forward(text)[0].argmax()).astype(np.int32) for text in texts]
    for n_drafted in (2, 0, 3):
        drafts = [drafter.propose(text, BUDGET).tokens for text in texts]
        assert drafts == [guessed_anew(target, head, text) for text in texts]
        asked = [PassInput(text, Draft(draft[:n_drafted])) for text, draft in zip(texts, drafts, strict=True)]
        rows = backend.forward_all(asked)
        texts = [np.append(text, row[0].argmax()).astype(np.int32) for text, row in zip(texts, rows, strict=True)]
    eagle.close()
    backend.close()


def test_what_it_does_not_know_it_does_not_guess(target: LlamaModel, head: LlamaModel) -> None:
    backend = LlamaBackend(target, N_CTX, N_ROWS, 64)
    eagle = beside(backend, head)
    drafter, text = EagleDrafter(eagle, backend.n_vocab, ROOM), tokens(2, 40)
    assert drafter.propose(text, BUDGET).tokens == ()
    backend.forward(text)
    assert eagle.knows(np.append(text, 3).astype(np.int32))
    assert drafter.propose(tokens(3, 40), BUDGET).tokens == ()
    eagle.close()
    backend.forward(np.append(text, 4).astype(np.int32))  # nobody hears it any more
    backend.close()


def test_a_trail_forgets_what_is_not_said_any_more_and_bounds_what_waits() -> None:
    trail = Trail(0, 1000, 2)
    states = np.arange(2000, dtype=np.float32).reshape(1000, 2)
    text = np.arange(1000, dtype=np.int32)
    trail.feed(text[:10], 0, states[:10])
    trail.feed(text[:14], 10, states[10:14])
    assert (trail.n_known, trail.n_true(text[:20])) == (14, 14)
    trail.feed(np.append(text[:12], 99).astype(np.int32), 12, states[12:13])
    assert (trail.n_known, trail.shared(text)) == (13, 12)
    trail.feed(text[:40], 30, states[30:40])  # nobody told of what is between
    assert (trail.begin, trail.n_known) == (30, 40)
    trail.feed(text[:900], 40, states[40:900])
    assert (trail.begin, trail.n_known, len(trail.waiting)) == (900 - heads.STATES, 900, heads.STATES)
    np.testing.assert_array_equal(trail.waiting.rows[-1], states[899])


def test_a_file_without_a_drafting_layer_answers_without(tmp_path: Path) -> None:
    target = write_random(tmp_path / "none.gguf", TARGET)
    assert left_out(Pair("any", target)) == "none.gguf cannot draft by itself (mtp): it has no drafting layer"


def left_out(pair: Pair) -> str:
    """Why its drafting layer is left out; the target answers all the same."""
    engine = LoadedEngine(pair, Options(512, ("mtp",), threads=1))
    chunks = list(engine.reply(Ids(PROMPT), Sampling(seed=1), 4))
    engine.close()
    assert sum(len(chunk.tokens) for chunk in chunks) == 4
    return engine.facts.left_out


def test_pairing_takes_heads_that_fit(target_file: Path, tmp_path: Path) -> None:
    target = Target(Pair("any", target_file))
    fit, other = (write_head(tmp_path / f"{n}.gguf", replace(head_for(target_file), vocab=n)) for n in (512, 600))
    assert target.refusal(fit) == ""
    assert target.refusal(other) == "it is for 600 tokens, and the target has 512"


def test_a_head_that_rests_hears_nothing_and_takes_the_text_up_where_it_wakes(
    target: LlamaModel, head: LlamaModel
) -> None:
    backend = LlamaBackend(target, N_CTX, N_ROWS, 64)
    eagle = beside(backend, head)
    drafter, text = EagleDrafter(eagle, backend.n_vocab, ROOM), tokens(5, 60)
    backend.forward(text[:30])
    drafter.rest(FRESH + 8)
    for end in range(31, 61):
        backend.forward(text[:end])
        assert eagle.knows(text[: end + 1]) is (end > 38)
    said = np.append(text, 3).astype(np.int32)
    assert len(drafter.propose(said, BUDGET).tokens) == BUDGET.max_k
    drafter.rest(FRESH)  # is too short a rest to leave anything out
    backend.forward(said)
    assert eagle.knows(np.append(said, 4).astype(np.int32))
    eagle.close()
    backend.close()


def test_a_conversation_that_was_put_away_and_comes_back_is_still_known(target: LlamaModel, head: LlamaModel) -> None:
    backend = LlamaBackend(target, N_CTX, N_ROWS, 64)
    backend.set_slots(2)
    eagle = beside(backend, head, 2)
    drafter = EagleDrafter(eagle, backend.n_vocab, ROOM)
    texts = [tokens(20 + i, 70 + i) for i in range(2)]
    for n_drafted in (0, 2, 3, 1):
        for i, text in enumerate(texts):
            draft = drafter.propose(text, BUDGET).tokens if n_drafted else ()
            if draft:
                assert draft == guessed_anew(target, head, text)
            row = backend.forward(text, Draft(draft[:n_drafted]))[0]
            texts[i] = np.append(text, row.argmax()).astype(np.int32)
    eagle.close()
    backend.close()


def test_a_conversation_that_came_back_without_its_states_is_drafted_for_from_where_they_are_known(
    target: LlamaModel, head: LlamaModel
) -> None:
    backend = LlamaBackend(target, N_CTX, N_ROWS, 64)
    backend.set_slots(2)
    eagle = beside(backend, head, 1)  # which holds one only
    drafter = EagleDrafter(eagle, backend.n_vocab, ROOM)
    text, other = tokens(30, 70), tokens(31, 70)
    for each in (text, other):
        backend.forward(each)
    assert drafter.propose(np.append(text, 3).astype(np.int32), BUDGET).tokens == ()
    text = np.append(text, backend.forward(np.append(text, 3).astype(np.int32))[0].argmax()).astype(np.int32)
    text = np.append(np.append(tokens(30, 70), 3), text[-1:]).astype(np.int32)
    assert len(drafter.propose(text, BUDGET).tokens) == BUDGET.max_k
    eagle.close()
    backend.close()


def test_a_library_without_one_of_the_functions_leaves_the_head_out(
    target_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shown_states, "symbol", lambda name: None if name == "layer" else symbol(name))
    shown_states.functions.cache_clear()
    file = write_head(tmp_path / "head.gguf", head_for(target_file))
    engine = LoadedEngine(Pair("any", target_file, file), Options(512, threads=1))
    chunks = list(engine.reply(Ids(PROMPT), Sampling(seed=1), 4))
    left_out = engine.facts.left_out
    engine.close()
    shown_states.functions.cache_clear()
    assert left_out == "the draft head was left out: this llama.cpp build does not show hidden states"
    assert sum(len(chunk.tokens) for chunk in chunks) == 4


@pytest.mark.parametrize("kind", ["plain", "itanium", "msvc"])
def test_a_function_is_found_by_the_name_that_any_compiler_gave_it(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    names = dict.fromkeys(("plain", "itanium", "msvc"), "none") | {kind: "llama_time_us"}
    monkeypatch.setitem(SYMBOLS, "time", SYMBOLS["layer"]._replace(**names, result=ctypes.c_int64, takes=()))
    symbol.cache_clear()
    found = symbol("time")
    assert found is not None
    assert found.__name__ == "llama_time_us"
    symbol.cache_clear()
