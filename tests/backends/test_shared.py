"""A context that several conversations share gives each the logits that it has by itself, bit for bit."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from runtime.backends.llama import LlamaBackend
from runtime.backends.model import LlamaModel
from runtime.backends.shared import SharedBackend
from runtime.core.draft import NO_DRAFT, Draft, PassInput, Tokens
from runtime.core.errors import StoppedError
from runtime.loading.exactness import is_exact_together

N_CTX, N_ROWS, N_SEATS = 128, 9, 4
N_VOCAB = 512


@pytest.fixture(scope="module")
def model(tiny: Path) -> Iterator[LlamaModel]:
    opened = LlamaModel(tiny)
    yield opened
    opened.close()


@pytest.fixture
def shared(model: LlamaModel) -> Iterator[SharedBackend]:
    backend = SharedBackend(model, N_CTX, N_ROWS, 64, N_SEATS)
    backend.set_threads(1, 1)
    backend.set_slots(N_SEATS)
    yield backend
    backend.close()


@pytest.fixture(scope="module")
def alone(model: LlamaModel) -> Iterator[LlamaBackend]:
    backend = LlamaBackend(model, N_CTX, N_ROWS, 256)
    backend.set_threads(1, 1)
    yield backend
    backend.close()


def tokens(seed: int, n: int) -> Tokens:
    return np.random.default_rng(seed).integers(0, N_VOCAB, n).astype(np.int32)


def agree(shared: SharedBackend, alone: LlamaBackend, asked: Sequence[tuple[Tokens, Draft] | PassInput]) -> None:
    together = [rows.copy() for rows in shared.forward_all([PassInput(*each) for each in asked])]
    for (context, draft, *_), rows in zip(asked, together, strict=True):
        np.testing.assert_array_equal(rows, alone.forward(context, draft))


class Conversations:
    """Some that grow, are edited, regenerated and forgotten, by chance."""

    def __init__(self, seed: int) -> None:
        self.random, self.all = random.Random(seed), list[list[int]]()
        self.system = tokens(seed, 20).tolist()

    def tokens(self, n: int) -> list[int]:
        return [self.random.randrange(N_VOCAB) for _ in range(n)]

    def change(self) -> None:
        chance, most = self.random.random, self.random.randint(1, N_SEATS + 1)
        while len(self.all) < most:
            self.all.append([*(self.system if chance() < 0.5 else []), *self.tokens(self.random.randint(1, 40))])
        one = self.random.randrange(len(self.all))
        if chance() < 0.05:
            self.all.pop(one)
        elif chance() < 0.05:
            del self.all[one][max(1, len(self.all[one]) - self.random.randint(1, 30)) :]
        elif chance() < 0.05:
            self.all.append(list(self.all[one]))

    def asked(self, shared: SharedBackend) -> list[tuple[int, Draft]]:
        n = self.random.randint(1, N_SEATS)
        chosen = self.random.sample(range(len(self.all)), min(n, len(self.all)))
        asked = [(i, Draft(tuple(self.tokens(self.random.choice((0, 0, 1, 2)))))) for i in chosen]
        while not shared.fits([len(self.all[i]) for i, _ in asked]):
            asked.pop()
        return asked

    def grow(self, number: int, draft: Draft) -> None:
        conversation = self.all[number]
        conversation += [*draft.tokens[: self.random.randint(0, len(draft.tokens))], *self.tokens(1)]
        if len(conversation) > N_CTX - 10:
            self.all[number] = self.tokens(9)


@pytest.mark.parametrize("seed", range(3))
def test_conversations_that_come_and_go_have_the_logits_that_each_has_alone(
    shared: SharedBackend, alone: LlamaBackend, seed: int
) -> None:
    """Far more of them, with drafts of which a part comes true, than the context holds at once."""
    conversations = Conversations(seed)
    for _ in range(150):
        conversations.change()
        asked = conversations.asked(shared)
        agree(shared, alone, [(np.array(conversations.all[i], dtype=np.int32), draft) for i, draft in asked])
        for number, draft in asked:
            conversations.grow(number, draft)


def test_what_a_conversation_begins_with_is_not_read_again(shared: SharedBackend, alone: LlamaBackend) -> None:
    system = tokens(1, 60)
    first, second = (np.concatenate([system, tokens(seed, 5)]) for seed in (2, 3))
    shared.forward(first)
    n_decoded = shared.n_decoded
    agree(shared, alone, [(second, NO_DRAFT), (first, NO_DRAFT)])
    assert shared.n_decoded - n_decoded == 5 + 1
    assert shared.n_held == 2
    assert shared.n_cached(np.concatenate([system, tokens(4, 9)])) == 60


def test_replies_to_one_question_do_not_take_each_others_tokens(shared: SharedBackend) -> None:
    """Their contexts are the same until each has said something else."""
    prompt = tokens(1, 30)
    first, second = (np.concatenate([prompt, tokens(seed, 4)]) for seed in (2, 3))
    shared.forward(first)
    shared.forward(prompt)
    n_decoded = shared.n_decoded
    shared.forward_all([PassInput(np.append(first, 7).astype(np.int32)), PassInput(second)])
    assert shared.n_decoded - n_decoded == 1 + 4


def test_of_two_that_are_alike_so_far_each_goes_on_in_its_own_place(shared: SharedBackend) -> None:
    text = tokens(9, 40)
    behind, ahead = text[:30], text[:36]
    shared.forward_all([PassInput(behind), PassInput(ahead)])
    for first, second in ((ahead, behind), (behind, ahead)):
        for context in (first, second):
            shared.forward(context)  # whoever was used last, or longest ago
    n_before = shared.n_decoded
    for n in range(1, 4):
        shared.forward_all([PassInput(text[: 30 + n]), PassInput(text[: 36 + n])])
    assert shared.n_decoded - n_before == 6


def test_a_stopped_pass_loses_nothing(shared: SharedBackend, alone: LlamaBackend) -> None:
    asked = [PassInput(tokens(seed, 30), Draft((1, 2))) for seed in range(3)]
    for each in asked:
        shared.forward(each.context[:-3])
    shared.stop_flag.put(True)
    with pytest.raises(StoppedError):
        shared.forward_all(asked)
    shared.stop_flag.put(False)
    n_decoded = shared.n_decoded
    agree(shared, alone, asked)
    assert shared.n_decoded - n_decoded == 3 * (3 + 2)


def test_who_was_longest_unused_makes_room_and_comes_back(shared: SharedBackend, alone: LlamaBackend) -> None:
    shared.set_slots(N_SEATS + 1)
    contexts = [tokens(seed, 40) for seed in range(N_SEATS + 2)]
    for context in contexts:
        shared.forward(context)
    n_decoded = shared.n_decoded
    for context in contexts[::-1][:N_SEATS]:
        agree(shared, alone, [(context, NO_DRAFT)])
    assert shared.n_decoded - n_decoded == N_SEATS
    assert shared.n_held == N_SEATS + 1
    shared.forward(contexts[1])
    assert shared.n_decoded - n_decoded == N_SEATS + 1  # it had been put away


def test_with_one_slot_it_is_a_context_for_one(shared: SharedBackend, alone: LlamaBackend) -> None:
    for seed in range(3):
        shared.forward(tokens(seed, 30))
    shared.set_slots(1)
    assert shared.n_held == 1
    for seed in range(3):
        agree(shared, alone, [(tokens(seed, 35), Draft((3, 4)))])
    assert shared.n_held == 1


def test_the_self_test_finds_kernels_that_round_alike(model: LlamaModel, shared: SharedBackend) -> None:
    shared.set_slots(1)
    assert is_exact_together(shared, N_ROWS, model.vocab)
    assert not is_exact_together(shared, 1, model.vocab)


def test_the_self_test_sees_rows_that_disturb_each_other(
    model: LlamaModel, shared: SharedBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = shared.forward_all

    def disturbed(asked: list[tuple[Tokens, Draft]]) -> list[np.ndarray]:
        *others, last = together(asked)
        return [*others, last * np.float32(1 + 1e-6)]

    shared.set_slots(1)
    monkeypatch.setattr(shared, "forward_all", disturbed)
    assert not is_exact_together(shared, N_ROWS, model.vocab)


def test_two_seats_are_asked_no_more_than_two_conversations(model: LlamaModel) -> None:
    backend = SharedBackend(model, N_CTX, N_ROWS, 64, 2)
    backend.set_threads(1, 1)
    assert is_exact_together(backend, N_ROWS, model.vocab)
    assert backend.fits([9, 9])
    assert not backend.fits([9, 9, 9])
    backend.close()
