"""A head that is computed here, in numpy, from the target's last hidden states: StateHeadBackend implements Backend.

Knows the files' weights and the states of passes; the drafter's file has the computation.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from runtime.backends.file_rows import FileRows, find_rows
from runtime.backends.heads.trail import LatestStates
from runtime.backends.llama import LlamaBackend
from runtime.backends.shown_states import Rows
from runtime.core.draft import NO_DRAFT, Draft, Logits, Tokens
from runtime.core.errors import HeadError
from runtime.drafters.network import OUTPUT, NetworkHead
from runtime.drafters.registry import networks
from runtime.models.facts import ModelFacts
from runtime.models.own_heads import OWN, TABLE, borrows_output, kept_words, network_shape

INPUT = "token_embd.weight"


class StateHeadBackend(LatestStates):
    """A head with its weights in memory, as floats.

    `forward` takes the state to be zero where it is not known.
    """

    def __init__(
        self, head: NetworkHead, kept: NDArray[np.int64] | None, target: LlamaBackend, n_trails: int, room: int
    ) -> None:
        self._head, self._kept = head, kept
        self.n_vocab, self.n_ctx = target.n_vocab, target.n_ctx + room
        self.n_rewindable = self.n_ctx
        self.n_tokens = min(head.shape.n_heads, room)
        super().__init__(target, n_trails, head.shape.width, head.n_window)
        self._wide: Logits = np.full((1, self.n_vocab), -np.inf, dtype=np.float32)
        # A thread per core of NumPy's own would wait busily beside the target's: passes took three times as long
        self._threads = threadpool_limits(1, user_api="blas")
        target.shown.show_outputs(self.feed)

    def forward(self, context: Tokens, draft: Draft = NO_DRAFT, exact: bool = True) -> Logits:
        """Return logits [1, n_vocab] that follow `context`, valid until the next call; -inf for undraftable tokens."""
        trail, n = self.found(context)
        states = trail.states(n) if n else np.zeros((1, self._head.shape.width), dtype=np.float32)
        first = (n or len(context) - 1) - len(states) + 1  # position of the token after the first state
        found = self._head.logits(states, context[first:])
        if self._kept is None:
            return found[None]
        self._wide[0, self._kept] = found
        return self._wide

    def close(self) -> None:
        """Stop listening to the target."""
        super().close()
        self._threads.restore_original_limits()


def open_state_head(path: Path, facts: ModelFacts, target: LlamaBackend, n_trails: int, room: int) -> StateHeadBackend:
    """Return the head in a file with these facts, which fit the target. Raises HeadError, ModelError."""
    start, weights = facts.header.data_start, dict[str, Rows]()
    kept = kept_words(facts, path)
    for tensor in facts.header.tensors:
        if tensor.name != TABLE:
            found = FileRows(path, tensor, start).floats(slice(None))
            weights[tensor.name] = found[0] if len(tensor.shape) == 1 else found
    if borrows_output(facts):
        weights[OUTPUT] = of_target(target, "output.weight", INPUT).floats(slice(None) if kept is None else kept)
    words = of_target(target, INPUT)
    head = networks()[facts.architecture.removeprefix(OWN)](network_shape(facts), weights, words.floats)
    return StateHeadBackend(head, kept, target, n_trails, room)


def of_target(target: LlamaBackend, *names: str) -> FileRows:
    """Return the first of these matrices that the target's file has. Raises HeadError, ModelError."""
    if found := find_rows(target.model.path, *names):
        return found
    raise HeadError(f"{target.model.path.name} has no {names[-1]}, which the head would use")
