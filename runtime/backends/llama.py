"""GGUF models through llama.cpp's low-level API: LlamaBackend runs one over a cached context."""

from __future__ import annotations

import ctypes

import llama_cpp.llama_cpp as lib

from runtime.backends import library
from runtime.backends.images import ImageDecoding
from runtime.backends.model import LlamaModel
from runtime.backends.pass_switches import Attention, StopFlag
from runtime.backends.seat import RowBatch, Seat
from runtime.backends.shown_states import ShownStates, rows_at
from runtime.backends.stored.saved_states import SavedStates
from runtime.backends.tree import FIRST_BRANCH, MAIN, TreeCache
from runtime.core.draft import NO_DRAFT, Draft, Logits, Tokens
from runtime.core.errors import ContextError, ModelError, NoMemoryError, StoppedError
from runtime.core.image_runs import around, has_images

GARBAGE_CELLS = 512  # cells for rejected branches, before the cache is rebuilt


class LlamaBackend(ImageDecoding):
    """One context of a model: implements Backend.

    `n_rows` is the length of the longest draft, plus one; `can_branch` allows trees.
    """

    takes_trees = takes_padding = True

    def __init__(
        self, model: LlamaModel, n_ctx: int, n_rows: int = 17, n_batch: int = 512, can_branch: bool = False
    ) -> None:
        self.model, self.n_vocab, self.can_branch = model, model.vocab.n_vocab, can_branch
        self.n_rows, self.n_batch = n_rows, max(n_batch, n_rows)
        self.handle = lib.llama_init_from_model(model.handle, self._params(n_ctx))
        if not self.handle:
            complaints = library.complaints()
            reason = "; ".join(complaints[-2:]) or "no reason given"
            raise (NoMemoryError if any("allocate" in line for line in complaints) else ModelError)(
                f"No context of {n_ctx} tokens could be made for {model.path.name} ({reason}). Try a smaller context."
            )
        self.memory, self.stop_flag = lib.llama_get_memory(self.handle), StopFlag(self.handle)
        self.attention = Attention(self.handle, model.cache_types)
        self.tree, self.saved = TreeCache(self.memory), SavedStates(self.handle)
        self.n_cells: int = lib.llama_n_ctx(self.handle)  # tokens for which the cache has room
        self.n_ctx: int = min(n_ctx, self.n_cells)
        self.n_rewindable = self.n_ctx
        self.n_decoded, self.pass_rows = 0, 1  # rows decoded since the start; minimum rows of a pass
        self.shown = ShownStates(self.handle, model.n_embd)
        self.seat = Seat(MAIN, self.n_ctx)
        self._batch = RowBatch(self.n_ctx, self.n_batch, self.n_rows)

    def _params(self, n_ctx: int) -> lib.llama_context_params:
        params = self.model.context_params()
        params.n_ctx = n_ctx + GARBAGE_CELLS * self.can_branch
        params.n_batch = params.n_ubatch = self.n_batch
        params.n_seq_max, params.kv_unified = self.n_spare + bool(self.model.window), True
        params.n_outputs_max, params.n_outputs_max_per_seq = max(self.n_rows, params.n_seq_max), self.n_rows
        params.swa_full = True
        return params

    @property
    def n_spare(self) -> int:
        """Id of a sequence in which nothing is decoded, where layers have sliding windows."""
        return self.n_rows + FIRST_BRANCH if self.can_branch else 1

    @property
    def n_before(self) -> int:
        """Number of cells of other conversations in front of this conversation's next cell."""
        return 0

    def set_threads(self, one: int, many: int) -> None:
        """Set the threads for passes of one row and of several rows."""
        lib.llama_set_n_threads(self.handle, one, many)

    def pad(self, rows: int) -> None:
        """Give passes over the last token and a draft at least `rows` rows from now on, up to `n_rows`.

        Padding rows follow whose logits are not read and whose cells are removed. Kernels that are chosen by width are
        then the same for all these passes.
        """
        self.pass_rows = rows

    def forward(self, context: Tokens, draft: Draft = NO_DRAFT, exact: bool = True) -> Logits:
        """Return logits [1 + len(draft), n_vocab] that follow `context` and each draft token; see Backend."""
        n, k = len(context), len(draft.tokens)
        if n + k > self.n_ctx:
            raise ContextError(
                f"{n + k} tokens do not fit the context of {self.n_ctx}. Shorten the prompt, or raise `--context`."
            )
        if n == 0 or k >= self.n_rows or (draft.parents is not None and not self.can_branch):
            raise ValueError(f"{n} tokens and a draft of {k} cannot be decoded")
        start = self._with_room(self._rewind(context, exact), self._padded_end(n - 1, n + k))
        seat = self.seat
        seat.tokens[start:n] = context[start:]
        seat.tokens[n : n + k] = draft.tokens
        most = self._most_read(exact)
        if draft.parents is not None:
            logits = self._decode_tree(start, n, draft, most)
        elif self.pass_rows > 1 and context[-1] >= 0:
            logits = self._decode_padded(start, n - 1, n + k)
        else:
            self._decode_chain(start, n + k, 1 + k, most)
            logits = self._logits(1 + k)
        seat.reuse.extend(start, n, n + k, exact or (k == 0 and self._is_piece(start, n)))
        return logits

    def _decode_tree(self, start: int, n: int, draft: Draft, most: int | None) -> Logits:
        """Decode the seat's tokens [start, n) and a token tree; return the last token's and the tree's logits."""
        self._decode_chain(start, n - 1, 0, most)
        self._run(self.tree.batch(int(self.seat.tokens[n - 1]), n, draft, self._position(n) - n), n - 1, n)
        return self._logits(1 + len(draft.tokens))

    def _padded_end(self, start: int, end: int) -> int:
        """Return the end of a pass over positions [start, end), including its padding rows."""
        return min(max(end, start + self.pass_rows), self.n_ctx)

    def _decode_padded(self, start: int, first: int, end: int) -> Logits:
        """Decode the seat's tokens [start, end) and padding rows; return the logits from `first` on."""
        padded = start if end - start <= self.pass_rows and not has_images(self.seat.tokens[start:end]) else first
        self._decode_chain(start, padded, 0)
        last = self._padded_end(padded, end)
        self.seat.tokens[end:last] = self.seat.tokens[end - 1]
        self._run(self._window(padded, last - padded, last - padded), padded, last)
        self._drop(end)
        return self._logits(end - padded)[first - padded :]

    def _with_room(self, start: int, end: int) -> int:
        """Make room for positions up to `end`; return the number of tokens cached afterwards."""
        if end + len(self.tree.garbage) <= self.n_cells:
            return start
        self._clear()
        return 0

    def _rewind(self, context: Tokens, exact: bool) -> int:
        """Resume the conversation of `context`, and do as `_cut_back`."""
        self.resume(context, exact)
        return self._cut_back(context, exact)

    def empty(self) -> None:
        """Empty the cache."""
        self._clear(wipes=False)

    def cut_to(self, context: Tokens) -> None:
        """Drop the current conversation's cells from the last token of `context` on, as another context reads them."""
        self._rewind(context, exact=False)

    def _cut_back(self, context: Tokens, exact: bool) -> int:
        """Truncate the cache of the current conversation to its common prefix with context[:-1]; return its length."""
        start = self._n_shared(context, exact)
        self.seat.reuse.adapters = self.saved.adapters
        if self.tree.draft.tokens:
            taken = self._taken(context, start)
            self.tree.settle(taken)
            self.seat.tokens[start : start + len(taken)] = context[start : start + len(taken)]
            self.seat.n_held += len(taken)
            start += len(taken)
        return self._drop(start) if start < self.seat.n_held else start

    def _decode_chain(self, start: int, end: int, n_outputs: int, most: int | None = None) -> None:
        """Decode the seat's tokens [start, end), with logits for the last `n_outputs`, which are in one batch."""
        most = most or self.n_batch  # rows of a batch
        if self.model.vision is not None:
            start = self._decode_images(self.model.vision, start, end, n_outputs, most)
        while start < end:
            rows = end - start if end - start <= most else min(most, end - start - n_outputs)
            self._run(self._window(start, rows, n_outputs if start + rows == end else 0), start, start + rows)
            start += rows

    def _window(self, start: int, rows: int, n_outputs: int) -> lib.llama_batch:
        """Return a batch over the seat's tokens [start, start + rows), with logits for the last `n_outputs`."""
        return self._batch.of_seat(self.seat, start, rows, n_outputs, self._position(start))

    def _run(self, batch: lib.llama_batch, start: int, n_held: int) -> None:
        """Decode a batch that begins at position `start`; after it the main sequence has `n_held` tokens."""
        try:
            self._decode(batch)
        except StoppedError:
            self._drop(around(self.seat.tokens[:n_held], start)[0])
            raise
        self.seat.n_held = n_held
        if self.shown.listener is not None:
            self.shown.pass_on(self.seat.tokens[:n_held], start, 0)

    def _decode(self, batch: lib.llama_batch) -> None:
        """Decode a batch. Raises StoppedError; ModelError and interrupts leave an empty cache."""
        self.n_decoded += batch.n_tokens
        if self.attention.has_blocks:
            self.attention.prepare(batch.n_tokens)
        if self.shown.shows_outputs:
            self.shown.prepare(batch, self.n_rows)
        if self._switch:
            self._switch.set(self.saved.adapters)
        try:
            code = lib.llama_decode(self.handle, batch)
        except BaseException:  # an interrupt: the content of the cache is unknown
            self._clear()
            raise
        if code == StopFlag.STOPPED:
            raise StoppedError
        if code:
            self._clear()
            raise ModelError(f"llama.cpp could not decode {batch.n_tokens} tokens (code {code}): {library.why()}")

    def _logits(self, rows: int) -> Logits:
        """Return the library's own buffer as [rows, n_vocab]."""
        address = ctypes.addressof(lib.llama_get_logits(self.handle).contents)
        return rows_at(address, rows, self.n_vocab)

    def close(self) -> None:
        """Free the context; the model stays."""
        if self.handle:
            self.set_slots(1)
            lib.llama_free(self.handle)
            self.handle = None
