"""Measures the acceptance of heads as they will be used: by the model library, from the files as they are.

At every position of a given text, the head drafts a few tokens from the target's states. The result is the number of
them that match the text. Knows backends; no torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from runtime.backends.heads.llama_heads import EagleBackend
from runtime.backends.llama import LlamaBackend
from runtime.backends.model import IdsOnly
from runtime.backends.shown_states import Rows
from runtime.core.draft import Tokens
from runtime.learning.versions import Measured
from runtime.learning.windows import LENGTH, Window
from runtime.loading.heads import head_facts
from runtime.loading.opening import load
from runtime.models.block_heads import layers_of
from runtime.models.facts import ModelFacts
from runtime.models.header import read_model_header
from runtime.models.heads import STATES

DEPTH = 3  # tokens of a draft
MAX_POSITIONS = 4096  # positions to measure, at most
Counts = NDArray[np.int64]  # [positions] number of leading draft tokens that match, 0 to DEPTH


def silent(what: str, share: float) -> bool:
    """Return True: nobody waits for the progress, and nothing cancels."""
    return True


def measure(target: Path, before: Path, after: Path, windows: Sequence[Window]) -> Measured:
    """Compare two heads at the same positions of the model's own tokens in the windows. Raises ModelError."""
    old, new = (accepted(target, head, windows) for head in (before, after))
    n = sum(map(len, old))
    if not n:
        return Measured(0.0, 0.0, 0, 0.0, 0.0)
    differences = (np.concatenate(new) - np.concatenate(old)) / DEPTH
    error = float(differences.std() / np.sqrt(n))
    return Measured(share(old), share(new), n, float(differences.mean()), error)


def share(counts: Sequence[Counts]) -> float:
    """Return the share of accepted draft tokens if every pass verified a draft of DEPTH tokens."""
    n_passes = n_accepted = 0
    for each in counts:
        at = 0
        while at < len(each):
            n_passes, n_accepted = n_passes + 1, n_accepted + int(each[at])
            at += int(each[at]) + 1
    return n_accepted / (DEPTH * n_passes) if n_passes else 0.0


def accepted(target: Path, head: Path, windows: Sequence[Window]) -> list[Counts]:
    """Return the number of matching draft tokens, by window and position. Raises ModelError."""
    facts = ModelFacts(read_model_header(target))
    found = list[Counts]()
    with ExitStack() as stack:
        model = stack.enter_context(closing(load(target, "target", silent, exact=False, gpu_layers=0, facts=facts)))
        backend = stack.enter_context(closing(LlamaBackend(model, LENGTH, 1, STATES)))
        own = head_facts(head, facts, backend)
        ids = IdsOnly(own.architecture, own.n_vocab) if own.n_vocab else None
        weights = load(head, "draft", silent, exact=False, ids=ids, facts=own, is_head=True)
        stack.enter_context(closing(weights))
        eagle = stack.enter_context(closing(EagleBackend(weights, backend, layers_of(own), 1, DEPTH + 1)))
        for each in (backend, eagle):
            each.set_threads(1, 1)
        shown = Shown(backend, layers_of(own))
        for window in windows:
            if sum(map(len, found)) >= MAX_POSITIONS:
                break
            found.append(np.array([*in_window(eagle, window, shown.states(window.tokens))], dtype=np.int64))
    return found


class Shown:
    """The target's hidden states of a text, collected row by row."""

    def __init__(self, target: LlamaBackend, layers: tuple[int, ...]) -> None:
        self._target, self._rows = target, list[Rows]()
        target.shown.show(layers, lambda tokens, start, states: self._rows.append(states.copy()))

    def states(self, tokens: Tokens) -> Rows:
        """Return the states [n - 1, width] of all tokens but the last."""
        self._rows.clear()
        self._target.forward(np.array([tokens[0] ^ 1], dtype=np.int32))  # clears the cache of the text
        self._rows.clear()
        for end in [*range(STATES, len(tokens) - 1, STATES), len(tokens) - 1]:
            self._target.forward(tokens[:end])
        return np.concatenate(self._rows)


def in_window(head: EagleBackend, window: Window, states: Rows) -> Iterator[int]:
    """Yield for each of the model's own tokens the number of the head's draft tokens from there on that match."""
    tokens, n_fed = window.tokens, 0
    for at in range(max(2, window.begin), len(tokens) - DEPTH):
        head.feed(tokens[: at - 1], n_fed, states[n_fed : at - 1])
        n_fed = at - 1
        yield n_right(head, tokens, at)


def n_right(head: EagleBackend, tokens: Tokens, at: int) -> int:
    """Return the number of consecutive tokens from `at` on that the head predicts correctly, at most DEPTH."""
    for n in range(DEPTH):
        if int(head.forward(tokens[: at + n])[0].argmax()) != tokens[at + n]:
            return n
    return DEPTH
