"""Images through a model's vision encoder give the logits that llama.cpp's own way gives, however they are read."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import llama_cpp.llama_cpp as lib
import numpy as np
import pytest

from bench.instruments.shapes import TINY
from runtime.backends.embedding import Embedder, Vector
from runtime.backends.llama import LlamaBackend
from runtime.backends.model import LlamaModel
from runtime.backends.shared import SharedBackend
from runtime.backends.shown_states import output_rows
from runtime.backends.vision import VisionEncoder
from runtime.core.draft import Draft, Logits, PassInput, Tokens
from runtime.core.errors import ModelError, PictureError, StoppedError
from runtime.core.image_runs import ImageRun, position
from tests.support import pictures
from tests.support.eyes import KINDS, SPATIAL, needs_mtmd, write_projector, write_target

BEFORE, AFTER = "Look at this: ", " What is it?"
N_CTX = 1024
pytestmark = needs_mtmd


class Eyes(NamedTuple):
    """A model, its encoder, and a prompt with an image, whose runs are held."""

    model: LlamaModel
    encoder: VisionEncoder
    data: bytes
    ids: Tokens
    runs: list[ImageRun]

    def backend(self, n_batch: int = 512) -> LlamaBackend:
        """Return a new context."""
        return LlamaBackend(self.model, N_CTX, 5, n_batch)


@pytest.fixture(scope="module", params=KINDS)
def eyes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Eyes]:
    folder = tmp_path_factory.mktemp("eyes")
    model = LlamaModel(write_target(folder, request.param))
    encoder = VisionEncoder(write_projector(folder / "mmproj.gguf", request.param, model.n_embd), model, 1)
    model.vision = encoder
    data = pictures.png(pictures.noise(80, 48))
    ids = prompt(model, encoder, data)
    yield Eyes(model, encoder, data, ids, encoder.embed(ids.tolist(), lambda: False).result())
    encoder.close()
    model.close()


def prompt(model: LlamaModel, encoder: VisionEncoder, *images: bytes) -> Tokens:
    """Return the ids of a prompt with images between two texts."""
    before, after = (model.vocab.encode(text, special=True) for text in (BEFORE, AFTER))
    placed = [token for data in images for token in encoder.place(data).ids]
    return np.array([*before, *placed, *after], dtype=np.int32)


@contextmanager
def own_chunks(eyes: Eyes) -> Iterator[Any]:
    """Text and image of the prompt as llama.cpp's helper divides it."""
    mtmd, handle = eyes.encoder._mtmd, eyes.encoder._handle
    buffer = (ctypes.c_uint8 * len(eyes.data)).from_buffer_copy(eyes.data)
    bitmap = mtmd.mtmd_helper_bitmap_init_from_buf(handle, buffer, len(eyes.data), False)
    text = (BEFORE + mtmd.mtmd_default_marker().decode() + AFTER).encode()
    chunks = mtmd.mtmd_input_chunks_init()
    given = mtmd.mtmd_input_text(text, len(text), False, True)
    assert not mtmd.mtmd_tokenize(handle, chunks, ctypes.byref(given), (mtmd.mtmd_bitmap_p_ctypes * 1)(bitmap), 1)
    yield chunks
    mtmd.mtmd_input_chunks_free(chunks)
    mtmd.mtmd_bitmap_free(bitmap)


def own_way(eyes: Eyes) -> tuple[Logits, int]:
    """Return the last logits [n_vocab] of llama.cpp's helper for the prompt, and the number of its tokens."""
    mtmd, handle = eyes.encoder._mtmd, eyes.encoder._handle
    backend, n_past = eyes.backend(), lib.llama_pos()
    with own_chunks(eyes) as chunks:
        code = mtmd.mtmd_helper_eval_chunks(handle, backend.handle, chunks, 0, 0, 512, True, ctypes.byref(n_past))
    assert not code
    logits = backend._logits(1)[0].copy()
    backend.close()
    return logits, n_past.value


def own_outputs(eyes: Eyes) -> Vector:
    """Return the outputs [n, width] of all tokens of the prompt that llama.cpp's helper computes, chunk by chunk."""
    mtmd, n_past, rows = eyes.encoder._mtmd, lib.llama_pos(), list[Vector]()
    embedder = Embedder(eyes.model, N_CTX, 1)
    embedder._open(512)
    with own_chunks(eyes) as chunks:
        for i in range(mtmd.mtmd_input_chunks_size(chunks)):
            chunk = mtmd.mtmd_input_chunks_get(chunks, i)
            code = mtmd.mtmd_helper_eval_chunk_single(
                eyes.encoder._handle, embedder._handle, chunk, n_past, 0, 512, True, ctypes.byref(n_past)
            )
            assert not code
            n = mtmd.mtmd_input_chunk_get_n_tokens(chunk)
            rows.append(output_rows(embedder._handle, n, embedder.width).copy())
    embedder.close()
    return np.concatenate(rows)


def test_embeddings_are_means_of_the_librarys_own_outputs(eyes: Eyes) -> None:
    expected = own_outputs(eyes).mean(axis=0, dtype=np.float64)
    embedder = Embedder(eyes.model, N_CTX, 1)
    found = embedder.embed(eyes.ids.tolist())
    assert found @ expected / np.linalg.norm(expected) == pytest.approx(1, abs=1e-5)
    text = embedder.embed(eyes.ids[eyes.ids >= 0].tolist())
    assert found @ text < 0.999
    assert np.array_equal(embedder.embed(eyes.ids.tolist()), found)
    embedder.close()


def test_logits_are_those_of_the_librarys_own_way(eyes: Eyes) -> None:
    expected, n = own_way(eyes)
    backend = eyes.backend()
    found = backend.forward(eyes.ids)[0].copy()
    assert n == position(eyes.ids, len(eyes.ids))
    assert (n < len(eyes.ids)) == (eyes.encoder.kind in SPATIAL)
    assert np.array_equal(found, expected)
    backend.close()


def test_the_image_is_what_the_logits_depend_on(eyes: Eyes) -> None:
    other = prompt(eyes.model, eyes.encoder, pictures.png(pictures.noise(80, 48, seed=2)))
    held = eyes.encoder.embed(other.tolist(), lambda: False).result()
    backend = eyes.backend()
    first = backend.forward(eyes.ids)[0].copy()
    assert backend.n_cached(other) == len(eyes.model.vocab.encode(BEFORE, special=True)) + n_around(eyes)
    second = backend.forward(other)[0].copy()
    assert not np.array_equal(first, second)
    assert np.array_equal(backend.forward(eyes.ids)[0], first)
    backend.close()
    assert held


def n_around(eyes: Eyes) -> int:
    """The number of tokens of text that the encoder puts before an image."""
    placed = np.array(eyes.encoder.place(eyes.data).ids)
    return int((placed < 0).argmax())


def test_the_same_pixels_are_the_same_ids_whatever_the_file(eyes: Eyes) -> None:
    pixels = pictures.noise(80, 48)
    assert eyes.encoder.place(pictures.bmp(pixels)).ids == eyes.encoder.place(eyes.data).ids
    assert min(eyes.encoder.place(eyes.data).ids) < 0


@pytest.mark.parametrize("n_batch", [512, 128])
def test_a_prompt_can_be_read_in_pieces_and_resumed(eyes: Eyes, n_batch: int) -> None:
    n = int(np.flatnonzero(eyes.ids < 0)[-1]) + 1
    backend = eyes.backend(n_batch)
    whole = backend.forward(eyes.ids)[0].copy()
    backend.empty()
    for end in (3, n, n + 2, len(eyes.ids)):
        found = backend.forward(eyes.ids[:end])[0].copy()
    assert np.allclose(found, whole, atol=2e-2)
    assert backend.n_cached(eyes.ids) == len(eyes.ids) - 1
    draft = Draft((5, 6, 7))
    assert backend.forward(eyes.ids, draft).shape == (4, eyes.model.vocab.n_vocab)
    assert np.allclose(backend.forward(eyes.ids)[0], whole, atol=2e-2)
    backend.close()


def test_conversations_with_images_share_passes(eyes: Eyes) -> None:
    text = np.array(eyes.model.vocab.encode("Something else entirely", special=False), dtype=np.int32)
    alone = eyes.backend()
    expected = [alone.forward(each)[0].copy() for each in (eyes.ids, text)]
    alone.close()
    shared = SharedBackend(eyes.model, N_CTX, 5, 512, 2)
    shared.set_slots(2)
    n = int(np.flatnonzero(eyes.ids < 0)[-1]) + 1
    for image_end in (n, len(eyes.ids)):
        found = shared.forward_all([PassInput(eyes.ids[:image_end]), PassInput(text)])
    assert all(np.allclose(each[0], logits, atol=2e-2) for each, logits in zip(found, expected, strict=True))
    shared.close()


def test_encoding_can_be_cancelled_and_is_done_once(eyes: Eyes, monkeypatch: pytest.MonkeyPatch) -> None:
    data = pictures.png(pictures.noise(40, 40, seed=9))
    ids = prompt(eyes.model, eyes.encoder, data).tolist()
    with pytest.raises(StoppedError):
        eyes.encoder.embed(ids, lambda: True).result()
    encoded: list[int] = []
    encode = eyes.encoder._encode
    monkeypatch.setattr(eyes.encoder, "_encode", lambda run: (encoded.append(len(run.ids)), encode(run)))
    held = eyes.encoder.embed(ids, lambda: False).result()
    assert eyes.encoder.embed(ids, lambda: False).result() == held
    assert encoded == [len(run.ids) for run in held]


def test_a_forgotten_image_and_a_damaged_one_are_a_sentence(eyes: Eyes) -> None:
    with pytest.raises(ModelError, match="Send it again"):
        eyes.encoder.embed([1, -4, 2], lambda: False)
    damaged = pictures.png(pictures.noise(8, 8), data=b"\x09" * (8 * 25))  # rows of no known form
    with pytest.raises(PictureError, match="damaged"):
        eyes.encoder.place(damaged)


def test_an_encoder_of_another_model_is_refused(eyes: Eyes, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=rf"its embeddings are {2 * TINY.width + 32} wide"):
        VisionEncoder(write_projector(tmp_path / "mmproj.gguf", eyes.encoder.kind, 2 * TINY.width + 32), eyes.model, 1)


def test_an_image_without_numbers_is_encoded_again(eyes: Eyes, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = prompt(eyes.model, eyes.encoder, pictures.png(pictures.noise(56, 40, seed=11)))
    (run, *_) = eyes.encoder.runs_in(ids)
    output, n_encoded = eyes.encoder._mtmd.mtmd_get_output_embd, 0
    nothing = np.full(len(run.ids) * eyes.encoder.width, np.nan, dtype=np.float32)

    def seldom(handle: object) -> object:
        nonlocal n_encoded
        n_encoded += 1
        is_first = n_encoded == 1
        return ctypes.cast(nothing.ctypes.data, ctypes.POINTER(ctypes.c_float)) if is_first else output(handle)

    monkeypatch.setattr(eyes.encoder._mtmd, "mtmd_get_output_embd", seldom)
    eyes.encoder._encode(run)
    assert n_encoded == 2
    assert run.rows is not None
    assert np.isfinite(run.rows).all()
