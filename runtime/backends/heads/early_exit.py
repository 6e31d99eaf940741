"""LayerSkip inside a target's own context (Elhoushi et al., arXiv 2404.16710): drafts with its first layers and cache.

An early pass computes the first layers of a row and then the head. Its keys and values stay in the cache and its hidden
row is kept, so that the verifying pass needs only the layers above. Knows tokens, rows and the cache; nodes.py skips
the nodes.

Positions [0, _n_held) are in the cache with all layers, as in LlamaBackend; the next _n_low positions with the first
layers only. Every other pass drops those first, so no layer ever attends to missing cells.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import llama_cpp.llama_cpp as lib
import numpy as np

from runtime.backends.heads.narrowing import NEVER
from runtime.backends.heads.nodes import Cells, EarlyExitError, Nodes, Rows, Run
from runtime.backends.llama import LlamaBackend
from runtime.backends.model import LlamaModel
from runtime.backends.tree import MAIN
from runtime.core.draft import NO_DRAFT, Draft, Logits, Tokens, common_prefix
from runtime.core.errors import ContextError, ModelError

Steer = Callable[[Run, Rows, Cells], object]  # runs one kind of pass and stores rows and cells
CHECKED = 16  # tokens before the rows that are compared
SEED = 20


@dataclass(frozen=True, slots=True)
class ExitCheck:
    """Result of the check at load: why early exit cannot draft ("": it can), and whether hidden rows can be reused."""

    problem: str = ""
    reuses: bool = False


class EarlyExitBackend(LlamaBackend):
    """A target whose first `exit_layer` layers also draft, through `early`.

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
            self.nodes.learn(self.handle, lambda: LlamaBackend.forward(self, self._positions[:1], Draft((0,))))
            self.exit_at(1)
        except EarlyExitError:
            self.close()
            raise
        # The first layers' output, from position `_n_held` on
        self._rows = np.empty((self.n_rows, self.nodes.width), dtype=np.float32)
        self._cells = np.empty((self.nodes.n_cells, self.n_rows), dtype=np.int64)
        self.early = EarlyExit(self)
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
        self._reuse.extend(self._n_held, len(context), len(context) + len(draft), exact)
        try:
            return self._verify(draft)
        except ModelError:  # the cache is empty by now
            self.reuses = False
            return super().forward(context, draft, exact)

    def _verify(self, draft: Draft) -> Logits:
        """Return the logits that follow the token at position `_n_held` and each draft token, from their kept rows."""
        start, rows = self._n_held, 1 + len(draft)
        if self._n_low < rows:
            self._held[start + rows - 1] = draft.tokens[-1]
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
        start, k = self._n_held, len(draft)
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
            and self._held[start : start + n].tolist() == expected
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
        n_low = n - 1 - self._n_held
        if self.n_cached_early(context) == n - 1 and 0 <= n_low <= self.n_rows - rows:
            self._drop_low(n_low)
        else:
            start = self._rewind(context, exact=False)
            self._held[start : n - 1] = context[start : n - 1]
            self._decode_chain(start, n - 1, 0)
        self._held[n - 1 : n - 1 + rows] = [context[-1], *draft.tokens]
        self._decode_low(rows, steer or self.nodes.early)
        logits = self._logits(rows)
        if self.nodes.head:
            logits[:, self.nodes.head.n_words :] = NEVER
        return logits

    def n_cached_early(self, context: Tokens) -> int:
        """Return the number of leading tokens of `context` that need no decoding before an early pass."""
        start = self._n_shared(context, exact=False)
        n_low = self._n_low if start == self._n_held else 0
        return start + common_prefix(self._held[start : start + n_low], context[start:-1])

    def _decode_low(self, rows: int, steer: Steer) -> None:
        """Decode the next positions of `_held` with the first layers, and keep their output."""
        low, start = self._n_low, self._n_held + self._n_low
        kept, cells = self._rows[low : low + rows], self._cells[:, low : low + rows]
        with self._cleared_on_error():
            steer(lambda: self._pass(start, rows, self._n_held), kept, cells)
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
            if not lib.llama_memory_seq_rm(self.memory, MAIN, self._n_held + kept, -1):
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

    def check(self) -> ExitCheck:
        """Compare early passes that skip layers with some that do not, and full passes before and after them.

        Runs a few passes of each kind.
        """
        k = self.n_rows - 1
        tokens = self._sample(k)
        self.reuses = False
        before = self._around(tokens, k, None)
        skipping, in_vain = (
            self._around(tokens, k, self.nodes.early),
            self._around(tokens, k, partial(self.nodes.early, skips=False)),
        )
        self.reuses = True
        reusing = self._around(tokens, k, self.nodes.early)
        self._clear()
        self.reuses = np.array_equal(reusing, skipping)
        is_right = np.array_equal(skipping, in_vain) and np.array_equal(skipping[k:], before)
        return ExitCheck(
            "" if is_right else "passes that skip layers give wrong results with this build of llama.cpp",
            self.reuses,
        )

    def narrow(self, n_words: int) -> None:
        """Compute only the first `n_words` in early passes from now on; the others become practically impossible.

        With 0, compute all words again. Raises EarlyExitError where the logits of those words would change.
        """
        self.nodes.head, k = None, self.n_rows - 1
        if not n_words:
            return
        tokens = self._sample(k)
        wide = self._around(tokens, k, self.nodes.early)
        self.nodes.head = self.nodes.head_of(n_words)
        try:
            few = self._around(tokens, k, self.nodes.early)
        except ModelError:
            few = wide[:0]
        self._clear()
        is_same = few.shape == wide.shape and np.array_equal(few[:k, :n_words], wide[:k, :n_words])
        if not is_same or not np.array_equal(few[k:], wide[k:]):
            self.nodes.head = None
            raise EarlyExitError("its head cannot be narrowed with this build of llama.cpp")

    def _sample(self, k: int) -> Tokens:
        """Return tokens for comparing passes: a context, `k` draft tokens and one more."""
        n = min(CHECKED, self.n_ctx - k - 1)
        return np.random.default_rng(SEED).integers(0, self.n_vocab, n + k + 1).astype(np.int32)

    def _around(self, tokens: Tokens, k: int, steer: Steer | None) -> Logits:
        """Return the logits of `k` early passes, if there is a `steer`, then of the draft, and of a pass after it.

        The draft is `k` of the `tokens`, all but the last.
        """
        n = len(tokens) - k - 1
        self._clear()
        self.forward(tokens[: n - 1])
        early = [self.forward_early(tokens[: n + i], steer=steer).copy() for i in range(k if steer else 0)]
        full = self.forward(tokens[:n], Draft(tuple(tokens[n:-1].tolist()))).copy()
        return np.concatenate([*early, full, self.forward(tokens)])


class EarlyExit:
    """The first layers as a model of their own, for a drafter: implements Backend.

    Its context and threads are the target's.
    """

    def __init__(self, backend: EarlyExitBackend) -> None:
        self.backend, self.n_ctx, self.n_vocab = backend, backend.n_ctx, backend.n_vocab
        self.n_rewindable = backend.n_ctx

    def forward(self, context: Tokens, draft: Draft = NO_DRAFT, exact: bool = True) -> Logits:
        """See Backend."""
        return self.backend.forward_early(context, draft)

    def n_cached(self, context: Tokens, exact: bool = True) -> int:
        """See Backend."""
        return self.backend.n_cached_early(context)

    def set_slots(self, n: int) -> None:
        """Do nothing: the first layers have no slots of their own, but use the target's."""

    def resume(self, context: Tokens, exact: bool = True) -> None:
        """Do nothing: the first layers share the target's cache, which resumes by itself."""

    def set_threads(self, one: int, many: int) -> None:
        """Do nothing: threads are set for the target as a whole."""

    def close(self) -> None:
        """Do nothing: the target may continue without it."""
