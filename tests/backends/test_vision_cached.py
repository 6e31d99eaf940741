"""Images in a cache: drafts after them, copies of conversations, shared passes, pieces, and what is never cut."""

from __future__ import annotations

from pathlib import Path

import llama_cpp.llama_cpp as lib
import numpy as np
import pytest

from bench.instruments.architectures.writer import write_family
from runtime.backends.contexts import RecurrentBackend
from runtime.backends.llama import LlamaBackend
from runtime.backends.model import LlamaModel
from runtime.backends.shared import SharedBackend
from runtime.backends.vision import VisionEncoder
from runtime.core.draft import Draft, Logits, PassInput, Tokens
from runtime.core.errors import StoppedError
from tests.backends.test_vision import N_CTX, Eyes, eyes, prompt
from tests.support import pictures
from tests.support.eyes import SPATIAL, needs_mtmd, write_projector

__all__ = ["eyes"]  # a fixture
pytestmark = needs_mtmd


def same(found: Logits, expected: Logits) -> bool:
    """Whether logits are the same up to rounding."""
    return bool(np.allclose(found, expected, atol=2e-2))


def test_drafts_after_an_image_are_taken_back_and_trees_are_read(eyes: Eyes) -> None:
    backend = LlamaBackend(eyes.model, N_CTX, 8, 512, can_branch=True)
    fresh = eyes.backend()
    for draft in (Draft((5, 6, 7)), Draft((5, 6, 9, 8), parents=(-1, 0, 0, 1))):
        rows = backend.forward(eyes.ids, draft).copy()
        for taken, row in (((), 0), ((5,), 1), ((5, 6), 2)):
            context = np.array([*eyes.ids, *taken], dtype=np.int32)
            assert same(rows[row], fresh.forward(context)[0])
        other = np.array([*eyes.ids, 5, 9, 11], dtype=np.int32)
        assert same(backend.forward(other)[0], fresh.forward(other)[0])
    backend.close()
    fresh.close()


def test_conversations_with_images_are_copied_and_come_back(eyes: Eyes) -> None:
    other = prompt(eyes.model, eyes.encoder, pictures.png(pictures.noise(48, 80, seed=4)), eyes.data)
    held = eyes.encoder.embed(other.tolist(), lambda: False).result()
    backend = eyes.backend()
    backend.set_slots(3)
    expected = [backend.forward(each)[0].copy() for each in (eyes.ids, other)]
    for each, logits in zip((eyes.ids, other), expected, strict=True):
        longer = np.array([*each, 7, 8], dtype=np.int32)
        assert backend.n_cached(longer) >= len(each) - 1
        assert same(backend.forward(longer, Draft((3,)))[0], fresh_logits(eyes, longer))
        assert same(backend.forward(each)[0], logits)
    backend.close()
    assert held


def fresh_logits(eyes: Eyes, context: Tokens) -> Logits:
    """The logits of a context that is read at once."""
    backend = eyes.backend()
    found = backend.forward(context)[0].copy()
    backend.close()
    return found


@pytest.mark.parametrize("eyes", SPATIAL, indirect=True)
def test_a_large_image_is_read_in_parts_and_never_cut(eyes: Eyes) -> None:
    data = pictures.png(pictures.noise(400, 416, seed=6))
    ids = prompt(eyes.model, eyes.encoder, data)
    held = eyes.encoder.embed(ids.tolist(), lambda: False).result()
    begin, end = (int(np.flatnonzero(ids < 0)[i]) + (i < 0) for i in (0, -1))
    assert end - begin == 25 * 26
    expected = fresh_logits(eyes, ids)
    shared = SharedBackend(eyes.model, N_CTX, 5, 128, 3)
    shared.set_slots(3)
    text = np.array([3, 4, 5, 6], dtype=np.int32)
    for part in (begin + 100, begin + 300):  # others decode between them
        shared.forward(ids[:part])
        assert shared.n_cached(ids) == part
        shared.forward_all([PassInput(text)])
        text = np.append(text, np.int32(7))
    found = shared.forward(ids)[0].copy()
    assert same(found, expected)
    cut = np.array([*ids[: begin + 50], 9, 10], dtype=np.int32)  # the rest of that image is not there
    shared.forward(ids[: begin + 200])
    assert shared.n_cached(cut) <= begin
    joint = shared.forward_all([PassInput(np.append(ids, np.int32(5))), PassInput(text)])
    assert same(joint[0][0], fresh_logits(eyes, np.append(ids, np.int32(5))))
    assert same(joint[1][0], fresh_logits(eyes, text))
    shared.close()
    assert held


@pytest.mark.parametrize("eyes", SPATIAL, indirect=True)
def test_a_pass_that_is_stopped_within_an_image_leaves_none_of_it(eyes: Eyes) -> None:
    ids = prompt(eyes.model, eyes.encoder, pictures.png(pictures.noise(400, 416, seed=6)))
    held = eyes.encoder.embed(ids.tolist(), lambda: False).result()
    begin = int(np.flatnonzero(ids < 0)[0])
    backend = eyes.backend(128)
    passes = backend._decode

    def stopping(batch: lib.llama_batch) -> None:
        if batch.embd and backend.seat.n_held > begin + 100:
            raise StoppedError
        passes(batch)

    backend._decode = stopping  # type: ignore[method-assign]
    with pytest.raises(StoppedError):
        backend.forward(ids)
    assert backend.seat.n_held == begin
    backend._decode = passes  # type: ignore[method-assign]
    assert same(backend.forward(ids)[0], fresh_logits(eyes, ids))
    backend.close()
    assert held


def test_states_of_recurrent_layers_are_kept_before_and_after_images(tmp_path: Path) -> None:
    model = LlamaModel(write_family("qwen35", tmp_path))
    encoder = VisionEncoder(write_projector(tmp_path / "mmproj.gguf", "qwen2vl_merger", model.n_embd), model, 1)
    model.vision = encoder
    eyes = Eyes(model, encoder, b"", np.empty(0, dtype=np.int32), [])
    ids = prompt(model, encoder, *(pictures.png(pictures.noise(160, 128, seed)) for seed in (1, 2)))
    held = encoder.embed(ids.tolist(), lambda: False).result()
    backend = RecurrentBackend(model, N_CTX, 5, 128)
    backend.set_slots(2)
    begin, end = (int(np.flatnonzero(ids < 0)[i]) + (i < 0) for i in (0, -1))
    other = np.array([*ids[: end + 2], 9, 10, 11], dtype=np.int32)
    for each in (ids[: begin + 30], ids, other, ids[:end], np.append(ids, np.int32(5)), other[: begin - 2]):
        draft = Draft(() if each[-1] < 0 else (3, 4))
        assert same(backend.forward(each, draft)[0], recurrent_logits(eyes, each))
    backend.close()
    encoder.close()
    model.close()
    assert held


def recurrent_logits(eyes: Eyes, context: Tokens) -> Logits:
    """As `fresh_logits`, of a recurrent model."""
    backend = RecurrentBackend(eyes.model, N_CTX, 5, 512)
    found = backend.forward(context)[0].copy()
    backend.close()
    return found


def test_passes_of_a_fixed_width_read_images_too(eyes: Eyes) -> None:
    n = int(np.flatnonzero(eyes.ids < 0)[-1]) + 1
    backend = eyes.backend()
    backend.pad(5)
    for end in (n, n + 1, len(eyes.ids)):
        found = backend.forward(eyes.ids[:end])[0].copy()
    assert same(found, fresh_logits(eyes, eyes.ids))
    backend.close()
