"""A head that is computed here, in numpy, from the target's last hidden states: StateHeadBackend implements Backend.

Knows the files' weights and the states of passes; the drafter's file has the computation.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from runtime.backends.file_rows import FileRows, find_rows
from runtime.backends.heads.trail import OnTarget
from runtime.backends.llama import LlamaBackend
from runtime.backends.shown_states import Rows
from runtime.core.draft import NO_DRAFT, Draft, Logits, Tokens, common_prefix
from runtime.core.errors import HeadError
from runtime.drafters.network import OUTPUT, NetworkHead
from runtime.drafters.registry import networks
from runtime.models.facts import ModelFacts
from runtime.models.own_heads import OWN, TABLE, borrows_output, kept_words, network_shape

INPUT = "token_embd.weight"


class StateHeadBackend(OnTarget):
    """A head with its weights in memory, as floats.

    `forward` takes the state to be zero where it is not known.
    """

    def __init__(
        self, head: NetworkHead, kept: NDArray[np.int64] | None, target: LlamaBackend, n_trails: int, room: int
    ) -> None:
        self._head, self._kept, self.target = head, kept, target
        self.n_vocab, self.n_ctx = target.n_vocab, target.n_ctx + room
        self.n_rewindable = self.n_ctx
        self.n_tokens = min(head.shape.n_heads, room)
        # Least recently used first
        self._trails = [StateTrail(head.shape.width, head.n_window) for _ in range(n_trails)]
        self._wide: Logits = np.full((1, self.n_vocab), -np.inf, dtype=np.float32)
        # A thread per core of NumPy's own would wait busily beside the target's: passes took three times as long
        self._threads = threadpool_limits(1, user_api="blas")
        target.shown.show_outputs(self.feed)

    def feed(self, tokens: Tokens, start: int, states: Rows) -> None:
        """Record the states [n - start, width] of `tokens` [n] from `start` on, which the target decoded."""
        trail = max(reversed(self._trails), key=lambda each: each.shared(tokens))
        if trail.shared(tokens) < start:  # another conversation, or one that was not recorded so far
            trail = self._trails[0]
        self._trails.remove(trail)
        self._trails.append(trail)
        trail.feed(tokens, start, states)

    def knows(self, context: Tokens) -> bool:
        """Return whether the state before the last token of `context` is known."""
        return self._found(context)[1] == len(context) - 1

    def _found(self, context: Tokens) -> tuple[StateTrail, int]:
        """Return the conversation with a state for most tokens of `context`, and their number, 0 for none."""
        found = [(trail, trail.n_true(context)) for trail in reversed(self._trails)]
        return max(found, key=lambda each: each[1])

    def forward(self, context: Tokens, draft: Draft = NO_DRAFT, exact: bool = True) -> Logits:
        """Return logits [1, n_vocab] that follow `context`, valid until the next call; -inf for undraftable tokens."""
        trail, n = self._found(context)
        states = trail.states(n) if n else np.zeros((1, self._head.shape.width), dtype=np.float32)
        first = (n or len(context) - 1) - len(states) + 1  # position of the token after the first state
        found = self._head.logits(states, context[first:])
        if self._kept is None:
            return found[None]
        self._wide[0, self._kept] = found
        return self._wide

    def rest(self, n_passes: int) -> None:
        """Ignore the states of the target's next `n_passes`."""
        self.target.shown.rest(n_passes)

    def n_cached(self, context: Tokens, exact: bool = True) -> int:
        """Return the number of tokens of `context` that need no decoding: all, as only the latest state is used."""
        return len(context)

    def close(self) -> None:
        """Stop listening to the target."""
        self.target.shown.remove_listener()
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


class StateTrail:
    """The states of positions [begin, n) of `tokens` [n], drafted ones included: those of the latest pass, and at least
    the latest `n_window` where they are known.
    """

    def __init__(self, width: int, n_window: int) -> None:
        self._n_window = n_window
        self.tokens: Tokens = np.zeros(0, dtype=np.int32)
        self.begin = 0
        self._states: Rows = np.zeros((0, width), dtype=np.float32)

    def shared(self, tokens: Tokens) -> int:
        """Return the number of leading tokens of `tokens` that this conversation has."""
        return common_prefix(self.tokens, tokens)

    def feed(self, tokens: Tokens, start: int, states: Rows) -> None:
        """Record the states [n - start, width] of `tokens` [n] from position `start` on; earlier ones are kept if this
        conversation has the tokens up to there.
        """
        first = max(self.begin, start + 1 - self._n_window)
        if first < start <= self.begin + len(self._states) and self.shared(tokens) >= start:
            kept = self._states[first - self.begin : start - self.begin]
            states, start = np.concatenate([kept, states]), first
        self.tokens, self.begin, self._states = tokens.copy(), start, states

    def n_true(self, context: Tokens) -> int:
        """Return the number of leading tokens of `context`, without its last one, after which a state is known; 0 if
        it is known after none.
        """
        n = min(self.shared(context), len(context) - 1)
        return n if n > self.begin else 0

    def states(self, n: int) -> Rows:
        """Return the states [1 to n_window, width] of the latest of the first `n` tokens."""
        end = n - self.begin
        return self._states[max(0, end - self._n_window) : end]
