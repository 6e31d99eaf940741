"""A head: layers that draft from the target's own hidden states.

Each of its rows takes a state and the token after it. After the target's last decoded position, the head uses its own
states instead of the target's. HeadBackend implements Backend, so the same code drives a draft model and a head. Knows
the library; trail.py keeps each conversation's record, and subclasses choose the states.
"""

from __future__ import annotations

import llama_cpp.llama_cpp as lib
import numpy as np

from runtime.backends import library, shown_states
from runtime.backends.heads.trail import HeadStep, OnTarget, Trail
from runtime.backends.llama import LlamaBackend
from runtime.backends.model import LlamaModel
from runtime.backends.seat import RowBatch
from runtime.backends.shown_states import Rows
from runtime.backends.stored.saved_states import NEGLIGIBLE
from runtime.core.draft import NO_DRAFT, Draft, Logits, Tokens, common_prefix
from runtime.core.errors import ModelError
from runtime.models.heads import HEAD_ROWS


class HeadBackend(OnTarget):
    """A head's context, in addition to the target's: implements Backend, for one row at a time.

    Receives the states of every pass of the target. `forward` uses them for contexts that it `knows`, and starts from
    zero states for others. Close it before the target.
    """

    offset = 0  # of a row's position from that of its state
    lag = 1  # positions from a row's state to its token
    few_rows = HEAD_ROWS  # most rows of a pass with logits; of more rows, the last one follows in a pass of its own
    context_type = lib.LLAMA_CONTEXT_TYPE_DEFAULT

    def __init__(self, weights: LlamaModel, target: LlamaBackend, n_states: int, n_trails: int, room: int) -> None:
        self.weights, self.target, self.n_vocab, self.width = weights, target, target.n_vocab, weights.n_embd
        self.n_ctx = self.n_rewindable = target.n_ctx + room
        self._n_cells = target.n_cells + n_trails * room + HEAD_ROWS
        self.handle = lib.llama_init_from_model(weights.handle, self._params(n_trails))
        if not self.handle:
            raise ModelError(f"no context could be made for the head in {weights.path.name} ({library.why()})")
        shown_states.show_hidden(self.handle, masked=True)
        self.memory = lib.llama_get_memory(self.handle)
        self._trails = [Trail(i, self.n_ctx, n_states, self.lag) for i in range(n_trails)]  # least recently used first
        self._latest: Trail | None = None  # whose last step was the last pass
        # A pass has logits of all of its rows or of none: the library orders outputs by row
        self._batch = RowBatch(self.n_ctx + 1, HEAD_ROWS, HEAD_ROWS)

    def _params(self, n_trails: int) -> lib.llama_context_params:
        params = self.weights.context_params()
        params.n_ctx, params.n_seq_max, params.kv_unified = self._n_cells, n_trails, True
        params.ctx_type = self.context_type
        params.n_batch = params.n_ubatch = HEAD_ROWS
        params.n_outputs_max, params.n_outputs_max_per_seq = max(self.few_rows, n_trails), self.few_rows
        params.ctx_other = self.target.handle  # provides the tables that the head lacks
        return params

    def set_threads(self, one: int, many: int) -> None:
        """Set the threads for passes of one row and of several rows."""
        lib.llama_set_n_threads(self.handle, one, many)

    def feed(self, tokens: Tokens, start: int, states: Rows) -> None:
        """Record the states [n - start, width] of `tokens` [n] from `start` on, which the target decoded."""
        n_shared, source = max(
            ((each.shared(tokens), each) for each in reversed(self._trails)), key=lambda each: each[0]
        )
        trail = source if n_shared >= source.n_tokens - NEGLIGIBLE else self._trails[0]
        if trail is not source:
            if n_shared >= start > 0:
                lib.llama_memory_seq_rm(self.memory, trail.sequence, -1, -1)
                lib.llama_memory_seq_cp(self.memory, source.sequence, trail.sequence, -1, -1)
                trail.become(source)
            n_shared = trail.shared(tokens)
        self._use(trail)
        trail.feed(tokens, start, states, n_shared)

    def rest(self, n_passes: int) -> None:
        """Ignore the target's next `n_passes`; the head may have to start again after them."""
        self.target.shown.rest(n_passes)

    def knows(self, context: Tokens) -> bool:
        """Return whether the target's states are known for all of `context` but its last token."""
        return self._trail(context).n_true(context) == len(context) - 1

    def n_cached(self, context: Tokens, exact: bool = True) -> int:
        """Return the number of tokens of `context` that need no decoding; tokens without states are not decoded."""
        trail = self._trail(context)
        return len(context) - max(1, trail.n_true(context) - trail.n_cells)

    def forward(self, context: Tokens, draft: Draft = NO_DRAFT, exact: bool = True) -> Logits:
        """Return logits [1, n_vocab] that follow `context`, valid until the next call; -inf for undraftable tokens."""
        trail = self._trail(context)
        self._use(trail)
        if (n_shared := trail.shared(context)) < min(trail.n_tokens, len(context)):
            trail.cut(n_shared)
        if not trail.steps and trail.n_true(context) <= trail.n_cells:
            nothing = np.zeros((1, trail.waiting.rows.shape[1]), dtype=np.float32)
            start = max(0, len(context) - 2)
            trail.start(start)
            trail.feed(context[: start + 1], start, nothing)
        n = max(trail.n_true(context), trail.n_cells)
        self._take_in(trail, context[: n + 1])
        self._decode_own(trail, context[n + 1 :])
        return self._logits()[-1:]

    def _trail(self, context: Tokens) -> Trail:
        return max(reversed(self._trails), key=lambda each: each.n_true(context))

    def _use(self, trail: Trail) -> None:
        self._trails.remove(trail)
        self._trails.append(trail)

    def _take_in(self, trail: Trail, context: Tokens) -> None:
        """Turn waiting states into cells, up to the last token of `context`."""
        n_shared = trail.shared(context)
        trail.tokens[n_shared : len(context)] = context[n_shared:]
        trail.n_tokens = max(trail.n_tokens, len(context))
        while (n_left := len(context) - 1 - trail.n_cells) > 0:
            n = n_left if n_left <= self.few_rows else min(HEAD_ROWS, n_left - 1)
            start = trail.n_cells
            tokens, rows = context[start + 1 : start + 1 + n], trail.waiting.rows[:n]
            trail.steps = self._add_cells(trail, tokens, rows, gives_logits=n == n_left)
            trail.n_cells = start + n
            trail.waiting.drop(n)

    def _add_cells(self, trail: Trail, tokens: Tokens, waiting: Rows, gives_logits: bool) -> list[HeadStep]:
        """Turn the target's states, which may be wider than a row's input, into cells; return the last row."""
        states = self._taken(trail, waiting)
        self._decode(trail, trail.n_cells, tokens, states, gives_logits)
        return [HeadStep(int(tokens[-1]), states[-1:].copy())]

    def _decode_own(self, trail: Trail, tokens: Tokens) -> None:
        """Decode the tokens behind the cells with the head's own states; rows that were decoded already are reused."""
        drafted = np.array([step.token for step in trail.steps[1:]], dtype=np.int32)
        n = common_prefix(drafted, tokens)
        if self._latest is not trail or n < len(drafted):
            again, trail.steps = trail.steps[n], trail.steps[:n]
            self._step(trail, *again)
        for token in tokens[n:].tolist():
            self._step(trail, token, shown_states.hidden_rows(self.handle, self._batch.n_rows, self.width)[-1:].copy())

    def _step(self, trail: Trail, token: int, state: Rows) -> None:
        position = trail.n_cells - 1 + len(trail.steps)
        self._decode(trail, position, np.array([token], dtype=np.int32), state)
        trail.steps.append(HeadStep(token, state))

    def _taken(self, trail: Trail, states: Rows) -> Rows:
        """Return the target's states as the input of rows [n, width]."""
        return states

    def _decode(self, trail: Trail, position: int, tokens: Tokens, states: Rows, gives_logits: bool = True) -> None:
        """Decode pairs of a token and a state from `position` on; earlier cells from there on are dropped."""
        self._make_room(trail, position, len(tokens))
        batch = self._batch.of_states(trail.sequence, position + self.offset, tokens, states, gives_logits)
        self._run(trail, batch)

    def _run(self, trail: Trail, batch: lib.llama_batch) -> None:
        """Decode the batch, which belongs to the trail."""
        self._latest = None
        if code := lib.llama_decode(self.handle, batch):
            raise self._error("decode", code)
        self._latest = trail

    def _make_room(self, trail: Trail, position: int, n: int) -> None:
        """Drop the trail's cells from `position` on; if cells are short, also those of least recently used trails."""
        first = -1 if position == trail.begin else position + self.offset
        lib.llama_memory_seq_rm(self.memory, trail.sequence, first, -1)
        for other in self._trails[:-1]:
            if sum(each.n_held for each in self._trails) + n <= self._n_cells:
                return
            other.start(other.n_known)
            other.n_tokens = 0
            lib.llama_memory_seq_rm(self.memory, other.sequence, -1, -1)

    def _logits(self) -> Logits:
        """Return the logits of all rows of the last pass."""
        return np.ctypeslib.as_array(lib.llama_get_logits(self.handle), (self._batch.n_rows, self.n_vocab))

    def _error(self, what: str, code: int) -> ModelError:
        return ModelError(f"{self.weights.path.name} could not {what} (code {code}): {library.why()}")

    def close(self) -> None:
        """Free the context; the weights stay."""
        if self.handle:
            self.target.shown.remove_listener()
            lib.llama_free(self.handle)
            self.handle = None
