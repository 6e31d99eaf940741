"""Passes of a target's first layers, in its own context and cache.

An early pass computes the first layers of a row and then the head. Its keys and values stay in the cache and its hidden
row is kept, so that the verifying pass needs only the layers above. Knows tokens, rows and the cache; nodes.py skips
the nodes.

Positions [0, n_held) are in the cache with all layers, as in LlamaBackend; the next _n_low positions with the first
layers only. Every other pass drops those first, so no layer ever attends to missing cells.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import llama_cpp.llama_cpp as lib
import numpy as np

from runtime.backends.heads.graph import Cells, EarlyExitError, Rows, Run
from runtime.backends.heads.nodes import Nodes
from runtime.backends.llama import LlamaBackend
from runtime.backends.model import LlamaModel
from runtime.backends.tree import MAIN
from runtime.backends.trimmed import NEVER
from runtime.core.draft import NO_DRAFT, Draft, Logits, Tokens, common_prefix
from runtime.core.errors import ContextError, ModelError

Steer = Callable[[Run, Rows, Cells], object]  # runs one kind of pass and stores rows and cells


class EarlyPasses(LlamaBackend):
    """A target that also computes passes of its first `exit_layer` layers.

    Raises EarlyExitError where that is impossible.
    """

    takes_padding = False

    def __init__(self, model: LlamaModel, n_ctx: int, n_rows: int = 17, n_batch: int = 512) -> None:
        if model.is_recurrent:
            raise EarlyExitError("its architecture cannot drop rejected tokens")
        self.nodes, self.n_layers = Nodes(), int(lib.llama_model_n_layer(model.handle))
        if self.n_layers < 2:
            raise EarlyExitError("it has only one layer")
        self._n_low = 0
        super().__init__(model, n_ctx, n_rows, n_batch)
        try:
            self.nodes.learn(self.handle, lambda: LlamaBackend.forward(self, np.zeros(1, np.int32), Draft((0,))))
            self.exit_at(1)
        except EarlyExitError:
            self.close()
            raise
        # The first layers' output, from position `n_held` on
        self._rows = np.empty((self.n_rows, self.nodes.width), dtype=np.float32)
        self._cells = np.empty((self.nodes.n_cells, self.n_rows), dtype=np.int64)
        self.reuses = False  # until it is checked
        self.n_reused = 0  # hidden rows that were reused

    def _params(self, n_ctx: int) -> lib.llama_context_params:
        params = super()._params(n_ctx)
        params.cb_eval = ctypes.cast(self.nodes.callback, lib.ggml_backend_sched_eval_callback)
        return params

    def exit_at(self, layer: int) -> None:
        """Draft with the first `layer` layers from now on.

        Raises ModelError when that is none or all of the model's layers.
        """
        if not 0 < layer < self.n_layers:
            name, most = self.model.path.name, self.n_layers - 1
            raise ModelError(
                f"exit_layer is {layer}, but {name} has {self.n_layers} layers. Set it to one from 1 to {most}."
            )
        self._drop_low(0)
        self.nodes.exit_after(layer, self.n_layers)
        self.exit_layer = layer

    def forward(self, context: Tokens, draft: Draft = NO_DRAFT, exact: bool = True) -> Logits:
        """Return logits as LlamaBackend does; of a draft that was decoded early only the layers above are computed."""
        if not self._was_early(context, draft, exact):
            return super().forward(context, draft, exact)
        self.seat.reuse.extend(self.seat.n_held, len(context), len(context) + len(draft), exact)
        try:
            return self._verify(draft)
        except ModelError:  # the cache is empty by now
            self.reuses = False
            return super().forward(context, draft, exact)

    def _verify(self, draft: Draft) -> Logits:
        """Return the logits that follow the token at position `n_held` and each draft token, from their kept rows."""
        start, rows = self.seat.n_held, 1 + len(draft)
        if self._n_low < rows:
            self.seat.tokens[start + rows - 1] = draft.tokens[-1]
            self._decode_low(1, self.nodes.lower)
        self._drop_low(0)
        kept, cells = self._rows[:rows], self._cells[:, :rows]
        with self._cleared_on_error():
            self.n_reused += rows * self.nodes.upper(lambda: self._pass(start, rows, start + rows), kept, cells)
        return self._logits(rows)

    def _was_early(self, context: Tokens, draft: Draft, exact: bool) -> bool:
        """Return whether all rows of that pass, except perhaps the last, are kept.

        False for an empty draft, because the controller measures the cost of plain passes.
        """
        start, k = self.seat.n_held, len(draft)
        if (
            not 0 < k <= self._n_low
            or not self.reuses
            or draft.parents is not None
            or k >= self.n_rows
            or len(context) - 1 != start
        ):
            return False
        n = min(self._n_low, 1 + k)
        expected = [int(context[-1]), *draft.tokens][:n]
        return (
            start + k < self.n_ctx
            and self._n_shared(context, exact) == start
            and self.seat.tokens[start : start + n].tolist() == expected
        )

    def forward_early(self, context: Tokens, draft: Draft = NO_DRAFT, steer: Steer | None = None) -> Logits:
        """Return early logits [1 + len(draft), n_vocab] that follow `context` and each draft token.

        Missing tokens of `context` before its last one are decoded with all layers, as a prompt is.
        """
        n, rows = len(context), 1 + len(draft)
        if n + rows - 1 > self.n_ctx:
            raise ContextError(
                f"{n + rows - 1} tokens do not fit the context of {self.n_ctx}. Shorten the prompt or load with a "
                "larger context."
            )
        if n == 0 or rows > self.n_rows or draft.parents is not None:
            raise ValueError(f"{n} tokens and a draft of {rows - 1} cannot be decoded early")
        n_low = n - 1 - self.seat.n_held
        if self.n_cached_early(context) == n - 1 and 0 <= n_low <= self.n_rows - rows:
            self._drop_low(n_low)
        else:
            start = self._rewind(context, exact=False)
            self.seat.tokens[start : n - 1] = context[start : n - 1]
            self._decode_chain(start, n - 1, 0)
        self.seat.tokens[n - 1 : n - 1 + rows] = [context[-1], *draft.tokens]
        self._decode_low(rows, steer or self.nodes.early)
        logits = self._logits(rows)
        if self.nodes.head:
            logits[:, self.nodes.head.n_words :] = NEVER
        return logits

    def n_cached_early(self, context: Tokens) -> int:
        """Return the number of leading tokens of `context` that need no decoding before an early pass."""
        start = self._n_shared(context, exact=False)
        n_low = self._n_low if start == self.seat.n_held else 0
        return start + common_prefix(self.seat.tokens[start : start + n_low], context[start:-1])

    def _decode_low(self, rows: int, steer: Steer) -> None:
        """Decode the next positions of the seat's tokens with the first layers, and keep their output."""
        low, start = self._n_low, self.seat.n_held + self._n_low
        kept, cells = self._rows[low : low + rows], self._cells[:, low : low + rows]
        with self._cleared_on_error():
            steer(lambda: self._pass(start, rows, self.seat.n_held), kept, cells)
            self._n_low += rows

    def _pass(self, start: int, rows: int, n_held: int) -> None:
        """Run a pass with all logits from position `start` on; then `n_held` tokens are cached with all layers."""
        super()._run(self._window(start, rows, rows), start, n_held)

    def _run(self, batch: lib.llama_batch, start: int, n_held: int) -> None:
        self.nodes.rest()
        super()._run(batch, start, n_held)

    def _rewind(self, context: Tokens, exact: bool) -> int:
        self._drop_low(0)
        return super()._rewind(context, exact)

    def _save(self) -> None:
        self._drop_low(0)
        super()._save()

    def _drop_low(self, kept: int) -> None:
        """Drop all but the first `kept` positions that only have the first layers."""
        if kept < self._n_low:
            if not lib.llama_memory_seq_rm(self.memory, MAIN, self._position(self.seat.n_held + kept), -1):
                self._clear()
            self._n_low = min(kept, self._n_low)

    def _clear(self, wipes: bool = True) -> None:
        super()._clear(wipes)
        self._n_low = 0

    @contextmanager
    def _cleared_on_error(self) -> Iterator[None]:
        """Clear the cache if a pass fails, because its content cannot be trusted."""
        try:
            yield
        except BaseException:
            self._clear()
            raise
