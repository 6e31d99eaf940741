"""A model's vision encoder through llama.cpp's mtmd: from the bytes of a picture to ids, and to embeddings.

An image is encoded once: its embeddings are kept as long as anyone holds its runs, and the latest ones longer. Knows
pictures and the model that reads them; decodes nothing with it.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import llama_cpp.llama_cpp as lib
import numpy as np
from numpy.typing import NDArray

from runtime.backends import library
from runtime.backends.model import LlamaModel
from runtime.backends.mtmd_library import mtmd
from runtime.core.draft import Tokens
from runtime.core.errors import ModelError, PictureError, StoppedError
from runtime.core.image_runs import ImageRows, ImageRun, Places, has_images, ids_of, position, stretch
from runtime.core.memory import trim_heap
from runtime.models.content import content_of
from runtime.models.picture import check_picture
from runtime.models.projector import check_width, read_projector

MAX_KEPT = 2**28  # bytes of embeddings of images that nobody holds
FORGOTTEN = "An image of the conversation is no longer in memory. Send it again."
NOWHERE = os.fsencode(Path(os.devnull) / "nowhere")  # where no video decoder is: mtmd would try one on damaged pictures
MAX_IDS = 2**20  # ids of one image
TRIES = 4  # to encode an image


@dataclass(frozen=True, slots=True)
class PlacedImage:
    """An image in a prompt: its ids [n], among them those of text that the encoder puts around it, and its runs."""

    ids: tuple[int, ...]
    runs: tuple[ImageRun, ...]

    def n_bytes(self, width: int) -> int:
        """Return the bytes of its embeddings of this width."""
        return 4 * width * sum(len(run.ids) for run in self.runs)


class VisionEncoder:
    """The vision encoder of a model. Its methods may be called on any thread, `close` when no other one runs.

    Raises ModelError where the file, the library or the model do not fit together.
    """

    def __init__(
        self, path: Path, model: LlamaModel, n_threads: int, uses_gpu: bool = True, warms_up: bool = True
    ) -> None:
        found = read_projector(path)
        self.kind, self.n_needed = found.kind, found.n_needed
        self.width: int = lib.llama_model_n_embd_inp(model.handle)
        check_width(path, found, model.n_embd, model.path.name)
        self._mtmd, self._key = mtmd(), content_of(path).encode()
        self._handle = self._opened(path, model, n_threads, uses_gpu, warms_up)
        self.is_spatial = bool(self._mtmd.mtmd_decode_use_mrope(self._handle))
        self._images = OrderedDict[bytes, PlacedImage]()  # by the hash of their files, the latest last
        self._runs = WeakValueDictionary[int, ImageRun]()  # by their first ids
        self._lock, self._encoding = threading.Lock(), ThreadPoolExecutor(1, "images")

    def _opened(self, path: Path, model: LlamaModel, n_threads: int, uses_gpu: bool, warms_up: bool) -> Any:
        params = self._mtmd.mtmd_context_params_default()
        params.use_gpu, params.print_timings, params.warmup = uses_gpu, False, warms_up
        params.n_threads = n_threads
        library.complaints()
        trim_heap()  # so that the encoder's buffers, of which llama.cpp's Pixtral does not write all, are new and so 0
        handle = self._mtmd.mtmd_init_from_file(os.fsencode(path), model.handle, params)
        if not handle:
            why = library.why() or "no reason given"
            raise ModelError(f"{path.name} could not be loaded as the vision encoder of {model.path.name} ({why}).")
        return handle

    def ids(self, data: bytes) -> Sequence[int]:
        """See ImageReader."""
        return self.place(data).ids

    def place(self, data: bytes) -> PlacedImage:
        """Return an image as it stands in a prompt, from the bytes of its file. Raises PictureError."""
        name = hashlib.sha256(data).digest()
        with self._lock:
            if name in self._images:
                self._images.move_to_end(name)
                return self._images[name]
            check_picture(data)
            placed = self._placed(data)
            self._images[name] = placed
            left = MAX_KEPT - placed.n_bytes(self.width)
            for older in [*reversed(self._images)][1:]:
                left -= self._images[older].n_bytes(self.width)
                if left < 0:
                    del self._images[older]
            return placed

    def _placed(self, data: bytes) -> PlacedImage:
        """Decode a picture and divide it into what the model reads one after the other."""
        options = self._mtmd.mtmd_helper_init_opt_default()
        options.video_params.ffmpeg_bin_dir = NOWHERE
        buffer = (ctypes.c_uint8 * len(data)).from_buffer_copy(data)
        bitmap = self._mtmd.mtmd_helper_bitmap_init_from_buf(self._handle, buffer, len(data), False, options)
        if not bitmap:
            library.complaints()
            raise PictureError(
                "The image is damaged, or of a kind that cannot be read. Save it again as a PNG or JPEG."
            )
        try:
            return self._divided(bitmap)
        finally:
            self._mtmd.mtmd_bitmap_free(bitmap)

    def _divided(self, bitmap: Any) -> PlacedImage:
        key = self._pixels_key(bitmap)
        chunks = self._mtmd.mtmd_input_chunks_init()
        try:
            mark = self._mtmd.mtmd_default_marker()
            text = self._mtmd.mtmd_input_text(mark, len(mark), False, True)
            bitmaps = (self._mtmd.mtmd_bitmap_p_ctypes * 1)(bitmap)
            if self._mtmd.mtmd_tokenize(self._handle, chunks, ctypes.byref(text), bitmaps, 1):
                raise PictureError(f"The image cannot be encoded ({library.why() or 'no reason given'}).")
            n = self._mtmd.mtmd_input_chunks_size(chunks)
            parts = [self._part(self._mtmd.mtmd_input_chunks_get(chunks, i), key, i) for i in range(n)]
        finally:
            self._mtmd.mtmd_input_chunks_free(chunks)
        ids = np.concatenate([part.ids if isinstance(part, ImageRun) else part for part in parts])
        if len(ids) > MAX_IDS:
            raise PictureError(f"The image would take {len(ids)} tokens. Make it smaller.")
        return PlacedImage(tuple(ids.tolist()), tuple(part for part in parts if isinstance(part, ImageRun)))

    def _pixels_key(self, bitmap: Any) -> bytes:
        """Return a hash of a picture's pixels and of the encoder's file."""
        size = [self._mtmd.mtmd_bitmap_get_nx(bitmap), self._mtmd.mtmd_bitmap_get_ny(bitmap)]
        address = ctypes.cast(self._mtmd.mtmd_bitmap_get_data(bitmap), ctypes.c_void_p).value
        n = self._mtmd.mtmd_bitmap_get_n_bytes(bitmap)
        pixels = (ctypes.c_uint8 * n).from_address(address)
        return hashlib.sha256(b"%d %d " % (*size,) + self._key + memoryview(pixels)).digest()

    def _part(self, chunk: Any, key: bytes, number: int) -> Tokens | ImageRun:
        """Return the ids of a chunk of text, or the run of a chunk of the image."""
        n = self._mtmd.mtmd_input_chunk_get_n_tokens(chunk)
        if self._mtmd.mtmd_input_chunk_get_type(chunk) == 0:
            size = ctypes.c_size_t()
            tokens = self._mtmd.mtmd_input_chunk_get_tokens_text(chunk, ctypes.byref(size))
            ids = np.array(tokens[: size.value], dtype=np.int32)
            if has_images(ids):
                raise ModelError("The model's vocabulary lacks a token that its vision encoder puts around images.")
            return ids
        ids = ids_of(b"%s %d" % (key, number), n, self._mtmd.mtmd_input_chunk_get_n_pos(chunk))
        if (known := self._runs.get(int(ids[0]))) and np.array_equal(known.ids, ids):
            return known
        is_causal = not self._mtmd.mtmd_decode_use_non_causal(self._handle, chunk)
        copy, free = self._mtmd.mtmd_input_chunk_copy(chunk), self._mtmd.mtmd_input_chunk_free
        run = ImageRun(ids, copy, free, is_causal, self._places(chunk, n) if self.is_spatial else None)
        self._runs[int(ids[0])] = run
        return run

    def _places(self, chunk: Any, n: int) -> Places:
        """Return the positions of an image's tokens in three dimensions, in the library's order."""
        found, buffer = list[NDArray[np.int32]](), (self._mtmd.mtmd_decoder_pos * n)()
        for first in range(2):
            image = self._mtmd.mtmd_input_chunk_get_tokens_image(chunk)
            self._mtmd.mtmd_helper_image_get_decoder_pos(image, first, buffer)
            found.append(np.array([(each.t, each.y, each.x, each.z) for each in buffer], dtype=np.int32).T)
        return found[0], found[1]

    def embed(self, tokens: Sequence[int], is_cancelled: Callable[[], bool]) -> Future[list[ImageRun]]:
        """See ImageReader."""
        runs = self.runs_in(np.asarray(tokens, dtype=np.int32))
        if all(run.rows is not None for run in runs):
            (known := Future[list[ImageRun]]()).set_result(runs)
            return known
        return self._encoding.submit(self._encode_all, runs, is_cancelled)

    def _encode_all(self, runs: list[ImageRun], is_cancelled: Callable[[], bool]) -> list[ImageRun]:
        """Encode those of the runs that are not, and return all. Raises StoppedError and ModelError."""
        for run in runs:
            if is_cancelled():
                raise StoppedError
            if run.rows is None:
                self._encode(run)
        return runs

    def _encode(self, run: ImageRun) -> None:
        """Compute a run's embeddings. Raises ModelError. llama.cpp's Pixtral multiplies memory that nobody has written
        by 0, which gives no number where it happens to hold none, so that is tried again.
        """
        for _ in range(TRIES):
            if self._mtmd.mtmd_encode_chunk(self._handle, run.chunk):
                raise ModelError(f"llama.cpp could not encode an image ({library.why() or 'no reason given'}).")
            n = len(run.ids)
            address = ctypes.cast(self._mtmd.mtmd_get_output_embd(self._handle), ctypes.c_void_p).value
            rows = np.ctypeslib.as_array((ctypes.c_float * (n * self.width)).from_address(address or 0))
            if np.isfinite(rows).all():
                run.keep(rows.reshape(n, self.width).copy())
                return
        raise ModelError("llama.cpp computed no numbers for an image. Send it in another size.")

    def runs_in(self, tokens: Tokens) -> list[ImageRun]:
        """Return the runs of images among `tokens` [n], in order. Raises ModelError for one that is not known."""
        at, places, found = 0, np.flatnonzero(tokens < 0), list[ImageRun]()
        while at < len(places):
            run = self._runs.get(int(tokens[places[at]]))
            if run is None:
                raise ModelError(FORGOTTEN)
            found.append(run)
            at += len(run.ids)
        return found

    def rows(self, tokens: Tokens, start: int, end: int) -> ImageRows:
        """See ImageReader."""
        begin, _ = stretch(tokens, start)
        at = start - begin
        for run in self.runs_in(tokens[begin:end]):
            if at < len(run.ids):
                break
            at -= len(run.ids)
        if run.rows is None or (not run.is_causal and (at or end - start < len(run.ids))):
            raise ModelError(FORGOTTEN if run.rows is None else "An image is longer than a pass, so it cannot be read.")
        rows, places = run.rows[at : at + end - start], None
        if run.places is not None:
            first, second = (each[:, at : at + len(rows)] for each in run.places)
            places = np.ascontiguousarray(first + position(tokens, start - at) * (second - first))
        return ImageRows(rows, run.is_causal, places)

    def close(self) -> None:
        """Free the encoder and all images, once it encodes none."""
        self._encoding.shutdown(cancel_futures=True)
        self._images.clear()
        if self._handle:
            self._mtmd.mtmd_free(self._handle)
            self._handle = None
