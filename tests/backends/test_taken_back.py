"""Whatever conversations a context holds, puts away and takes back: logits are those of exactly these tokens."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np
import pytest

from bench.instruments.architectures.families import TEXT
from bench.instruments.architectures.writer import write_family
from runtime.backends.contexts import open_backend
from runtime.backends.llama import LlamaBackend
from runtime.backends.model import LlamaModel
from runtime.core.draft import Draft, Tokens
from tests.support.quick import FAMILIES, others_slow

N_CTX, STEPS, LONGEST = 512, 80, 450


def opened(model: LlamaModel, n_seats: int) -> LlamaBackend:
    backend = open_backend(model, N_CTX, 9, 256, n_seats=n_seats)
    backend.set_threads(1, 1)
    backend.set_slots(3)
    return backend


def asked(rng: np.random.Generator) -> Iterator[tuple[Tokens, Draft]]:
    """Three texts, what branches off them, and what goes on, in random order, with drafts that nobody accepts."""

    def words(least: int, most: int) -> Tokens:
        return rng.integers(4, 250, rng.integers(least, most)).astype(np.int32)

    roots = [words(200, 201) for _ in range(3)]
    texts = [*roots]
    for _ in range(STEPS):
        if rng.random() < 0.2:
            texts = [*texts[-5:], np.append(roots[rng.integers(3)][: rng.integers(20, 200)], words(1, 40))]
            at = len(texts) - 1
        else:
            at = int(rng.integers(len(texts)))
            texts[at] = np.append(texts[at], words(1, 6))
        texts[at] = texts[at] if len(texts[at]) < LONGEST else texts[at][:100]
        yield texts[at], Draft(tuple(words(0, 8).tolist()))


@pytest.mark.parametrize("n_seats", [1, 3])
@pytest.mark.parametrize("family", others_slow(sorted(TEXT), FAMILIES))
def test_a_conversation_that_is_taken_back_is_what_it_was(family: str, n_seats: int, tmp_path: Path) -> None:
    with ExitStack() as stack:
        model = stack.enter_context(closing(LlamaModel(write_family(family, tmp_path))))
        held, plain = (stack.enter_context(closing(opened(model, n))) for n in (n_seats, 1))
        for i, (context, draft) in enumerate(asked(np.random.default_rng(7))):
            found = held.forward(context, draft).copy()
            plain._clear()
            assert np.array_equal(found, plain.forward(context, draft)), f"step {i}"
            if i % 5 == 0:
                states = [each.copy(len(each.tokens) // 2) for each in held.conversations()]
                held.saved.fetched = [state for state in states if state]
